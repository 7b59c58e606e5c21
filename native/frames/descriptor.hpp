// The descriptor that is sent of a frame: the same for all faces. Owns this invariant: a buffer has its number before a reader
// learns of it.
#pragma once

#include <string_view>

#include "frames/frames.hpp"
#include "rule/writer.hpp"

namespace ringmain {

// What the sender of a frame says of it.
struct FrameFacts {
    uint64_t id = 0;
    int64_t start_ns = 0, end_ns = 0;
    uint64_t size = 0;
    bool valid = true;
};

// The largest `meta` of a frame.
constexpr uint64_t largest_meta(uint64_t largest_payload, size_t sender_size) {
    return largest_payload - align_up(sender_size) - sizeof(Descriptor);
}

// Sends the descriptor of a buffer that was claimed and filled, in a message that was started; its sequence number.
inline uint64_t send_descriptor(Writer& w, PoolWriter& pool, uint32_t buffer, const FrameFacts& facts,
                                int64_t now_ns, std::string_view sender, std::string_view meta) {
    Descriptor descriptor{kDescriptorMagic,
                          kPoolVersion,
                          static_cast<uint16_t>(facts.valid ? kFrameValid : 0),
                          buffer,
                          0,
                          pool.pool().epoch(),
                          pool.seal(buffer),
                          facts.id,
                          facts.start_ns,
                          facts.end_ns,
                          facts.size};
    std::byte* payload = w.payload(sender.size(), 0);
    copy_in(payload, &descriptor, sizeof descriptor);
    if (!meta.empty()) copy_in(payload + sizeof descriptor, meta.data(), meta.size());
    uint64_t sequence = w.seq();
    w.seal(sequence, now_ns, sizeof descriptor + meta.size(), sender, {});
    w.commit();
    pool.sent(buffer, w.position());
    return sequence;
}

}  // namespace ringmain
