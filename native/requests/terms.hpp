// What a request and its reply say of themselves, in their extensions: see format/extension.hpp. Their kinds are empty.
// src/ringmain/_extension.py writes the same.
#pragma once

#include "base/bell.hpp"
#include "rule/extension.hpp"

namespace ringmain {

struct Terms {
    int64_t deadline_ns = kForever;
    bool retry = false;  // may it run a second time, if its server dies?
};
static_assert(kForever == INT64_MAX);

// None: sent by a publisher that knows nothing of requests, or without a limit.
inline Terms terms_of(std::string_view extension) {
    auto item = item_of<TermsItem>(extension);
    return item ? Terms{item->deadline_ns, item->retry != 0} : Terms{};
}

// What is sent in place of a kind: by a request,
class RequestSays {
    ExtensionOf<TermsItem> extension_;
    bool needed_;

  public:
    explicit RequestSays(const Terms& terms)
        : extension_({.deadline_ns = terms.deadline_ns, .retry = terms.retry}),
          needed_(terms.deadline_ns != kForever || terms.retry) {}
    operator std::string_view() const { return needed_ ? std::string_view(extension_) : std::string_view(); }
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

struct AnswerTo {
    uint64_t number;
    Answer answer;
};

// None: it was not sent by a server.
inline std::optional<AnswerTo> answer_of(std::string_view extension) {
    auto item = item_of<AnswerItem>(extension);
    if (!item || item->outcome > 2) return {};
    return AnswerTo{item->number, static_cast<Answer>(item->outcome + 1)};
}

// and by a reply that is a result; src/ringmain/_service/ sends the others.
class ReplySays : public ExtensionOf<AnswerItem> {
  public:
    explicit ReplySays(uint64_t number) : ExtensionOf({.number = number, .outcome = 0}) {}
};

}  // namespace ringmain
