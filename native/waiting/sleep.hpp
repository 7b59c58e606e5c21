// The sleeps of a wait: until a deadline, on a bell or without one, brief at first and then with deaths watched.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/bell.hpp"

namespace ringmain {

// A deadline that reads the clock only when it must.
class Deadline {
    int64_t timeout_ns_, at_ns_ = -1;

  public:
    explicit Deadline(int64_t timeout_ns) : timeout_ns_(timeout_ns) {}
    int64_t timeout_ns() const { return timeout_ns_; }
    int64_t left_ns() {
        if (timeout_ns_ == kForever || timeout_ns_ == 0) return timeout_ns_;
        int64_t now = monotonic_ns();
        if (at_ns_ < 0) at_ns_ = timeout_ns_ > kForever - now ? kForever : now + timeout_ns_;
        return at_ns_ > now ? at_ns_ - now : 0;
    }
};

inline Woken sleep(Bell bell, int64_t timeout_ns) {
    if (bell.word) return sleep_on(bell, timeout_ns);
    usleep(
        static_cast<useconds_t>(std::min(timeout_ns, kSlice_ns) / 1000));  // a directory without a bell: poll
    return Woken::timed_out;
}

// A sleep of a wait, while deaths are watched. `briefly`: the wait begins, and what it awaits mostly comes soon, so first it is
// not worth a list. Again after a wait that was over although no bell rang: if its look found nothing, then there is
// something that it does not want, and it must not look without a pause. `watch`: lists the sleep. `sleep`: for so long.
template <class Watch, class Sleep>
Woken sleep_watched(Deadline& deadline, bool& briefly, Watch watch, Sleep sleep) {
    if (std::exchange(briefly, false)) {
        Woken how = sleep(std::min(kBriefSleep_ns, deadline.left_ns()));
        if (how != Woken::timed_out || deadline.left_ns() == 0) return how;
    }
    auto deaths = watch();
    briefly = deaths.over();
    return briefly ? Woken::timed_out : sleep(std::min(deaths.slice_ns(), deadline.left_ns()));
}

}  // namespace ringmain
