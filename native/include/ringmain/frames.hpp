// Frames: images, and other large data, in buffers that readers look at in place, without a copy. Python's FramePublisher and
// FrameSubscriber send and receive the same.
#pragma once

#include <ringmain/result.hpp>
#include <ringmain/subscriber.hpp>
#include <ringmain/types.hpp>
#include <ringmain/waiting.hpp>

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ringmain {

// A strided array within a frame: the whole of it, or a plane of an image.
class Plane {
    const ringmain_plane* is_;
    const std::byte* frame_;

  public:
    Plane(const ringmain_plane& is, const void* frame)
        : is_(&is), frame_(static_cast<const std::byte*>(frame)) {}

    std::string_view name() const noexcept { return is_->name; }
    std::string_view dtype() const noexcept { return is_->dtype; }  // as numpy writes it: "|u1"
    const std::byte* data() const noexcept { return frame_ + is_->offset; }
    // A row, of an image.
    const std::byte* row(size_t index) const noexcept { return data() + index * is_->strides[0]; }
    std::span<const uint64_t> shape() const noexcept { return {is_->shape, is_->dimensions}; }
    std::span<const uint64_t> strides() const noexcept {
        return {is_->strides, is_->dimensions};
    }  // in bytes
};

// How the bytes of a frame are arranged. These throw what makes no sense.
struct FrameLayout : ringmain_layout {
    // Bytes without a shape; a frame may use fewer of them.
    static FrameLayout of_bytes(uint64_t size) {
        FrameLayout made{};
        throw_if_failed(ringmain_layout_of_bytes(size, &made));
        return made;
    }
    static FrameLayout of_array(std::initializer_list<uint64_t> shape, const std::string& dtype = "|u1") {
        FrameLayout made{};
        throw_if_failed(ringmain_layout_of_array(shape.begin(), shape.size(), dtype.c_str(), &made));
        return made;
    }
    // "gray", "rgb", "bgr", "rgba", "bgra", "nv12", "nv21" or "i420"; stride: from one row to the next, 0: without gaps.
    static FrameLayout of_image(const std::string& format, uint32_t width, uint32_t height,
                                uint64_t stride = 0) {
        FrameLayout made{};
        throw_if_failed(ringmain_layout_of_image(format.c_str(), width, height, stride, &made));
        return made;
    }
};

namespace detail {
inline std::optional<Plane> plane(const ringmain_layout& layout, std::string_view name, const void* frame) {
    for (uint32_t i = 0; i < layout.plane_count; ++i)
        if (name == layout.planes[i].name) return Plane(layout.planes[i], frame);
    return std::nullopt;
}
}  // namespace detail

struct FramePublisherOptions {
    uint32_t buffers = 4;     // how many frames can be held or unread at once, at most 60
    bool drops = false;       // where readers hold all buffers: Code::full at once, and counted
    bool huge_pages = false;  // asks for them
    std::string sender = {};  // and what follows: as of a Publisher
    std::string name = {};
    uint32_t mode = 0;
    bool takeover = false;
    uint32_t max_participants = 0;
    std::optional<std::chrono::nanoseconds> spin = {};
    std::string directory = {};
};

// A frame that is being filled. Discarded unless it is committed.
class FrameDraft {
    struct Discard {
        ringmain_draft draft;
        void operator()(ringmain_frame_publisher* publisher) const {
            ringmain_frame_discard(publisher, &draft);
        }
    };
    std::unique_ptr<ringmain_frame_publisher, Discard> publisher_;

  public:
    uint64_t id;                   // counts the frames; set it as you like
    int64_t start_ns, end_ns = 0;  // when it began: now; when it ended: 0, when it is sent
    bool valid = true;             // is the content valid?
    Bytes meta = {};               // more about it, as a map in MessagePack; until it is committed

    FrameDraft(ringmain_frame_publisher* publisher, const ringmain_draft& draft)
        : publisher_(publisher, Discard{draft}), id(draft.id), start_ns(draft.start_ns) {}

    std::byte* data() const noexcept { return static_cast<std::byte*>(publisher_.get_deleter().draft.data); }
    size_t size() const noexcept { return publisher_.get_deleter().draft.size; }
    std::span<std::byte> bytes() const noexcept { return {data(), size()}; }

    // Sends it; its sequence number. `used`: of a frame of bytes, its first ones.
    Result<uint64_t> commit() { return commit(size()); }
    Result<uint64_t> commit(size_t used) {
        ringmain_draft draft = publisher_.get_deleter().draft;
        draft.size = used;
        draft.id = id;
        draft.start_ns = start_ns;
        draft.end_ns = end_ns;
        draft.valid = valid;
        draft.meta = meta.data();
        draft.meta_size = meta.size();
        uint64_t sequence = 0;
        ringmain_status status = ringmain_frame_commit(publisher_.release(), &draft, &sequence);
        if (status != RINGMAIN_OK) return Error(status);
        return sequence;
    }
};

// Used by one thread at a time. Not to be moved while a FrameDraft of it exists.
class FramePublisher {
    struct Close {
        void operator()(ringmain_frame_publisher* publisher) const {
            ringmain_frame_publisher_close(publisher);
        }
    };
    std::unique_ptr<ringmain_frame_publisher, Close> handle_;

  public:
    FramePublisher(std::string_view topic, const FrameLayout& layout,
                   const FramePublisherOptions& options = {}) {
        ringmain_frame_publisher_options given = {};
        given.size = sizeof given;
        given.layout = &layout;
        given.buffers = options.buffers;
        given.mode = options.mode;
        given.max_participants = options.max_participants;
        given.drops = options.drops;
        given.huge_pages = options.huge_pages;
        given.takeover = options.takeover;
        given.spins = options.spin.has_value();
        given.spin_ns = options.spin ? options.spin->count() : 0;
        given.sender = options.sender.c_str();
        given.name = options.name.c_str();
        given.directory = options.directory.c_str();
        ringmain_frame_publisher* opened = nullptr;
        throw_if_failed(ringmain_frame_publisher_open(std::string(topic).c_str(), &given, &opened));
        handle_.reset(opened);
    }

    // The next free buffer, to be filled and sent. Code::full: readers hold all of them.
    Result<FrameDraft> frame(std::chrono::nanoseconds timeout = forever, const std::stop_token& token = {}) {
        ringmain_draft draft;
        ringmain_status status = detail::waiting(timeout, token, [&](const ringmain_wait& wait) {
            return ringmain_frame_begin(handle_.get(), &wait, &draft);
        });
        if (status != RINGMAIN_OK) return Error(status);
        return FrameDraft(handle_.get(), draft);
    }
    Result<FrameDraft> try_frame() { return frame(std::chrono::nanoseconds(0)); }

    // How many living readers there are, once there are so many.
    Result<uint32_t> wait_for_readers(uint32_t count = 1, std::chrono::nanoseconds timeout = forever,
                                      const std::stop_token& token = {}) {
        uint32_t readers = 0;
        ringmain_status status = detail::waiting(timeout, token, [&](const ringmain_wait& wait) {
            return ringmain_wait_for_readers(topic(), count, &wait, &readers);
        });
        if (status != RINGMAIN_OK) return Error(status);
        return readers;
    }
    // Have all readers received the newest frame?
    bool all_read() const {
        int all = 0;
        throw_if_failed(ringmain_all_read(topic(), &all));
        return all != 0;
    }
    // Frames that were not sent because no buffer was free.
    uint64_t dropped() const noexcept { return ringmain_frames_dropped(handle_.get()); }
    Endpoint endpoint() const {
        ringmain_endpoint there{};
        throw_if_failed(ringmain_publisher_endpoint(topic(), &there));
        return detail::endpoint_of(there);
    }
    ringmain_frame_publisher* handle() const noexcept { return handle_.get(); }

  private:
    ringmain_publisher* topic() const { return ringmain_frame_publisher_topic(handle_.get()); }
};

// A frame in place, until it goes out of scope: until then its buffer is not written. It may outlive its subscriber.
class Frame {
    ringmain_frame is_;

  public:
    explicit Frame(const ringmain_frame& is) : is_(is) {}
    Frame(Frame&& other) noexcept : is_(std::exchange(other.is_, {})) {}
    Frame& operator=(Frame&& other) noexcept {
        std::swap(is_, other.is_);
        return *this;
    }
    ~Frame() { release(); }

    const std::byte* data() const noexcept { return static_cast<const std::byte*>(is_.data); }
    size_t size() const noexcept { return is_.size; }
    Bytes bytes() const noexcept { return {data(), size()}; }
    uint64_t id() const noexcept { return is_.id; }
    int64_t start_ns() const noexcept { return is_.start_ns; }
    int64_t end_ns() const noexcept { return is_.end_ns; }
    bool valid() const noexcept { return is_.valid != 0; }
    uint64_t seq() const noexcept { return is_.sequence; }
    int64_t time_ns() const noexcept { return is_.time_ns; }
    uint64_t lost() const noexcept { return is_.lost; }  // frames lost just before it
    Bytes meta() const noexcept { return {static_cast<const std::byte*>(is_.meta), is_.meta_size}; }
    std::string_view sender() const noexcept { return {is_.sender, is_.sender_size}; }
    std::string_view kind() const noexcept { return {is_.kind, is_.kind_size}; }

    const ringmain_layout& layout() const noexcept { return *is_.layout; }
    Plane array() const noexcept { return Plane(is_.layout->array, is_.data); }
    // None: the frame has no such plane.
    std::optional<Plane> plane(std::string_view name) const noexcept {
        return detail::plane(*is_.layout, name, is_.data);
    }

    // Gives its buffer back now.
    void release() noexcept {
        if (is_.held) ringmain_frame_release(&is_);
    }
};

struct FrameSubscriberOptions {
    Start start = Start::next;
    bool conflate = false;  // only the newest frame; those skipped are not lost
    std::string name = {};
    std::optional<std::chrono::nanoseconds> spin = {};
    std::string directory = {};
};

// Used by one thread at a time, which is also the one that releases its frames. The topic need not exist yet, and may come back
// with frames of another shape: each frame has its layout.
class FrameSubscriber {
    struct Close {
        void operator()(ringmain_frame_subscriber* subscriber) const {
            ringmain_frame_subscriber_close(subscriber);
        }
    };
    std::unique_ptr<ringmain_frame_subscriber, Close> handle_;

  public:
    explicit FrameSubscriber(std::string_view topic, const FrameSubscriberOptions& options = {}) {
        ringmain_subscriber_options given = {};
        given.size = sizeof given;
        given.start = static_cast<ringmain_start>(options.start);
        given.conflate = options.conflate;
        given.spins = options.spin.has_value();
        given.spin_ns = options.spin ? options.spin->count() : 0;
        given.name = options.name.c_str();
        given.directory = options.directory.c_str();
        ringmain_frame_subscriber* opened = nullptr;
        throw_if_failed(ringmain_frame_subscriber_open(std::string(topic).c_str(), &given, &opened));
        handle_.reset(opened);
    }

    // The next frame; Code::timeout if none comes in time.
    Result<Frame> receive(std::chrono::nanoseconds timeout = forever, const std::stop_token& token = {}) {
        ringmain_frame frame;
        ringmain_status status = detail::waiting(timeout, token, [&](const ringmain_wait& wait) {
            return ringmain_frame_receive(handle_.get(), &wait, &frame);
        });
        if (status != RINGMAIN_OK) return Error(status);
        return Frame(frame);
    }
    // The next frame, if it is there; otherwise Code::empty.
    Result<Frame> try_receive() { return receive(std::chrono::nanoseconds(0)); }

    // Frames lost since it was opened.
    uint64_t lost() const noexcept { return ringmain_lost(topic()); }
    // None: the topic does not exist yet.
    std::optional<Endpoint> endpoint() const {
        ringmain_endpoint there{};
        throw_if_failed(ringmain_subscriber_endpoint(topic(), &there));
        return there.epoch ? std::optional(detail::endpoint_of(there)) : std::nullopt;
    }
    ringmain_frame_subscriber* handle() const noexcept { return handle_.get(); }

  private:
    ringmain_subscriber* topic() const noexcept { return ringmain_frame_subscriber_topic(handle_.get()); }
};

}  // namespace ringmain
