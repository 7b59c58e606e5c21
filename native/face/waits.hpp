// What a call of the face waits with: a deadline, and what may end it before.
#pragma once

#include <ringmain/ringmain.h>

#include <cstdio>
#include <stop_token>
#include <string>

#include "waiting/host.hpp"
#include "waiting/sleep.hpp"

struct ringmain_stop {
    std::stop_source source;
};

namespace ringmain::face {

inline Deadline deadline_of(const ringmain_wait* wait) {
    return Deadline(!wait || wait->timeout_ns < 0 ? kForever : wait->timeout_ns);
}

// Calls `call(host)`.
template <class Call>
auto with_host(const ringmain_wait* wait, Call call) {
    if (wait && wait->stop) {
        StoppableHost host(wait->stop->source.get_token());
        return call(host);
    }
    PlainHost host;
    return call(host);
}

// " within 1.5 s", as Python's errors have it.
inline std::string within(const Deadline& deadline) {
    if (deadline.timeout_ns() == kForever) return "";
    char text[40];
    std::snprintf(text, sizeof text, " within %.6g s", static_cast<double>(deadline.timeout_ns()) / 1e9);
    return text;
}

}  // namespace ringmain::face
