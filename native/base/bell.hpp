// Waiting and waking. A reader sleeps on the topic's bell, a writer on that of the reader that blocks it, or on `turn`.
//
// A bell is a word of its own beside what is awaited (`commit`, a `hold`), so that this changes by a plain store. The sleeper
// arms the bell, makes the process-wide barrier, looks once more, and sleeps while the bell keeps its value. The process
// that changes the awaited word looks at the bell afterwards; if it is armed, it changes the bell, wakes all, and disarms it.
// Of the two looks at least one finds the other side's store (barrier.hpp). A sleeper whose bell was rung between its look
// and its sleep finds another value, and does not sleep. Owns this invariant: no process sleeps on a bell that is not armed.
// So a ringer that dies halfway leaves the bell to the next one, and a bell that was armed again meanwhile stays armed.
//
// A message whose writer died before it rang is found by a look. The first sleep of a wait is brief; then deaths are watched
// (death_watch.hpp), so that a long wait costs next to nothing. Where they cannot be, sleeps are cut into slices.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>

#include "base/barrier.hpp"

namespace ringmain {

// The first of a wait: with its wake-up less than the 20 ms that are promised.
constexpr int64_t kBriefSleep_ns = 15'000'000;
constexpr int64_t kSlice_ns = 40'000'000;            // where only a look finds that another process has died
constexpr int64_t kLongestSlice_ns = 2'000'000'000;  // where no death is awaited
constexpr int64_t kLongestSleep_ns = 3'600'000'000'000;  // where nothing but a ring is
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
    bool always_wakes = true;  // false: a ring may be missed, so a sleep on it is short
};

// A bell in shared memory. The low half is what processes sleep on, and counts how often it rang. The high half counts how
// often it was armed since it was last disarmed.
constexpr uint64_t kRung = 1, kArmed = uint64_t{1} << 32;
constexpr bool is_armed(uint64_t bell) { return bell >= kArmed; }

enum class Woken { changed, timed_out, interrupted };

constexpr size_t kMaxBells = 128;  // of one sleep: the kernel's limit (FUTEX_WAITV_MAX)

// Where the kernel refuses to wait (an old one, or a filter of system calls, which may answer with any error), the words
// are polled this often. A wait that returned at once would keep a core busy.
constexpr int64_t kPoll_ns = 1'000'000;

#if !defined(RINGMAIN_EXPLORE)

inline Woken poll(int64_t timeout_ns) {
    timespec pause = to_timespec(timeout_ns < kPoll_ns ? timeout_ns : kPoll_ns);
    return nanosleep(&pause, nullptr) == 0 ? Woken::timed_out : Woken::interrupted;
}

inline Woken sleep_on(Bell bell, int64_t timeout_ns) {
    if (!bell.always_wakes && timeout_ns > kPoll_ns) timeout_ns = kPoll_ns;
    timespec timeout = to_timespec(timeout_ns);
    long result = syscall(SYS_futex, bell.word, FUTEX_WAIT, bell.value, &timeout, nullptr, 0);
    if (result == 0 || errno == EAGAIN) return Woken::changed;
    if (errno == EINTR) return Woken::interrupted;
    return errno == ETIMEDOUT ? Woken::timed_out : poll(timeout_ns);
}

inline void wake(const uint32_t* word, int how_many = INT_MAX) {
    syscall(SYS_futex, word, FUTEX_WAKE, how_many, nullptr, nullptr, 0);
}

// Sleeps until any of the words changes. `which` gets the index of one that was rung, if the kernel says.
inline Woken sleep_on_any(const Bell* bells, size_t count, int64_t timeout_ns, size_t* which = nullptr) {
    struct Waiter {  // the kernel's struct futex_waitv, which older headers lack
        uint64_t value, address;
        uint32_t flags, reserved;
    } waiters[kMaxBells];
    for (size_t i = 0; i < count; ++i) {
        waiters[i] = {bells[i].value, reinterpret_cast<uint64_t>(bells[i].word), /* FUTEX_32 */ 2, 0};
        if (!bells[i].always_wakes && timeout_ns > kPoll_ns) timeout_ns = kPoll_ns;
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
inline void ring(Word<uint64_t>& bell) {
    bell.fetch_add(kRung, std::memory_order_acq_rel);
    wake(bell.futex());
}

// noinline: rare, and must not weigh on what is done for every message.
[[gnu::noinline]] inline void ring_armed(Word<uint64_t>& bell) {
    // [RING] acq_rel: a process that arms the bell from now on sees what it awaits. Pairs with [SLEEP].
    uint64_t rung = bell.fetch_add(kRung, std::memory_order_acq_rel) + kRung;
    CRASH_POINT("bell: rung, sleepers not woken");
    wake(bell.futex());
    // relaxed: goes on from [RING]. Refused if the bell was armed or rung since: then it stays armed, and is rung once too often.
    bell.compare_exchange(rung, rung % kArmed, std::memory_order_relaxed);
}

// After the awaited word was stored, and a light barrier.
inline void ring_if_armed(Word<uint64_t>& bell) {
    // [ARMED] relaxed: the light barrier before and the sleeper's process-wide one order it. Pairs with [SLEEP].
    if (is_armed(bell.load(std::memory_order_relaxed))) [[unlikely]]
        ring_armed(bell);
}

// Of several bells that are armed for one sleep. The caller then makes the process-wide barrier once, for all of them.
inline Bell arm_before_barrier(Word<uint64_t>& bell) {
    // [SLEEP] acq_rel, then the process-wide barrier: armed before we look. Pairs with [ARMED].
    return {bell.futex(), static_cast<uint32_t>(bell.fetch_add(kArmed, std::memory_order_acq_rel))};
}

// Before the last look at the awaited word.
inline Bell arm(Word<uint64_t>& bell) {
    Bell armed = arm_before_barrier(bell);
    armed.always_wakes = process_barrier::make();
    return armed;
}

#if !defined(RINGMAIN_EXPLORE)

// Wakes the threads of this process that sleep on a bell, or on any word that counts, or are about to. Others that sleep there
// look once too often.
inline void change_and_wake(const uint32_t* word) {
    __atomic_fetch_add(const_cast<uint32_t*>(word), static_cast<uint32_t>(kRung), __ATOMIC_ACQ_REL);
    wake(word);
}

#endif

}  // namespace ringmain
