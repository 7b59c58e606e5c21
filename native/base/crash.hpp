// The crash points: every step at which a death matters, by name. In the lab build a process kills or stops itself at
// the point that RINGMAIN_CRASH names (lab.cpp); in the shipped build CRASH_POINT compiles to nothing. Owns this
// invariant: a label that is not in the table below does not compile, and the lab's tests fail if one is never reached.
//
// Each has a row in the crash table of docs/spec/shared-memory.md or frames.md, or, where a request may be under way, of
// docs/internals/killed.md: what others see, and who repairs it.
#pragma once

#include <cstddef>
#include <string_view>

namespace ringmain {

inline constexpr const char* kCrashPoints[] = {
    "create: file made, not filled",
    "create: joined, without a name",
    "create: named, bell not rung",
    "wait: in the waiting file",
    "enrol: waiting file locked",
    "enrol: readers enrolled, topic without a name",
    "enrol: topic named, waiting file kept",
    "enrolled: locked, not taken over",
    "enrolled: taken over, still waiting",
    "join: roster locked",
    "join: locked, not in the roster",
    "join: in the roster",
    "join: complete, not announced",
    "takeover: announced, old writer may be busy",
    "leave: roster locked",
    "leave: lock gone, slot taken",
    "leave: out of the roster",
    "reap: before the hold",
    "reap: hold gone, turn kept",
    "reap: turn free, slot taken",
    "reap: slot free, not announced",
    "remove: writers stopped, not retired",
    "retire: marked, name kept",
    "retire: unlinked, not announced",
    "schema: half written",
    "schema: written, not announced",
    "turn: asked for, not taken",
    "publish: turn taken",
    "keep: message half copied",
    "keep: message kept, still in the ring",
    "publish: tail moved, not claimed",
    "publish: claimed, not written",
    "publish: written, not committed",
    "publish: committed, turn kept",
    "publish: at rest, turn kept",
    "publish: turn given back, bell not rung",
    "publish: about to sleep",
    "bell: rung, sleepers not woken",
    "read: message found, not copied",
    "read: hold moved, bell not rung",
    "read: hold announced",
    "read: taken, hold not moved",
    "read: about to sleep",
    "reap: message given back, hold kept",
    "work: hold announced",
    "work: taken, cursor not moved",
    "work: cursor moved, bell not rung",
    "work: done, hold not moved",
    "work: given back, cursor not moved",
    "work: given back, bell not rung",
    "work: hold moved, bell not rung",
    "work: about to sleep",
    "frame: old pool retired, none there",
    "frame: buffer chosen",
    "frame: rewriting announced",
    "frame: numbered, not sent",
    "frame: lease announced",
    "frame: hold changed, bell not rung",
    "serve: request taken, not given out",
    "serve: answered, request not done",
    "call: topic of replies made, request not sent",
    "call: request sent, reply not awaited",
    "call: reply read, not taken",
    "call: reply taken, not returned",
};
inline constexpr size_t kCrashPointCount = sizeof kCrashPoints / sizeof *kCrashPoints;

// The index of a label; an unknown one does not compile.
consteval size_t crash_index(std::string_view label) {
    for (size_t i = 0; i < kCrashPointCount; ++i)
        if (label == kCrashPoints[i]) return i;
    throw "this label is not in kCrashPoints";
}

namespace lab {
void crash_point(size_t index);
}

}  // namespace ringmain

#if defined(RINGMAIN_LAB)
#define CRASH_POINT(label) ::ringmain::lab::crash_point(::ringmain::crash_index(label))
#elif defined(RINGMAIN_EXPLORE)
#define CRASH_POINT(label) ::ringmain::explore::crash_point(label)
#else
#define CRASH_POINT(label) ((void)::ringmain::crash_index(label))
#endif
