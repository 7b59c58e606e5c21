// A clock of the kernel in nanoseconds, cheaper than a clock_gettime for each message.
//
// Where the kernel itself trusts the processor's time stamp counter (its clock source is "tsc"), the counter is read
// directly and scaled, and the real clock is read again after at most a millisecond. So a stepped clock is followed within
// that time. Elsewhere, and for publishers that send less than once a millisecond, this is clock_gettime.
//
// Owns this invariant: between two steps, the time of a message lies between the clock before its `send` and the clock
// after it. So the counter is paired with the clock only where little time can have passed between reading the one and the
// other, with the later counter of the two: what follows is then never ahead of the clock, and behind it by no more than one
// reading of it takes. The scale is measured over many such pairs; a clock that is slewed has another one, which is noticed
// as soon: at the 500 parts in a million that the kernel slews at most, half a microsecond a millisecond is wrong until then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/bell.hpp"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace ringmain {

inline uint64_t counter() {
#if defined(__x86_64__)
    return __rdtsc();
#else
    return 0;
#endif
}

template <clockid_t kKind>
class Clock {
    static constexpr int64_t kTrust_ns = 1'000'000;
    static constexpr int64_t kMeasure_ns = 16'000'000;     // the scale, over at least this,
    static constexpr int64_t kTooLong_ns = 1'000'000'000;  // and less than this
    static constexpr int kReadings = 4;

    uint64_t ticks_ = 0;          // the counter when the clock was last read
    uint64_t trusted_ticks_ = 0;  // how far from there the scale is used
    uint64_t scale_ = 0;          // nanoseconds a tick, times 2^32
    int64_t at_ns_ = 0;           // the clock then
    int64_t last_ns_ = 0;
    uint64_t base_ticks_ =
        0;  // from where the scale is measured: by the monotonic clock, which is never stepped
    int64_t base_ns_ = 0;
    uint64_t quickest_ticks_ = 0;  // that a reading has taken
    uint64_t asked_ticks_ = 0;     // when the clock was last read, also if only once

    static bool counter_is_trusted() {
        static const bool trusted = [] {
            char name[16] = {};
            std::FILE* file =
                std::fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "r");
            if (!file) return false;
            bool read = std::fgets(name, sizeof name, file) != nullptr;
            std::fclose(file);
            return read && std::strcmp(name, "tsc\n") == 0;
        }();
        return trusted;
    }

    struct Reading {
        uint64_t before, after,
            later;  // the counter before and after the clock was read, and after the monotonic one
        int64_t now_ns, monotonic_ns;
        uint64_t took_ticks() const { return later - before; }
    };
    static Reading read() {
        Reading r;
        r.before = counter();
        r.now_ns = clock_ns(kKind);
        r.after = counter();
        r.monotonic_ns = kKind == CLOCK_MONOTONIC ? r.now_ns : ringmain::monotonic_ns();
        r.later = counter();
        return r;
    }
    // One during which the thread was not interrupted: the quickest of a few, or the first that is as quick as they can be.
    Reading read_undisturbed() {
        Reading best = read();
        for (int i = 1; i < kReadings && best.took_ticks() > 2 * quickest_ticks_; ++i) {
            Reading next = read();
            if (next.took_ticks() < best.took_ticks()) best = next;
        }
        if (!quickest_ticks_ || best.took_ticks() < quickest_ticks_) quickest_ticks_ = best.took_ticks();
        return best;
    }

    void measure_scale(const Reading& r) {
        int64_t passed_ns = r.monotonic_ns - base_ns_;
        if (passed_ns < (scale_ ? kMeasure_ns : kTrust_ns)) return;
        if (passed_ns < kTooLong_ns) {
            scale_ = (static_cast<uint64_t>(passed_ns) << 32) / std::max<uint64_t>(r.later - base_ticks_, 1);
            trusted_ticks_ = scale_ ? (uint64_t{kTrust_ns} << 32) / scale_ : 0;
        }
        base_ticks_ = r.later;
        base_ns_ = r.monotonic_ns;
    }

    // noinline: runs once a millisecond, and must not weigh on what is done for every message.
    [[gnu::noinline]] int64_t read_clock(uint64_t ticks) {
        if (!ticks || !counter_is_trusted()) return clock_ns(kKind);
        // One message after a pause does not need the counter: more than one reading is for those that follow soon.
        bool alone = scale_ && ticks - std::exchange(asked_ticks_, ticks) > 2 * trusted_ticks_;
        if (alone) return clock_ns(kKind);
        Reading r = read_undisturbed();
        measure_scale(r);
        ticks_ = r.after;
        at_ns_ = r.now_ns;
        return r.now_ns;
    }

  public:
    int64_t now_ns() {
        uint64_t ticks = counter();
        uint64_t passed = ticks - ticks_;
        int64_t now = passed < trusted_ticks_ ? at_ns_ + static_cast<int64_t>((passed * scale_) >> 32)
                                              : read_clock(ticks);
        // The counter and the clock differ a little; that must not make a publisher's times go back. A clock that was
        // set back by more than that is followed.
        constexpr int64_t kJitter_ns = 1'000;
        if (now < last_ns_ && last_ns_ - now < kJitter_ns) now = last_ns_;
        last_ns_ = now;
        return now;
    }
};

}  // namespace ringmain
