// ringmain_frame_subscriber: receives the descriptors of a frame topic, and holds the buffers that they name.
#include "face/arguments.hpp"
#include "face/failing.hpp"
#include "face/frame_layout.hpp"
#include "face/subscriber_host.hpp"

using namespace ringmain;
using namespace ringmain::face;

namespace {

// What a ringmain_frame points to. Its destructor gives the buffer back.
struct Held {
    std::shared_ptr<PoolReader> pool;  // keeps the participant and the mapping
    std::shared_ptr<const ringmain_layout> layout;
    uint32_t buffer = 0;
    std::string meta, texts;

    ~Held() {
        if (pool) pool->release(buffer);
    }
};

void check_options(const ringmain_subscriber_options& options) {
    if (options.observe != RINGMAIN_OBSERVE_NEVER || options.struct_layout)
        throw Refusal{
            RINGMAIN_INVALID_ARGUMENT,
            "a frame subscriber has no structs, and does not observe: who looks at a frame holds it"};
}

}  // namespace

struct ringmain_frame_subscriber {
    ringmain_subscriber descriptors;
    std::shared_ptr<PoolReader> pool;               // of the newest frame
    std::shared_ptr<const ringmain_layout> layout;  // of that pool

    // Throws a Failure or a Refusal.
    ringmain_frame_subscriber(const char* topic, const ringmain_subscriber_options& options)
        : descriptors(topic, options) {
        check_options(options);
    }

    ringmain_status receive(const ringmain_wait* wait, ringmain_frame* frame);

  private:
    template <class H>
    Outcome attach_pool(uint64_t epoch, H& host);
    std::unique_ptr<Held> hold(const FoundFrame& found) const;
};

// ready: `pool` is the one of this epoch. not_there: it is gone.
template <class H>
Outcome ringmain_frame_subscriber::attach_pool(uint64_t epoch, H& host) {
    if (pool && pool->pool().epoch() == epoch) [[likely]]
        return Outcome::ready;
    const BlockingReader& end = descriptors.end;
    std::unique_ptr<PoolReader> opened;
    if (Outcome how = open_pool_of(end, epoch, opened, host); how != Outcome::ready) return how;
    layout = std::make_shared<ringmain_layout>(
        layout_from(opened->pool().topic_file().schema(), end.topic, opened->pool().buffer_bytes()));
    pool = std::move(opened);
    return Outcome::ready;
}

// What a frame points to, copied out of its message.
std::unique_ptr<Held> ringmain_frame_subscriber::hold(const FoundFrame& found) const {
    const View& view = found.view;
    auto held = std::make_unique<Held>();
    held->pool = pool;
    held->layout = layout;
    held->buffer = found.descriptor.buffer;
    held->meta.resize(view.size - sizeof(Descriptor));
    std::string_view kind = view.said().kind;
    held->texts.resize(size_t{view.sender_size} + kind.size());
    copy_out(held->meta.data(), view.payload() + sizeof(Descriptor), held->meta.size());
    copy_out(held->texts.data(), view.sender(), view.sender_size);
    copy_out(held->texts.data() + view.sender_size, reinterpret_cast<const std::byte*>(kind.data()),
             kind.size());
    return held;
}

ringmain_status ringmain_frame_subscriber::receive(const ringmain_wait* wait, ringmain_frame* frame) {
    ringmain_subscriber& s = descriptors;
    if (ringmain_status status = check_ours(s); status != RINGMAIN_OK) return status;
    Deadline deadline = deadline_of(wait);
    for (;;) {
        FoundFrame found;
        Outcome how = with_reader_host(s, wait, [&](auto& host) {
            auto attach = [&](uint64_t epoch, PoolReader*& to) {
                Outcome attached = attach_pool(epoch, host);
                to = pool.get();
                return attached;
            };
            return s.frames.next(s.end, deadline, found, attach, host);
        });
        if (how != Outcome::ready) return refused(s, how, deadline);
        std::unique_ptr<Held> held = hold(found);
        auto kind_size = static_cast<uint8_t>(held->texts.size() - found.view.sender_size);
        uint64_t lost = 0;
        if (!FrameReader::take(s.end, found, lost)) continue;  // and its buffer is given back
        const Descriptor& descriptor = found.descriptor;
        *frame = {pool->pool().buffer(descriptor.buffer),
                  descriptor.size,
                  descriptor.id,
                  descriptor.start_ns,
                  descriptor.end_ns,
                  found.view.seq,
                  found.view.time_ns,
                  lost,
                  held->meta.data(),
                  held->meta.size(),
                  held->texts.data(),
                  held->texts.data() + found.view.sender_size,
                  layout.get(),
                  held.get(),
                  found.view.sender_size,
                  kind_size,
                  static_cast<uint8_t>(descriptor.flags & kFrameValid),
                  {}};
        held.release();
        return RINGMAIN_OK;
    }
}

extern "C" {

RINGMAIN_API ringmain_status ringmain_frame_subscriber_open(const char* topic,
                                                            const ringmain_subscriber_options* options,
                                                            ringmain_frame_subscriber** subscriber) {
    *subscriber = nullptr;
    return guarded([&] {
        *subscriber = new ringmain_frame_subscriber(topic, options_of(options));
        return RINGMAIN_OK;
    });
}

RINGMAIN_API void ringmain_frame_subscriber_close(ringmain_frame_subscriber* subscriber) {
    delete subscriber;
}

RINGMAIN_API ringmain_subscriber* ringmain_frame_subscriber_topic(ringmain_frame_subscriber* subscriber) {
    return &subscriber->descriptors;
}

RINGMAIN_API ringmain_status ringmain_frame_receive(ringmain_frame_subscriber* subscriber,
                                                    const ringmain_wait* wait, ringmain_frame* frame) {
    *frame = {};
    return guarded([&] { return subscriber->receive(wait, frame); });
}

RINGMAIN_API void ringmain_frame_release(ringmain_frame* frame) {
    if (!frame) return;
    std::unique_ptr<Held> held(static_cast<Held*>(frame->held));
    *frame = {};
}
}
