// Waiting and waking. A wait is a futex on the very word whose change is awaited, so there is no separate
// condition that could be missed: a reader sleeps on `commit`, a writer on the `hold` that blocks it or on `turn`.
// The sleeper sets kSleeper in the word first; the exchange that changes the word returns it.
//
// Every sleep is bounded (kSlice_ns): a waker that dies between its exchange and its wake costs one slice at most.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>

#include "word.hpp"

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
};

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
    for (size_t i = 0; i < count; ++i)
        waiters[i] = {bells[i].value, reinterpret_cast<uint64_t>(bells[i].word), /* FUTEX_32 */ 2, 0};
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

}  // namespace ringmain
