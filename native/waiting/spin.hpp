// Spinning for a short time before sleeping. A sleep and its wake-up cost tens of microseconds; a spin that succeeds costs
// less than one. Owns this invariant: spinning does not delay what it waits for by occupying its core.
//
// Where more processes run than there are cores, what we wait for often needs the very core that we are on. Then we yield:
// the others run, and mostly it has come when it is our turn again. That costs one switch between processes, where a sleep
// costs the sleeper a barrier and the process that wakes it a system call as well. But one that computes keeps the core for
// milliseconds, while a sleeper would be woken earlier: after such a yield, many waits do without.
#pragma once

#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/bell.hpp"
#include "waiting/host.hpp"

namespace ringmain {

// For so many waits something is skipped, because it failed: about twice as many each time.
class BackOff {
    static constexpr uint32_t kMost = 1023;
    uint32_t last_ = 0, left_ = 0;

  public:
    bool skips() {
        if (left_ == 0) return false;
        --left_;
        return true;
    }
    void failed() { left_ = last_ = std::min(2 * last_ + 1, kMost); }
    void shorten() { last_ /= 2; }
    void reset() { left_ = last_ = 0; }
};

class Spin {
    static constexpr int64_t kAdaptiveSpin_ns = 20'000;
    static constexpr int kLooks = 1;                          // of a spin that is explored
    static constexpr int kChecksInside = 40;                  // about a microsecond
    static constexpr int64_t kUninterrupted_ns = 10'000'000;  // then signals are looked at
    static constexpr int64_t kBeforeYield_ns = 1'500;         // a yield takes one microsecond
    static constexpr int kChecksBetweenYields = 8;
    static constexpr int kSwitches = 32;          // yields in which others ran; then a sleep is cheaper
    static constexpr int64_t kSwitch_ns = 1'500;  // a yield that took less: no other process had to run
    static constexpr int64_t kLongestBetween_ns = 100'000;
    static constexpr int64_t kMoving_ns = 1'000'000;     // for what moves on
    static constexpr int64_t kLongYield_ns = 1'000'000;  // one that took more: another process computes

    int64_t spin_ns_ = 0;
    bool adaptive_ = false;
    bool crowded_ = false;  // the last yield let others run, and then it was there
    BackOff spins_, yields_;

    template <class Ready>
    static bool check(int times, Ready& ready) {
        for (; times > 0; --times) {
            if (ready()) return true;
            pause();
        }
        return false;
    }

    // First inside, since the wait is often very short.
    template <class Ready, class Stop, Host H>
    bool spin(int64_t for_ns, Ready& ready, Stop stop, H& host) {
        if (check(kChecksInside, ready)) return true;
        int64_t begin_ns = monotonic_ns(), now_ns = begin_ns;
        do {
            int64_t until_ns = std::min(for_ns, now_ns - begin_ns + kUninterrupted_ns);
            if (host.outside([&] { return spin_on(begin_ns, until_ns, ready, now_ns); })) return true;
        } while (now_ns - begin_ns < for_ns && !stop());
        return false;
    }

    template <class Ready>
    static bool spin_on(int64_t begin_ns, int64_t for_ns, Ready& ready, int64_t& now_ns) {
        // Longer than usual: perhaps we occupy the core that the awaited process needs. Where no other runs meanwhile, a yield is
        // only time in which we do not look: after each such, twice as long without one.
        int64_t next_yield_ns = begin_ns + kAdaptiveSpin_ns, between_ns = 0;
        do {
            if (check(kChecksInside, ready)) return true;
            now_ns = monotonic_ns();
            if (now_ns < next_yield_ns) continue;
            sched_yield();
            int64_t before_ns = std::exchange(now_ns, monotonic_ns());
            bool switched = now_ns - before_ns > kSwitch_ns;
            between_ns = switched ? 0 : std::clamp(2 * between_ns, kSwitch_ns, kLongestBetween_ns);
            next_yield_ns = now_ns + between_ns;
        } while (now_ns - begin_ns < for_ns);
        return false;
    }

    // Spinning pays only if the wait is short: not at a hundred messages a second.
    template <class Ready, Host H>
    bool adapt(int64_t left_ns, Ready& ready, H& host) {
        if (!crowded_) {
            if (spins_.skips()) return false;
            // Inside, since the wait is often very short.
            if (check(kChecksInside, ready)) {
                spins_.reset();
                return true;
            }
        }
        if (yields_.skips()) return false;
        bool found = host.outside([&] { return yield_until(left_ns, spin_ns_, ready); });
        found ? spins_.reset() : spins_.failed();
        return found;
    }

    // Lets other processes run until it is there: a number of times, and no longer than the spin while none does run.
    template <class Ready>
    bool yield_until(int64_t left_ns, int64_t for_ns, Ready& ready) {
        int64_t now_ns = monotonic_ns(), begin_ns = now_ns, first_yield_ns = now_ns + kBeforeYield_ns;
        if (!std::exchange(crowded_, false)) {
            for (; now_ns < first_yield_ns; now_ns = monotonic_ns())
                if (check(kChecksInside, ready)) return true;
        }
        for (int switches = 0; switches < kSwitches && for_ns > 0 && now_ns - begin_ns < left_ns;) {
            int64_t before_ns = now_ns;
            sched_yield();
            bool found = ready();
            now_ns = monotonic_ns();
            int64_t yielded_ns = now_ns - before_ns;
            if (yielded_ns > kLongYield_ns) {
                yields_.failed();
                return found;
            }
            bool switched = yielded_ns > kSwitch_ns;
            if (found) {
                crowded_ = switched;
                yields_.shorten();
                return true;
            }
            if (switched) {
                ++switches;
            } else {
                if (check(kChecksBetweenYields, ready)) return true;
                now_ns = monotonic_ns();
                for_ns -= now_ns - before_ns;
            }
        }
        return false;
    }

  public:
    // Negative: adaptive, at most kAdaptiveSpin_ns.
    void set(int64_t ns) {
        adaptive_ = ns < 0;
        spin_ns_ = adaptive_ ? kAdaptiveSpin_ns : ns;
        spins_.reset();
    }
    bool asked_for() const { return !adaptive_ && spin_ns_ > 0; }

    // As until(), for what others get one after another before us: it comes, however many they are, and however many waits of another
    // kind were in vain. `ready` is also true where it does not move on.
    template <class Ready, class Stop, Host H>
    bool while_it_moves(int64_t left_ns, Ready ready, Stop stop, H& host) {
#if !defined(RINGMAIN_EXPLORE)
        if (adaptive_) {
            if (!crowded_ && check(kChecksInside, ready)) return true;
            return !yields_.skips() && host.outside([&] { return yield_until(left_ns, kMoving_ns, ready); });
        }
#endif
        return until(left_ns, ready, stop, host);
    }

    // Checks `ready` (which may run outside) for a while. True as soon as it returns true. A long spin asks `stop` (which runs
    // inside) now and then, and gives up if it returns true: after a signal, for one. Where there is no clock, it looks a few
    // times.
    template <class Ready, class Stop, Host H>
    bool until(int64_t left_ns, Ready ready, Stop stop, H& host) {
        if (spin_ns_ <= 0) return false;
#if defined(RINGMAIN_EXPLORE)
        (void)left_ns, (void)stop, (void)host;
        return check(kLooks, ready);
#else
        return adaptive_ ? adapt(left_ns, ready, host) : spin(std::min(spin_ns_, left_ns), ready, stop, host);
#endif
    }
};

}  // namespace ringmain
