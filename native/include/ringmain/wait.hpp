// One wait for several subscribers.
#pragma once

#include <ringmain/frames.hpp>
#include <ringmain/subscriber.hpp>

#include <initializer_list>
#include <span>
#include <vector>

namespace ringmain {

// A subscriber of messages, structs or frames.
class AnySubscriber {
    ringmain_subscriber* handle_;

  public:
    AnySubscriber(const Subscriber* subscriber) : handle_(subscriber->handle()) {}
    AnySubscriber(const FrameSubscriber* subscriber)
        : handle_(ringmain_frame_subscriber_topic(subscriber->handle())) {}
    ringmain_subscriber* handle() const noexcept { return handle_; }
};

// Waits until one of them has a message: the indexes of those that have. Nothing is taken. Code::timeout, or Code::empty if the
// timeout is 0.
inline Result<std::vector<size_t>> wait(std::span<const AnySubscriber> subscribers,
                                        std::chrono::nanoseconds timeout = forever,
                                        const std::stop_token& token = {}) {
    std::vector<ringmain_subscriber*> handles;
    for (const AnySubscriber& each : subscribers) handles.push_back(each.handle());
    std::vector<uint8_t> has(handles.size());
    ringmain_status status = detail::waiting(timeout, token, [&](const ringmain_wait& how) {
        return ringmain_wait_any(handles.data(), handles.size(), &how, has.data());
    });
    if (status != RINGMAIN_OK) return Error(status);
    std::vector<size_t> ready;
    for (size_t i = 0; i < has.size(); ++i)
        if (has[i]) ready.push_back(i);
    return ready;
}
inline Result<std::vector<size_t>> wait(std::initializer_list<AnySubscriber> subscribers,
                                        std::chrono::nanoseconds timeout = forever,
                                        const std::stop_token& token = {}) {
    return wait(std::span(subscribers.begin(), subscribers.size()), timeout, token);
}

}  // namespace ringmain
