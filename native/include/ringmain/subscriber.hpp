// Receives a topic's messages. The topic need not exist yet, and may be created again meanwhile.
#pragma once

#include <ringmain/result.hpp>
#include <ringmain/types.hpp>
#include <ringmain/waiting.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ringmain {

struct SubscriberOptions {
    Start start = Start::next;
    OnLap on_lap = OnLap::oldest;
    bool conflate = false;                         // only the newest message; those skipped are not lost
    std::vector<std::string> ignore_senders = {};  // messages to skip without copying them
    std::vector<std::string> ignore_kinds = {};
    std::optional<std::vector<std::string>> only_senders = {};  // none: all
    std::optional<std::vector<std::string>> only_kinds = {};
    Observe observe = Observe::never;
    std::string name = {};                              // of this participant, as `ringmain info` shows it
    std::optional<std::chrono::nanoseconds> spin = {};  // before a sleep; none: adaptive, at most 20 us
    std::string directory = {};                         // of the topics; empty: RINGMAIN_DIR, or the user's
};

// A message with its bytes. Small ones are kept inside, without an allocation.
class Message {
    friend class Subscriber;
    static constexpr size_t kInside = 128;

    ringmain_message is_{};
    std::unique_ptr<std::byte[]> outside_;
    std::byte inside_[kInside];

    Message() {}  // leaves `inside_` as it is: a copy of nothing costs a message its speed
    const std::byte* begin() const { return outside_ ? outside_.get() : inside_; }

  public:
    Message(Message&& other) noexcept : is_(other.is_), outside_(std::move(other.outside_)) {
        if (!outside_)
            std::memcpy(inside_, other.inside_,
                        std::min(kInside, is_.size + is_.sender_size + is_.kind_size));
    }
    Message& operator=(Message&& other) noexcept {
        if (this != &other) {
            this->~Message();
            new (this) Message(std::move(other));
        }
        return *this;
    }

    const std::byte* data() const noexcept { return begin(); }
    size_t size() const noexcept { return is_.size; }
    Bytes bytes() const noexcept { return {begin(), is_.size}; }
    std::string_view text() const noexcept { return {reinterpret_cast<const char*>(begin()), is_.size}; }
    uint64_t seq() const noexcept { return is_.sequence; }
    int64_t time_ns() const noexcept { return is_.time_ns; }
    uint64_t lost() const noexcept { return is_.lost; }  // messages lost just before it
    uint32_t redelivered() const noexcept { return is_.redelivered; }
    std::string_view sender() const noexcept {
        return {reinterpret_cast<const char*>(begin()) + is_.size, is_.sender_size};
    }
    std::string_view kind() const noexcept {
        return {reinterpret_cast<const char*>(begin()) + is_.size + is_.sender_size, is_.kind_size};
    }
};

// A message in place, until it goes out of scope. On work that finishes it, and fail() gives it to another worker.
class Borrowed {
    friend class Subscriber;
    ringmain_subscriber* subscriber_;
    ringmain_message is_;

    Borrowed(ringmain_subscriber* subscriber, const ringmain_message& is)
        : subscriber_(subscriber), is_(is) {}

  public:
    Borrowed(Borrowed&& other) noexcept
        : subscriber_(std::exchange(other.subscriber_, nullptr)), is_(other.is_) {}
    Borrowed& operator=(Borrowed&& other) noexcept {
        std::swap(subscriber_, other.subscriber_);
        std::swap(is_, other.is_);
        return *this;
    }
    ~Borrowed() { (void)release(); }

    const std::byte* data() const noexcept { return static_cast<const std::byte*>(is_.data); }
    size_t size() const noexcept { return is_.size; }
    Bytes bytes() const noexcept { return {data(), is_.size}; }
    std::string_view text() const noexcept { return {static_cast<const char*>(is_.data), is_.size}; }
    uint64_t seq() const noexcept { return is_.sequence; }
    int64_t time_ns() const noexcept { return is_.time_ns; }
    uint64_t lost() const noexcept { return is_.lost; }
    uint32_t redelivered() const noexcept { return is_.redelivered; }
    std::string_view sender() const noexcept { return {is_.sender, is_.sender_size}; }
    std::string_view kind() const noexcept { return {is_.kind, is_.kind_size}; }

    // On broadcast no writer waits: are the bytes still as they were sent? Elsewhere always.
    bool still_whole() const noexcept { return ringmain_still_whole(subscriber_, &is_) != 0; }
    // Returns it now. Code::lapped: it was overwritten while it was in use.
    Code release() noexcept { return give_back(0); }
    // Returns it; on work another worker gets it.
    Code fail() noexcept { return give_back(1); }

  private:
    Code give_back(int failed) noexcept {
        ringmain_subscriber* from = std::exchange(subscriber_, nullptr);
        return from ? static_cast<Code>(ringmain_return(from, &is_, failed)) : Code::ok;
    }
};

