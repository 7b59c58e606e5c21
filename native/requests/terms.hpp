// What a request and its reply say of themselves, as their kinds. Of a request: `call`, `call until 81234500000000ns`,
// `call until 81234500000000ns retry`. The time is when its client gives up, by CLOCK_MONOTONIC: a clock that all processes of a
// machine share, and that no one sets. Of a reply: the number of its request, and ` failed` or ` gone` if it is no result.
// src/ringmain/_service/_topics.py writes the same.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

#include "base/bell.hpp"
#include "rule/kept.hpp"

namespace ringmain {

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

// What is no such kind was sent by a publisher that knows nothing of requests: no limit.
inline Terms terms_of(std::string_view kind) {
    Terms terms;
    kind = kind.substr(0, bare_kind_size(kind.data(), kind.size()));
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

// The kind of a request.
class RequestKind {
    char text_[48];
    size_t size_;

  public:
    explicit RequestKind(const Terms& terms) : size_(kCall.copy(text_, kCall.size())) {
        if (terms.deadline_ns != kForever) {
            size_ += kUntil.copy(text_ + size_, kUntil.size());
            char* end = std::to_chars(text_ + size_, text_ + sizeof text_, terms.deadline_ns).ptr;
            size_ = static_cast<size_t>(end - text_);
            size_ += kUnit.copy(text_ + size_, kUnit.size());
        }
        if (terms.retry) size_ += kRetry.copy(text_ + size_, kRetry.size());
    }
    operator std::string_view() const { return {text_, size_}; }
};

// What a request has come to.
enum class Answer : uint8_t {
    none,    // it is in flight
    result,  // these are said by a reply:
    failed,
    gone,  // the server that had it left, or died, and another says so
    lost,  // these are found by the client: a server died with it, or left
    late,
    closed,  // the client is
};

constexpr std::string_view kFailed = " failed", kGone = " gone";

struct AnswerTo {
    uint64_t number;
    Answer answer;
};

// Of a reply's kind; none: it was not sent by a server.
inline std::optional<AnswerTo> answer_of(std::string_view kind) {
    uint64_t number;
    auto [end, error] = std::from_chars(kind.data(), kind.data() + kind.size(), number);
    if (error != std::errc{}) return {};
    kind.remove_prefix(static_cast<size_t>(end - kind.data()));
    if (kind.empty()) [[likely]]
        return AnswerTo{number, Answer::result};
    kind = kind.substr(0, bare_kind_size(kind.data(), kind.size()));
    if (kind.empty()) return AnswerTo{number, Answer::result};
    if (kind == kFailed) return AnswerTo{number, Answer::failed};
    if (kind == kGone) return AnswerTo{number, Answer::gone};
    return {};
}

// The kind of a reply.
class AnswerKind {
    char text_[32];
    size_t size_;

  public:
    AnswerKind(uint64_t number, Answer answer) {
        size_ = static_cast<size_t>(std::to_chars(text_, text_ + sizeof text_, number).ptr - text_);
        if (answer == Answer::failed) size_ += kFailed.copy(text_ + size_, kFailed.size());
        if (answer == Answer::gone) size_ += kGone.copy(text_ + size_, kGone.size());
    }
    operator std::string_view() const { return {text_, size_}; }
};

}  // namespace ringmain
