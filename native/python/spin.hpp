// Spinning for a short time before sleeping. A sleep and its wake-up cost tens of microseconds; a spin that succeeds costs
// less than one. Owns this invariant: spinning does not delay what it waits for, neither through its cache line nor by
// occupying its core.
#pragma once

#include <sched.h>

#include <algorithm>
#include <utility>

#include "py.hpp"

namespace ringmain::py {

class Spin {
    static constexpr int64_t kAdaptiveSpin_ns = 20'000;
    static constexpr int kChecksWithGil = 40;     // about a microsecond
    static constexpr int kShortWaitChecks = 8;    // a wait of at most so many checks is short
    static constexpr int kShortWaitsInARow = 16;  // after so many short waits, let messages gather
    static constexpr int kGatherPauses = 32;      // about half a microsecond
    static constexpr uint32_t kMaxSkippedSpins = 1023;
    static constexpr int64_t kUninterrupted_ns = 10'000'000;  // then signals are looked at

    int64_t spin_ns_ = 0;
    bool adaptive_ = false;
    uint32_t last_skip_ = 0, skip_ = 0;  // waits without a spin: in this backoff step, and still to come
    int short_waits_ = 0;
    uint64_t last_seq_ = 0;

    // A reader that is a little faster than its writer checks the very word that the writer is about to change, and every
    // check costs the writer a cache miss: both become slower. So after several short waits in a row, it lets a few
    // messages gather for half a microsecond before it checks. It stops doing so when only one message came, as in
    // request and reply, where the delay would matter.
    void let_messages_gather(uint64_t seq) {
        bool one_by_one = seq - std::exchange(last_seq_, seq) < 2;
        if (short_waits_ < kShortWaitsInARow) return;
        if (one_by_one) {
            short_waits_ = 0;
            return;
        }
        for (int i = 0; i < kGatherPauses; ++i) pause();
    }

    template <class Ready, class Stop>
    bool spin(int64_t for_ns, Ready ready, Stop stop, uint64_t seq) {
        let_messages_gather(seq);
        int checks = 0;
        // First with the GIL, since the wait is often very short.
        while (checks < kChecksWithGil && !ready()) {
            pause();
            ++checks;
        }
        short_waits_ = checks > kShortWaitChecks ? 0 : std::min(short_waits_ + 1, kShortWaitsInARow);
        if (checks < kChecksWithGil) return true;
        int64_t begin_ns = monotonic_ns(), now_ns = begin_ns;
        do {
            if (spin_without_gil(begin_ns, std::min(for_ns, now_ns - begin_ns + kUninterrupted_ns), ready,
                                 now_ns))
                return true;
        } while (now_ns - begin_ns < for_ns && !stop());
        return false;
    }

    template <class Ready>
    static bool spin_without_gil(int64_t begin_ns, int64_t for_ns, Ready ready, int64_t& now_ns) {
        WithoutGil unlocked;
        do {
            for (int i = 0; i < kChecksWithGil; ++i) {
                if (ready()) return true;
                pause();
            }
            now_ns = monotonic_ns();
            // Longer than usual: perhaps we occupy the core that the awaited process needs.
            if (now_ns - begin_ns > kAdaptiveSpin_ns) sched_yield();
        } while (now_ns - begin_ns < for_ns);
        return false;
    }

  public:
    // Negative: adaptive, at most kAdaptiveSpin_ns.
    void set(int64_t ns) {
        adaptive_ = ns < 0;
        spin_ns_ = adaptive_ ? kAdaptiveSpin_ns : ns;
        last_skip_ = skip_ = 0;
    }

    // Checks `ready` (which needs no GIL) for a while. True as soon as it returns true. A long spin asks `stop` (which has
    // the GIL) now and then, and gives up if it returns true: after a signal handler has raised, for one. `seq`: the
    // number of the next message, where the wait is for one.
    //
    // Spinning pays only if the wait is that short: not at a hundred messages a second, and not if the kernel has put both
    // processes on one core, since nothing can come while we spin. So every spin that fails doubles the number of waits
    // without one, and a spin that succeeds resets it.
    template <class Ready, class Stop>
    bool until(int64_t left_ns, Ready ready, Stop stop, uint64_t seq = 0) {
        if (spin_ns_ <= 0) return false;
        if (skip_ > 0) {
            --skip_;
            return false;
        }
        bool found = spin(std::min(spin_ns_, left_ns), ready, stop, seq);
        if (adaptive_) skip_ = last_skip_ = found ? 0 : std::min(2 * last_skip_ + 1, kMaxSkippedSpins);
        return found;
    }
};

}  // namespace ringmain::py
