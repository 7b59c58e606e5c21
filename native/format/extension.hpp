// What the parts of ringmain say of a message beside its kind, which belongs to the user: an extension, before the kind, in the
// same `kind_size` bytes. Layout and constants only; rule/extension.hpp reads and writes it.
//
//   | 0xff | bytes of the items | item | item | ... | the kind's name
//                                 item: a byte, which says what it is, and a body whose size follows from that
//
// Few messages have one. No UTF-8 has the byte 0xff, so no kind begins like that.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringmain {

constexpr uint8_t kExtensionMark = 0xff;
constexpr size_t kExtensionHeadBytes = 2;

// Of a request: until when its client waits, by CLOCK_MONOTONIC, a clock that all processes of a machine share, and that no one
// sets; and may it run a second time, if its server dies?
struct [[gnu::packed]] TermsItem {
    static constexpr uint8_t kType = 1;
    uint8_t type = kType;
    int64_t deadline_ns;  // INT64_MAX: without a limit
    uint8_t retry;
};

// Of a reply: the number of its request, and what it is.
struct [[gnu::packed]] AnswerItem {
    static constexpr uint8_t kType = 2;
    uint8_t type = kType;
    uint64_t number;
    uint8_t outcome;  // 0 a result, 1 the text of a failure, 2: the server that had the request is gone
};

// The span in which a message was sent, as in W3C Trace Context, version 00.
struct [[gnu::packed]] TraceItem {
    static constexpr uint8_t kType = 3;
    uint8_t type = kType;
    uint8_t trace_id[16], span_id[8];
    uint8_t flags;
};

static_assert(sizeof(TermsItem) == 10 && offsetof(TermsItem, deadline_ns) == 1);
static_assert(sizeof(AnswerItem) == 10 && offsetof(AnswerItem, number) == 1);
static_assert(sizeof(TraceItem) == 26 && offsetof(TraceItem, span_id) == 17);

// 0: it is of a later version, and of what follows it no reader of this one knows where it begins.
constexpr size_t bytes_of_item(uint8_t type) {
    return type == TermsItem::kType    ? sizeof(TermsItem)
           : type == AnswerItem::kType ? sizeof(AnswerItem)
           : type == TraceItem::kType  ? sizeof(TraceItem)
                                       : 0;
}

}  // namespace ringmain
