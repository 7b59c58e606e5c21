// Sends messages to a topic, creating it if need be.
#pragma once

#include <ringmain/result.hpp>
#include <ringmain/types.hpp>
#include <ringmain/waiting.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ringmain {

struct PublisherOptions {
    std::optional<Contract> contract = {};              // none: of the topic that exists, or broadcast
    uint64_t capacity = 0;                              // of the ring in bytes; 0: as it is, or 1 MiB
    std::string sender = {};                            // written on every message
    std::string name = {};                              // of this participant, as `ringmain info` shows it
    bool persist = false;                               // the topic stays when its last participant leaves
    uint32_t mode = 0;                                  // of the file, such as 0660; 0: as it is, or 0600
    bool takeover = false;                              // replaces a writer that is alive
    uint32_t min_readers = 0;                           // every send waits while fewer take part
    uint32_t max_participants = 0;                      // 0: as it is, or 128
    uint32_t keep_last_per_kind = 0;                    // of so many kinds, for readers that join late
    std::optional<std::chrono::nanoseconds> spin = {};  // before a sleep; none: adaptive, at most 20 us
    std::string directory = {};                         // of the topics; empty: RINGMAIN_DIR, or the user's
};

// A message that is written in place. Discarded unless it is committed.
class Reservation {
    struct Discard {
        void operator()(ringmain_publisher* publisher) const { ringmain_discard(publisher); }
    };
    std::unique_ptr<ringmain_publisher, Discard> publisher_;
    std::byte* data_;
    size_t size_;

  public:
    Reservation(ringmain_publisher* publisher, void* data, size_t size)
        : publisher_(publisher), data_(static_cast<std::byte*>(data)), size_(size) {}

    std::byte* data() const noexcept { return data_; }
    size_t size() const noexcept { return size_; }
    std::span<std::byte> bytes() const noexcept { return {data_, size_}; }

    // Sends it, or its first `used` bytes; its sequence number.
    Result<uint64_t> commit() { return commit(size_); }
    Result<uint64_t> commit(size_t used) {
        uint64_t sequence = 0;
        ringmain_status status = ringmain_commit(publisher_.get(), used, &sequence);
        if (status != RINGMAIN_OK) return Error(status);
        publisher_.release();
        return sequence;
    }
};

// Used by one thread at a time. Not to be moved while a Reservation of it exists.
class Publisher {
    struct Close {
        void operator()(ringmain_publisher* publisher) const { ringmain_publisher_close(publisher); }
    };
    std::unique_ptr<ringmain_publisher, Close> handle_;

  protected:
    // Of a topic of structs: with the name and the layout of the struct.
    Publisher(std::string_view topic, const PublisherOptions& options, const char* struct_name,
              const char* struct_layout) {
        ringmain_publisher_options given = {};
        given.size = sizeof given;
        given.contract = static_cast<ringmain_contract>(options.contract ? *options.contract : Contract{});
        given.mode = options.mode;
        given.capacity = options.capacity;
        given.sender = options.sender.c_str();
        given.name = options.name.c_str();
        given.directory = options.directory.c_str();
        given.min_readers = options.min_readers;
        given.max_participants = options.max_participants;
        given.keep_last_per_kind = options.keep_last_per_kind;
        given.persist = options.persist;
        given.takeover = options.takeover;
        given.spins = options.spin.has_value();
        given.spin_ns = options.spin ? options.spin->count() : 0;
        given.struct_name = struct_name;
        given.struct_layout = struct_layout;
        ringmain_publisher* opened = nullptr;
        throw_if_failed(ringmain_publisher_open(std::string(topic).c_str(), &given, &opened));
        handle_.reset(opened);
    }

  public:
    explicit Publisher(std::string_view topic, const PublisherOptions& options = {})
        : Publisher(topic, options, nullptr, nullptr) {}

    // Its sequence number. Waits as the contract says, without a limit unless one is given.
    Result<uint64_t> send(Bytes data) { return send_within(data, {}, nullptr); }
    Result<uint64_t> send(Bytes data, std::string_view kind, std::chrono::nanoseconds timeout = forever,
                          const std::stop_token& token = {}) {
        uint64_t sequence = 0;
        ringmain_status status = detail::waiting(timeout, token, [&](const ringmain_wait& wait) {
            return ringmain_send(handle_.get(), data.data(), data.size(), kind.data(), kind.size(), &wait,
                                 &sequence);
        });
        if (status != RINGMAIN_OK) return Error(status);
        return sequence;
    }
    // If there is room now; Code::full otherwise. On broadcast there always is.
    Result<uint64_t> try_send(Bytes data, std::string_view kind = {}) {
        ringmain_wait at_once{0, nullptr};
        return send_within(data, kind, &at_once);
    }

    // A message of up to `size` bytes, written in place. One at a time.
    Result<Reservation> reserve(size_t size, std::string_view kind = {},
                                std::chrono::nanoseconds timeout = forever,
                                const std::stop_token& token = {}) {
        void* data = nullptr;
        ringmain_status status = detail::waiting(timeout, token, [&](const ringmain_wait& wait) {
            return ringmain_reserve(handle_.get(), size, kind.data(), kind.size(), &wait, &data);
        });
        if (status != RINGMAIN_OK) return Error(status);
        return Reservation(handle_.get(), data, size);
    }
    Result<Reservation> try_reserve(size_t size, std::string_view kind = {}) {
        return reserve(size, kind, std::chrono::nanoseconds(0));
    }

    // How many living readers there are, once there are so many: they receive all that is sent from now on.
    Result<uint32_t> wait_for_readers(uint32_t count = 1, std::chrono::nanoseconds timeout = forever,
                                      const std::stop_token& token = {}) {
        uint32_t readers = 0;
        ringmain_status status = detail::waiting(timeout, token, [&](const ringmain_wait& wait) {
            return ringmain_wait_for_readers(handle_.get(), count, &wait, &readers);
        });
        if (status != RINGMAIN_OK) return Error(status);
        return readers;
    }
    // Have all readers caught up?
    bool all_read() const {
        int all = 0;
        throw_if_failed(ringmain_all_read(handle_.get(), &all));
        return all != 0;
    }

    Endpoint endpoint() const {
        ringmain_endpoint there{};
        throw_if_failed(ringmain_publisher_endpoint(handle_.get(), &there));
        return detail::endpoint_of(there);
    }
    ringmain_publisher* handle() const noexcept { return handle_.get(); }

  private:
    Result<uint64_t> send_within(Bytes data, std::string_view kind, const ringmain_wait* wait) {
        uint64_t sequence = 0;
        ringmain_status status =
            ringmain_send(handle_.get(), data.data(), data.size(), kind.data(), kind.size(), wait, &sequence);
        if (status != RINGMAIN_OK) [[unlikely]]
            return Error(status);
        return sequence;
    }
};

}  // namespace ringmain
