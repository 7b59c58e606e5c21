// What a client asks for beside the result, as the kind of its request: `call`, `call until 81234500000000ns`,
// `call until 81234500000000ns retry`. The time is when it gives up, by CLOCK_MONOTONIC: a clock that all processes of a machine
// share, and that no one sets. src/ringmain/_service/_topics.py writes the same.
#pragma once

#include <charconv>
#include <string_view>

#include "base/bell.hpp"

namespace ringmain::py {

constexpr std::string_view kCall = "call", kUntil = " until ", kUnit = "ns", kRetry = " retry";

struct Terms {
    int64_t deadline_ns = kForever;
    bool retry = false;  // may it run a second time, if its server dies?
};

inline bool take(std::string_view& text, std::string_view prefix) {
    bool there = text.starts_with(prefix);
    if (there) text.remove_prefix(prefix.size());
    return there;
}

// Of a kind without its trace context. What is no such kind was sent by a publisher that knows nothing of requests: no limit.
inline Terms terms_of(std::string_view kind) {
    Terms terms;
    if (!take(kind, kCall)) return {};
    if (take(kind, kUntil)) {
        auto [end, error] = std::from_chars(kind.data(), kind.data() + kind.size(), terms.deadline_ns);
        if (error != std::errc{}) return {};
        kind.remove_prefix(static_cast<size_t>(end - kind.data()));
        if (!take(kind, kUnit)) return {};
    }
    terms.retry = take(kind, kRetry);
    return kind.empty() ? terms : Terms{};
}

// The kind of a call without `retry`.
class CallKind {
    char text_[48];
    size_t size_;
    int64_t deadline_ns_ = kForever;

  public:
    explicit CallKind(int64_t timeout_ns) : size_(kCall.copy(text_, kCall.size())) {
        if (timeout_ns == kForever) return;
        int64_t now_ns = monotonic_ns();
        if (timeout_ns > kForever - now_ns) return;
        deadline_ns_ = now_ns + timeout_ns;
        size_ += kUntil.copy(text_ + size_, kUntil.size());
        char* end = std::to_chars(text_ + size_, text_ + sizeof text_ - kUnit.size(), deadline_ns_).ptr;
        size_ = static_cast<size_t>(end - text_);
        size_ += kUnit.copy(text_ + size_, kUnit.size());
    }
    operator std::string_view() const { return {text_, size_}; }
    int64_t deadline_ns() const { return deadline_ns_; }
};

}  // namespace ringmain::py
