// The host of a subscriber's waits: it checks each life of the topic that is joined, and a stop token may end it.
#pragma once

#include <exception>
#include <utility>

#include "face/subscriber.hpp"
#include "face/waits.hpp"

namespace ringmain::face {

// What waits of a subscriber ask for, besides when they end.
template <class H>
struct SubscriberHost : H {
    ringmain_subscriber& subscriber;
    std::exception_ptr refusal;  // why this life of the topic is not what was asked for

    template <class... Of>
    explicit SubscriberHost(ringmain_subscriber& s, Of... of) : H(std::move(of)...), subscriber(s) {}
    bool joins_again(std::string&) { return true; }
    bool joined() {
        try {
            subscriber.joined();
        } catch (...) {
            refusal = std::current_exception();
        }
        return !refusal;
    }
    Letter send_dead_letter(const View&, uint32_t) { return Letter::not_here; }
};

// Calls `call(host)`. Throws what it was refused for.
template <class Call>
Outcome with_reader_host(ringmain_subscriber& s, const ringmain_wait* wait, Call call) {
    auto checked = [&](auto host) {
        Outcome how = call(host);
        if (host.refusal) std::rethrow_exception(host.refusal);
        return how;
    };
    if (wait && wait->stop) return checked(SubscriberHost<StoppableHost>(s, wait->stop->source.get_token()));
    return checked(SubscriberHost<PlainHost>(s));
}

}  // namespace ringmain::face
