// What a call gives: its value, or why there is none. Nothing on the path that sends and receives throws.
#pragma once

#include <ringmain/ringmain.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <variant>

namespace ringmain {

enum class Code {
    ok = RINGMAIN_OK,
    empty = RINGMAIN_EMPTY,      // no message is there, and the call does not wait
    timeout = RINGMAIN_TIMEOUT,  // the time was up before a message came
    full = RINGMAIN_FULL,        // the time was up before there was room, or were enough readers
    stopped = RINGMAIN_STOPPED,  // the std::stop_token was
    closed = RINGMAIN_CLOSED,
    too_large = RINGMAIN_TOO_LARGE,
    taken_over = RINGMAIN_TAKEN_OVER,  // another writer has the topic now
    not_found = RINGMAIN_NOT_FOUND,    // no such topic, or it was removed
    busy = RINGMAIN_BUSY,              // it has its one writer or reader, or is in use
    mismatch = RINGMAIN_MISMATCH,      // it exists with another contract, capacity or mode
    schema_mismatch = RINGMAIN_SCHEMA_MISMATCH,
    roster_full = RINGMAIN_ROSTER_FULL,
    not_allowed = RINGMAIN_NOT_ALLOWED,
    corrupt = RINGMAIN_CORRUPT,
    invalid_argument = RINGMAIN_INVALID_ARGUMENT,
    in_use = RINGMAIN_IN_USE,
    lapped = RINGMAIN_LAPPED,  // a borrowed message was overwritten while it was in use
    system = RINGMAIN_SYSTEM,  // see Error::system_errno
};

// What constructors throw, and Result::value. Copies share the text.
class Error : public std::exception {
    struct Details {
        std::string text;
        int system_errno;
    };
    Code code_;
    std::shared_ptr<const Details> details_;

  public:
    // Of the call of this thread that has just failed.
    explicit Error(ringmain_status status) : code_(static_cast<Code>(status)) {
        if (status != RINGMAIN_EMPTY)
            details_ = std::make_shared<const Details>(Details{ringmain_last_error(), ringmain_last_errno()});
    }
    Code code() const noexcept { return code_; }
    const char* what() const noexcept override { return details_ ? details_->text.c_str() : "no message"; }
    int system_errno() const noexcept { return details_ ? details_->system_errno : 0; }
};

inline void throw_if_failed(ringmain_status status) {
    if (status != RINGMAIN_OK) throw Error(status);
}

// As std::expected<T, Error>, which C++20 has not. Not to be ignored: a message that was not sent would be lost in silence.
template <class T>
class [[nodiscard]] Result {
    std::variant<T, Error> is_;

  public:
    Result(T value) : is_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : is_(std::in_place_index<1>, std::move(error)) {}

    bool has_value() const noexcept { return is_.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }
    // Only if it has a value.
    T& operator*() & noexcept { return *std::get_if<0>(&is_); }
    const T& operator*() const& noexcept { return *std::get_if<0>(&is_); }
    T&& operator*() && noexcept { return std::move(*std::get_if<0>(&is_)); }
    T* operator->() noexcept { return std::get_if<0>(&is_); }
    const T* operator->() const noexcept { return std::get_if<0>(&is_); }
    // The value, or throws the error.
    T& value() & { return has_value() ? **this : throw error(); }
    T&& value() && { return has_value() ? std::move(**this) : throw error(); }
    // Only if it has no value.
    const Error& error() const noexcept { return *std::get_if<1>(&is_); }
    Code code() const noexcept { return has_value() ? Code::ok : error().code(); }
};

}  // namespace ringmain
