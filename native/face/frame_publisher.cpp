// ringmain_frame_publisher: a pool of buffers, and the topic that says what is in them.
#include <cstring>

#include "face/arguments.hpp"
#include "face/failing.hpp"
#include "face/frame_layout.hpp"
#include "face/publisher.hpp"
#include "face/waits.hpp"
#include "frames/descriptor.hpp"
#include "frames/frame_ends.hpp"

using namespace ringmain;
using namespace ringmain::face;

namespace {

constexpr uint64_t kDescriptorRingBytes = 64 * 1024;
constexpr uint32_t kBuffers = 4;

ringmain_publisher_options options_of_topic(const ringmain_frame_publisher_options& given) {
    ringmain_publisher_options options = {};
    options.contract = RINGMAIN_BROADCAST;
    options.capacity = kDescriptorRingBytes;
    options.mode = given.mode;
    options.sender = given.sender;
    options.name = given.name;
    options.directory = given.directory;
    options.max_participants = given.max_participants;
    options.takeover = given.takeover;
    options.spins = given.spins;
    options.spin_ns = given.spin_ns;
    return options;
}

}  // namespace

struct ringmain_frame_publisher {
    ringmain_layout layout;
    ringmain_publisher descriptors;
    std::unique_ptr<PoolWriter> pool;
    bool drops;
    uint64_t next_id = 0, dropped = 0;

    // Throws a Failure or a Refusal.
    ringmain_frame_publisher(const char* topic, const ringmain_frame_publisher_options& options)
        : layout(checked_layout(options.layout)),
          descriptors(topic, options_of_topic(options), true),
          drops(options.drops) {
        PoolRequest request;
        request.buffer_count = options.buffers ? options.buffers : kBuffers;
        if (request.buffer_count > kMaxBuffers)
            throw Refusal{RINGMAIN_INVALID_ARGUMENT, "buffers is a number from 1 to " +
                                                         std::to_string(kMaxBuffers) + ", not " +
                                                         std::to_string(options.buffers)};
        request.buffer_bytes = layout.size;
        request.mode = options.mode ? options.mode : kDefaultMode;
        request.huge_pages = options.huge_pages;
        request.slot_count = descriptors.file().slot_count;  // of the same readers
        request.schema = layout_text(layout);
        request.name = participant_name(text(options.name), text(options.sender));
        pool = create_pool(descriptors.directory, descriptors.topic, request);
    }

    bool is_open(const ringmain_draft& draft) const {
        return draft.buffer < kMaxBuffers && (pool->taken() & (uint64_t{1} << draft.buffer)) != 0;
    }
    ringmain_status begin(const ringmain_wait* wait, ringmain_draft* draft);
    ringmain_status commit(const ringmain_draft& draft, uint64_t* sequence);

  private:
    ringmain_status no_buffer(Outcome how, const Deadline& deadline);
};

ringmain_status ringmain_frame_publisher::no_buffer(Outcome how, const Deadline& deadline) {
    const Pool& there = pool->pool();
    std::string count = std::to_string(there.buffer_count());
    if (how == Outcome::stopped)
        return fail(RINGMAIN_STOPPED,
                    "the wait for a buffer of frame topic '" + descriptors.topic + "' was stopped");
    if (how == Outcome::not_there)
        return fail(RINGMAIN_IN_USE, "all " + count + " buffers of frame topic '" + descriptors.topic +
                                         "' are in use by this process itself: commit or discard frames that "
                                         "are being filled");
    if (drops) {
        ++next_id;
        ++dropped;
        pool->count_dropped();
    }
    return fail(RINGMAIN_FULL, "frame topic '" + descriptors.topic + "' had no free buffer" +
                                   within(deadline) + ": of its " + count + ", " + there.describe_holders());
}

