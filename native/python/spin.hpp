// Looking for what is awaited before sleeping until it comes. A sleep and its wake-up cost tens of microseconds; a look that
// finds it costs less than one. Owns this invariant: looking never stands in the way of what is awaited, neither of its cache
// line nor of its core.
#pragma once

#include <sched.h>

#include <algorithm>
#include <utility>

#include "py.hpp"

namespace ringmain::py {

class Spin {
    static constexpr int64_t kUsual_ns = 20'000;
    static constexpr int kFirstLooks = 40;                               // about a microsecond
    static constexpr int kAlmostAtOnce = 8, kInARow = 16, kBreath = 32;  // looks, waits, pauses
    static constexpr uint32_t kMostSkipped = 1023;

    int64_t most_ns_ = 0;
    bool learns_ = false;
    uint32_t vain_ = 0, skip_ = 0;
    int in_a_row_ = 0;
    uint64_t seen_ = 0;

    // Where a reader is a little faster than its writer, it looks for each message at the very word that the writer is
    // about to change, and every look costs the writer a cache line: both get slower than either. So after several waits in
    // a row that ended almost at once, it lets a few messages gather before it looks, half a microsecond; and stops doing so
    // when only one came, as in a conversation, where that would be felt.
    void breathe(uint64_t seq) {
        bool one_by_one = seq - std::exchange(seen_, seq) < 2;
        if (in_a_row_ < kInARow) return;
        if (one_by_one) {
            in_a_row_ = 0;
            return;
        }
        for (int i = 0; i < kBreath; ++i) pause();
    }

    template <class Ready>
    bool look(int64_t for_ns, Ready ready, uint64_t seq) {
        breathe(seq);
        int looks = 0;
        // First with the GIL, since what is awaited is often nearly there.
        while (looks < kFirstLooks && !ready()) {
            pause();
            ++looks;
        }
        in_a_row_ = looks > kAlmostAtOnce ? 0 : std::min(in_a_row_ + 1, kInARow);
        if (looks < kFirstLooks) return true;
        WithoutGil unlocked;
        int64_t begin_ns = monotonic_ns(), now_ns = begin_ns;
        do {
            for (int i = 0; i < kFirstLooks; ++i) {
                if (ready()) return true;
                pause();
            }
            now_ns = monotonic_ns();
            // Longer than usual: perhaps the one we wait for is kept from running by nobody but us.
            if (now_ns - begin_ns > kUsual_ns) sched_yield();
        } while (now_ns - begin_ns < for_ns);
        return false;
    }

  public:
    // Negative: as experience tells.
    void set(int64_t ns) {
        learns_ = ns < 0;
        most_ns_ = learns_ ? kUsual_ns : ns;
        vain_ = skip_ = 0;
    }

    // Looks at `ready` (which needs no GIL) for a while. True as soon as it says yes. `seq`: the number of the next message,
    // where that is what is awaited.
    //
    // Looking pays only where what is awaited comes that soon: not at a hundred messages a second, and not where the kernel
    // has put both processes on one core, since nothing can come while we look. So every look in vain doubles the number of
    // waits that go by without one, and the first that is not ends that.
    template <class Ready>
    bool until(int64_t left_ns, Ready ready, uint64_t seq = 0) {
        if (most_ns_ <= 0) return false;
        if (skip_ > 0) {
            --skip_;
            return false;
        }
        bool found = look(std::min(most_ns_, left_ns), ready, seq);
        if (learns_) skip_ = vain_ = found ? 0 : std::min(2 * vain_ + 1, kMostSkipped);
        return found;
    }
};

}  // namespace ringmain::py
