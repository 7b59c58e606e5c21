// What needs the roster lock, for a program that waits for it. A process that has stopped may have the lock.
#pragma once

#include "topic/roster.hpp"
#include "waiting/host.hpp"

namespace ringmain {

// Calls `call(patience_ns)` outside; while it finds the roster locked, again and again for RosterLock::kPatience_ns, and asks the
// host in between. Throws what the call throws.
template <Host H, class Call>
Outcome with_roster(H& host, Call call) {
    for (int64_t end_ns = monotonic_ns() + RosterLock::kPatience_ns;;) {
        try {
            host.outside([&] { call(RosterLock::kSlice_ns); });
            return Outcome::ready;
        } catch (const Failure& failure) {
            if (failure.fault != Fault::roster_locked || monotonic_ns() > end_ns) throw;
        }
        if (!host.goes_on()) return Outcome::stopped;
    }
}

}  // namespace ringmain