// Used by one thread at a time. Not to be destroyed while a Borrowed of it exists.
class Subscriber {
    struct Close {
        void operator()(ringmain_subscriber* subscriber) const { ringmain_subscriber_close(subscriber); }
    };
    std::unique_ptr<ringmain_subscriber, Close> handle_;

    static std::vector<const char*> texts(const std::vector<std::string>& names) {
        std::vector<const char*> all;
        for (const std::string& name : names) all.push_back(name.c_str());
        all.push_back(nullptr);  // so that there is an address, also of none
        return all;
    }

  protected:
    // Of a topic of structs: with the name and the layout of the struct.
    Subscriber(std::string_view topic, const SubscriberOptions& options, const char* struct_name,
               const char* struct_layout) {
        std::vector<const char*> ignore_senders = texts(options.ignore_senders),
                                 ignore_kinds = texts(options.ignore_kinds), only_senders, only_kinds;
        if (options.only_senders) only_senders = texts(*options.only_senders);
        if (options.only_kinds) only_kinds = texts(*options.only_kinds);
        auto screen = [](const std::vector<const char*>& ignore, const std::vector<const char*>& only) {
            return ringmain_screen{ignore.data(), ignore.size() - 1, only.empty() ? nullptr : only.data(),
                                   only.empty() ? 0 : only.size() - 1};
        };
        ringmain_subscriber_options given = {};
        given.size = sizeof given;
        given.start = static_cast<ringmain_start>(options.start);
        given.on_lap = static_cast<ringmain_start>(options.on_lap);
        given.on_lap_given = 1;
        given.observe = static_cast<ringmain_observe>(options.observe);
        given.conflate = options.conflate;
        given.spins = options.spin.has_value();
        given.spin_ns = options.spin ? options.spin->count() : 0;
        given.name = options.name.c_str();
        given.directory = options.directory.c_str();
        given.senders = screen(ignore_senders, only_senders);
        given.kinds = screen(ignore_kinds, only_kinds);
        given.struct_name = struct_name;
        given.struct_layout = struct_layout;
        ringmain_subscriber* opened = nullptr;
        throw_if_failed(ringmain_subscriber_open(std::string(topic).c_str(), &given, &opened));
        handle_.reset(opened);
    }

  public:
    explicit Subscriber(std::string_view topic, const SubscriberOptions& options = {})
        : Subscriber(topic, options, nullptr, nullptr) {}

    // The next message; Code::timeout if none comes in time.
    Result<Message> receive(std::chrono::nanoseconds timeout = forever, const std::stop_token& token = {}) {
        Message message;
        std::byte* to = message.inside_;
        size_t room = Message::kInside;
        for (;;) {
            ringmain_status status = detail::waiting(timeout, token, [&](const ringmain_wait& wait) {
                return ringmain_receive(handle_.get(), &wait, to, room, &message.is_);
            });
            if (status == RINGMAIN_OK) [[likely]]
                return message;
            if (status != RINGMAIN_TOO_LARGE) return Error(status);
            room = message.is_.size + message.is_.sender_size + message.is_.kind_size;
            message.outside_.reset(to = new std::byte[room]);
        }
    }
    // The next message, if it is there; otherwise Code::empty.
    Result<Message> try_receive() { return receive(std::chrono::nanoseconds(0)); }

    // Copies the next message; its size. Code::too_large: it does not fit, with its sender and kind, and is still there.
    Result<size_t> receive_into(std::span<std::byte> buffer, std::chrono::nanoseconds timeout = forever,
                                const std::stop_token& token = {}) {
        ringmain_message message;
        ringmain_status status = detail::waiting(timeout, token, [&](const ringmain_wait& wait) {
            return ringmain_receive(handle_.get(), &wait, buffer.data(), buffer.size(), &message);
        });
        if (status != RINGMAIN_OK) return Error(status);
        return message.size;
    }

    // The next message in place. On bus, pipe, reliable and work it stays until it is returned.
    Result<Borrowed> borrow(std::chrono::nanoseconds timeout = forever, const std::stop_token& token = {}) {
        ringmain_message message;
        ringmain_status status = detail::waiting(timeout, token, [&](const ringmain_wait& wait) {
            return ringmain_borrow(handle_.get(), &wait, &message);
        });
        if (status != RINGMAIN_OK) return Error(status);
        return Borrowed(handle_.get(), message);
    }
    Result<Borrowed> try_borrow() { return borrow(std::chrono::nanoseconds(0)); }

    // On work: the message that was received last goes to another worker.
    void reject() { throw_if_failed(ringmain_reject(handle_.get())); }

    // Messages lost since it was opened.
    uint64_t lost() const noexcept { return ringmain_lost(handle_.get()); }
    // None: the topic does not exist yet.
    std::optional<Endpoint> endpoint() const {
        ringmain_endpoint there{};
        throw_if_failed(ringmain_subscriber_endpoint(handle_.get(), &there));
        return there.epoch ? std::optional(detail::endpoint_of(there)) : std::nullopt;
    }
    ringmain_subscriber* handle() const noexcept { return handle_.get(); }
};

}  // namespace ringmain
