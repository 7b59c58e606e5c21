// Waiting and waking. A reader sleeps on the topic's bell, a writer on that of the reader that blocks it, or on `turn`.
//
// A bell is a word of its own beside what is awaited (`commit`, a `hold`), so that this changes by a plain store. The sleeper
// arms the bell, makes the process-wide barrier, looks once more, and sleeps while the bell keeps its value. The process
// that changes the awaited word looks at the bell afterwards; if it is armed, it changes the bell and wakes all. Of the two
// looks at least one finds the other side's store (barrier.hpp). A sleeper whose bell was rung between its look and its sleep
// finds another value, and does not sleep: so clearing the mark of one sleeper cannot lose another.
//
// Every sleep is bounded: a waker that dies before its wake costs one slice.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>

#include "barrier.hpp"

namespace ringmain {

constexpr int64_t kSlice_ns = 40'000'000;
// For a writer that another participant blocks: if that one dies, no bell rings, and all writers wait for this long.
constexpr int64_t kObstacleSlice_ns = 10'000'000;
constexpr int64_t kForever = INT64_MAX;

inline int64_t clock_ns(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
inline int64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }
inline int64_t wall_ns() { return clock_ns(CLOCK_REALTIME); }

inline timespec to_timespec(int64_t ns) {
    return {ns / 1'000'000'000, static_cast<long>(ns % 1'000'000'000)};
}

// A word to sleep on, and its value when there was nothing to do.
struct Bell {
    const uint32_t* word = nullptr;
    uint32_t value = 0;
    bool sure = true;  // false: a ring may be missed, so a sleep on it is short
};

// Bit 0 of a bell's word: a process sleeps on it, or is about to. The rest counts how often it rang.
constexpr uint32_t kArmed = 1;

enum class Woken { changed, timed_out, interrupted };

#if !defined(RINGMAIN_EXPLORE)

// Where the kernel refuses to wait (an old one, or a filter of system calls, which may answer with any error), the words
// are polled this often. A wait that returned at once would keep a core busy.
constexpr int64_t kPoll_ns = 1'000'000;

inline Woken poll(int64_t timeout_ns) {
    timespec pause = to_timespec(timeout_ns < kPoll_ns ? timeout_ns : kPoll_ns);
    return nanosleep(&pause, nullptr) == 0 ? Woken::timed_out : Woken::interrupted;
}

inline Woken sleep_on(Bell bell, int64_t timeout_ns) {
    if (!bell.sure && timeout_ns > kPoll_ns) timeout_ns = kPoll_ns;
    timespec timeout = to_timespec(timeout_ns);
    long result = syscall(SYS_futex, bell.word, FUTEX_WAIT, bell.value, &timeout, nullptr, 0);
    if (result == 0 || errno == EAGAIN) return Woken::changed;
    if (errno == EINTR) return Woken::interrupted;
    return errno == ETIMEDOUT ? Woken::timed_out : poll(timeout_ns);
}

inline void wake(const uint32_t* word, int how_many = INT_MAX) {
    syscall(SYS_futex, word, FUTEX_WAKE, how_many, nullptr, nullptr, 0);
}

constexpr size_t kMaxBells = 128;  // the kernel's limit (FUTEX_WAITV_MAX)

// Sleeps until any of the words changes. `which` gets the index of one that was rung, if the kernel says.
inline Woken sleep_on_any(const Bell* bells, size_t count, int64_t timeout_ns, size_t* which = nullptr) {
    struct Waiter {  // the kernel's struct futex_waitv, which older headers lack
        uint64_t value, address;
        uint32_t flags, reserved;
    } waiters[kMaxBells];
    for (size_t i = 0; i < count; ++i) {
        waiters[i] = {bells[i].value, reinterpret_cast<uint64_t>(bells[i].word), /* FUTEX_32 */ 2, 0};
        if (!bells[i].sure && timeout_ns > kPoll_ns) timeout_ns = kPoll_ns;
    }
    constexpr long kFutexWaitv = 449;  // the same number on x86_64 and aarch64
    timespec deadline = to_timespec(monotonic_ns() + timeout_ns);
    long result = syscall(kFutexWaitv, waiters, count, 0, &deadline, CLOCK_MONOTONIC);
    if (result >= 0 && which) *which = static_cast<size_t>(result);
    if (result >= 0 || errno == EAGAIN) return Woken::changed;
    if (errno == EINTR) return Woken::interrupted;
    if (errno == ETIMEDOUT) return Woken::timed_out;
    // Kernels before 5.16 do not have it, and a filter may refuse it: sleep on the first and check the others often.
    return sleep_on(bells[0], timeout_ns < kPoll_ns ? timeout_ns : kPoll_ns);
}

#endif

// Rings a bell, armed or not: for what is rare. The value changes, so that a process about to sleep does not.
inline void ring(Word<uint32_t>& bell) {
    bell.fetch_add(2, std::memory_order_acq_rel);
    wake(bell.futex());
}

// noinline: rare, and must not weigh on what is done for every message. Two that ring at once leave the bell armed: one
// wake-up too many.
[[gnu::noinline]] inline void ring_armed(Word<uint32_t>& bell) {
    bell.fetch_add(kArmed, std::memory_order_acq_rel);
    CRASH_POINT("bell: cleared, sleepers not woken");
    wake(bell.futex());
}

// After the awaited word was stored, and a light barrier.
inline void ring_if_armed(Word<uint32_t>& bell) {
    // [ARMED] relaxed: the light barrier before and the sleeper's process-wide one order it. Pairs with [SLEEP].
    if (bell.load(std::memory_order_relaxed) & kArmed) [[unlikely]]
        ring_armed(bell);
}

// Before the last look at the awaited word.
inline Bell arm(Word<uint32_t>& bell) {
    // [SLEEP] acq_rel, then the process-wide barrier: armed before we look. Pairs with [ARMED].
    uint32_t value = bell.fetch_or(kArmed, std::memory_order_acq_rel) | kArmed;
    return {bell.futex(), value, process_barrier::make()};
}

}  // namespace ringmain
