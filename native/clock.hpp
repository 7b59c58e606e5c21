// The publish time of a message: the wall clock in nanoseconds, cheaper than a clock_gettime for each message.
//
// Where the kernel itself trusts the processor's time stamp counter (its clock source is "tsc"), the counter is read
// directly and scaled, and the real clock is read again after at most a millisecond. So a stepped or slewed clock is
// followed within that time, and the error in between is tens of nanoseconds. Elsewhere, and for publishers that send less
// than once a millisecond, this is clock_gettime.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "bell.hpp"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace ringmain {

class Clock {
    static constexpr int64_t kTrust_ns = 1'000'000;

    uint64_t ticks_ = 0;          // the counter when the clocks were last read
    uint64_t trusted_ticks_ = 0;  // how far from there the scale is used
    uint64_t scale_ = 0;          // nanoseconds a tick, times 2^32
    int64_t wall_ns_ = 0, monotonic_ns_ = 0;
    int64_t last_ns_ = 0;

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

    // noinline: runs once a millisecond, and must not weigh on what is done for every message.
    [[gnu::noinline]] int64_t read_clock(uint64_t ticks) {
        int64_t wall = wall_ns();
        if (ticks && counter_is_trusted()) {
            int64_t monotonic = monotonic_ns();  // for the scale: it is never stepped
            int64_t passed_ns = monotonic - monotonic_ns_;
            uint64_t passed_ticks = ticks - ticks_;
            // Long enough to measure, short enough not to overflow. Otherwise keep the scale we have.
            bool measurable =
                ticks_ && passed_ns >= kTrust_ns && passed_ns < 1'000'000'000 && passed_ticks > 0;
            if (measurable) {
                scale_ = (static_cast<uint64_t>(passed_ns) << 32) / passed_ticks;
                trusted_ticks_ = scale_ ? (uint64_t{kTrust_ns} << 32) / scale_ : 0;
            }
            // Until there is a scale, keep the first reading: a publisher that sends all the time would otherwise never
            // span long enough to measure one.
            if (scale_ || !ticks_ || passed_ns >= 1'000'000'000) {
                ticks_ = ticks;
                wall_ns_ = wall;
                monotonic_ns_ = monotonic;
            }
        }
        return wall;
    }

  public:
    int64_t now_ns() {
        uint64_t ticks = 0;
#if defined(__x86_64__)
        ticks = __rdtsc();
#endif
        uint64_t passed = ticks - ticks_;
        int64_t now = passed < trusted_ticks_ ? wall_ns_ + static_cast<int64_t>((passed * scale_) >> 32)
                                              : read_clock(ticks);
        // The counter and the clock differ a little; that must not make a publisher's times go back. A clock that was
        // set back by more than that is followed.
        constexpr int64_t kJitter_ns = 10'000;
        if (now < last_ns_ && last_ns_ - now < kJitter_ns) now = last_ns_;
        last_ns_ = now;
        return now;
    }
};

}  // namespace ringmain
