#include "frames/frame_ends.hpp"

#include <algorithm>
#include <string>

namespace ringmain {

uint64_t read_by_all(const Ring& descriptors) {
    uint64_t least = UINT64_MAX;
    uint32_t used = descriptors.slots_used();
    for (uint32_t i = 0; i < used; ++i) {
        const Slot& slot = descriptors.slots[i];
        // relaxed, all: a hint.
        if (slot.state.load(std::memory_order_relaxed) == static_cast<uint32_t>(SlotState::taken) &&
            slot.role.load(std::memory_order_relaxed) == static_cast<uint32_t>(Role::reader))
            least = std::min(least, slot.position.load(std::memory_order_relaxed));
    }
    return least;
}

void FrameReader::joined(const BlockingReader& reader) {
    uint64_t commit = reader.topic_file().header().commit.load(std::memory_order_acquire) & kPositionMask;
    joined_at = reader.joined_before_topic      ? 0
                : reader.start == Start::oldest ? commit
                                                : std::min(commit, reader.reader->position());
}

void FrameReader::refuse(BlockingReader& reader, const View& view, const char* why) {
    reader.reader->take(view);
    reader.reader->release(reader.keep());
    throw Failure{Fault::mismatch, "message " + std::to_string(view.seq) + " of topic '" + reader.topic +
                                       "' " + why +
                                       ": read it with Subscriber, or send to it with FramePublisher"};
}

// Its frame has been overwritten, or its pool is gone.
void FrameReader::count_lost(BlockingReader& reader, const View& view) const {
    reader.reader->skip(view);
    if (!reader.conflate && view.position >= joined_at) {
        ++reader.reader->lost;
        ++reader.reader->pending_lost;
    }
    reader.reader->release(reader.keep());
}

}  // namespace ringmain