ringmain_status ringmain_frame_publisher::begin(const ringmain_wait* wait, ringmain_draft* draft) {
    if (descriptors.forked())
        return fail(RINGMAIN_CLOSED, "the publisher of frame topic '" + descriptors.topic +
                                         "' was inherited through fork: open another in this process");
    Deadline deadline = drops ? Deadline(0) : deadline_of(wait);
    uint32_t buffer = 0;
    Outcome how = with_host(wait, [&](auto& host) {
        return wait_for_buffer(*pool, descriptors.end.ring(), descriptors.end.spin, deadline, buffer, host);
    });
    if (how != Outcome::ready) return no_buffer(how, deadline);
    draft->data = pool->pool().buffer(buffer);
    draft->size = layout.size;
    draft->id = next_id++;
    draft->start_ns = descriptors.clock.now_ns();
    draft->buffer = buffer;
    draft->valid = 1;
    return RINGMAIN_OK;
}

ringmain_status ringmain_frame_publisher::commit(const ringmain_draft& draft, uint64_t* sequence) {
    if (descriptors.forked() || !is_open(draft))
        return fail(RINGMAIN_CLOSED, "there is no such frame of frame topic '" + descriptors.topic +
                                         "' being filled: it was sent, or discarded");
    struct GivesBack {
        PoolWriter& pool;
        uint32_t buffer;
        ~GivesBack() { pool.give_back(buffer); }
    } gives_back{*pool, draft.buffer};
    bool fewer = std::strcmp(layout.format, "bytes") == 0 && draft.size < layout.size;
    if (draft.size != layout.size && !fewer)
        return invalid("a frame of topic '" + descriptors.topic + "' has " + std::to_string(layout.size) +
                       " bytes, this one " + std::to_string(draft.size) +
                       ": only frames of bytes may use fewer");
    std::string_view meta(static_cast<const char*>(draft.meta), draft.meta ? draft.meta_size : 0);
    uint64_t most = largest_meta(descriptors.largest_bytes, descriptors.sender.size());
    if (meta.size() > most)
        return fail(RINGMAIN_TOO_LARGE, "the meta of a frame of topic '" + descriptors.topic + "' takes " +
                                            std::to_string(meta.size()) + " bytes, at most " +
                                            std::to_string(most) +
                                            " fit beside its descriptor: put large data into the frame");
    if (ringmain_status status = descriptors.start(sizeof(Descriptor) + meta.size(), {}, nullptr);
        status != RINGMAIN_OK)
        return status;
    int64_t now_ns = descriptors.clock.now_ns();
    FrameFacts facts{draft.id, draft.start_ns, draft.end_ns ? draft.end_ns : now_ns, draft.size,
                     draft.valid != 0};
    uint64_t sent = send_descriptor(*descriptors.end.writer, *pool, draft.buffer, facts, now_ns,
                                    descriptors.sender, meta);
    if (sequence) *sequence = sent;
    return RINGMAIN_OK;
}

extern "C" {

RINGMAIN_API ringmain_status ringmain_frame_publisher_open(const char* topic,
                                                           const ringmain_frame_publisher_options* options,
                                                           ringmain_frame_publisher** publisher) {
    *publisher = nullptr;
    return guarded([&] {
        *publisher = new ringmain_frame_publisher(topic, options_of(options));
        return RINGMAIN_OK;
    });
}

RINGMAIN_API void ringmain_frame_publisher_close(ringmain_frame_publisher* publisher) { delete publisher; }

RINGMAIN_API ringmain_publisher* ringmain_frame_publisher_topic(ringmain_frame_publisher* publisher) {
    return &publisher->descriptors;
}

RINGMAIN_API uint64_t ringmain_frames_dropped(const ringmain_frame_publisher* publisher) {
    return publisher->dropped;
}

RINGMAIN_API ringmain_status ringmain_frame_begin(ringmain_frame_publisher* publisher,
                                                  const ringmain_wait* wait, ringmain_draft* draft) {
    *draft = {};
    return guarded([&] { return publisher->begin(wait, draft); });
}

RINGMAIN_API ringmain_status ringmain_frame_commit(ringmain_frame_publisher* publisher,
                                                   const ringmain_draft* draft, uint64_t* sequence) {
    return guarded([&] {
        if (!publisher) return fail(RINGMAIN_CLOSED, "the frame was sent, or discarded");
        return publisher->commit(*draft, sequence);
    });
}

RINGMAIN_API void ringmain_frame_discard(ringmain_frame_publisher* publisher, const ringmain_draft* draft) {
    if (publisher->is_open(*draft)) publisher->pool->give_back(draft->buffer);
}
}
