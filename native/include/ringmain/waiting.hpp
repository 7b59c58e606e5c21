// How long a call waits, and what ends it before.
#pragma once

#include <ringmain/ringmain.h>

#include <chrono>
#include <memory>
#include <stop_token>

namespace ringmain {

inline constexpr std::chrono::nanoseconds forever = std::chrono::nanoseconds::max();

namespace detail {

inline int64_t timeout_ns(std::chrono::nanoseconds timeout) {
    return timeout == forever ? RINGMAIN_FOREVER : timeout.count() < 0 ? 0 : timeout.count();
}

// Calls `call(wait)`. First without waiting, where there is a token: what is there needs no callback.
template <class Call>
ringmain_status waiting(std::chrono::nanoseconds timeout, const std::stop_token& token, Call call) {
    ringmain_wait wait{timeout_ns(timeout), nullptr};
    if (!token.stop_possible() || wait.timeout_ns == 0) return call(wait);
    ringmain_wait at_once{0, nullptr};
    ringmain_status status = call(at_once);
    if (status != RINGMAIN_EMPTY && status != RINGMAIN_FULL && status != RINGMAIN_TIMEOUT) return status;
    std::unique_ptr<ringmain_stop, decltype(&ringmain_stop_free)> stop(ringmain_stop_new(),
                                                                       &ringmain_stop_free);
    wait.stop = stop.get();
    std::stop_callback ends(token, [&wait] { ringmain_stop_request(wait.stop); });
    return call(wait);
}

}  // namespace detail

}  // namespace ringmain
