// Waiting for bells in an event loop: a thread sleeps on many bells, and makes a descriptor readable when one of them
// rings. One thread for every 127 bells of the process; none until the first is watched.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "bell.hpp"

namespace ringmain {

// A descriptor that an event loop can watch, and the tokens of the bells that rang since it was last read.
class Event {
    int fd_;
    std::mutex mutex_;
    std::vector<uint64_t> rang_;

  public:
    Event();
    ~Event();
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    int fd() const { return fd_; }
    void ring(uint64_t token);
    std::vector<uint64_t> take();  // the tokens; the descriptor is not readable afterwards
};

struct Watch {
    uint64_t token;
    Bell bell;
    std::shared_ptr<Event> event;
    std::shared_ptr<const void> keep;  // keeps the word mapped
    // Report after every slice, rung or not: for waits that may end because a participant died.
    bool every_slice;
};

// Watches a bell once. Returns the token that the event will give back.
uint64_t watch(Bell bell, std::shared_ptr<Event> event, std::shared_ptr<const void> keep, bool every_slice);
void unwatch(uint64_t token);

}  // namespace ringmain
