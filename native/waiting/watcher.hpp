// Waiting for bells in an event loop: a thread sleeps on many bells, and makes a descriptor readable when one of them
// rings. One thread for every 127 bells of the process; none until the first is watched.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bell.hpp"
#include "topic/descriptor.hpp"
#include "waiting/death_watch.hpp"

namespace ringmain {

// A descriptor that an event loop can watch, and the tokens of the bells that rang since it was last read. A forked child
// gets a descriptor of its own under the same number, since a shared one would give each the other's wake-ups. There it
// is readable at first: the child looks once, and so begins to watch.
class Event {
    struct Rang {
        std::mutex mutex;
        std::vector<uint64_t> tokens;
        size_t awaited = 0;  // so many more are to come, and there is room for them
    };
    std::unique_ptr<Rang> rang_;
    FileDescriptor fd_;
    Event *previous_ = nullptr, *next_ = nullptr;  // the list of all of this process, for the fork handler
    friend struct Events;

    void renew();
    void forget_all();

  public:
    Event();
    ~Event();
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    int fd() const { return fd_.fd; }
    // A watch begins, which will ring, or be ended: in the thread that watches there may be no memory then.
    void await_one();
    void await_one_less();
    void ring(uint64_t token);
    void ring();                     // without a token
    std::vector<uint64_t> tokens();  // those that rang, the first ones first
    void forget(size_t count);       // so many of the first; without any left, the descriptor is not readable
    void silence();
};

struct Watch {
    Bell bell;  // an empty one: nothing rings, `over` alone ends the watch
    std::shared_ptr<Event> event;
    Awaiting awaiting;
    const void* owner = nullptr;  // for end_watches()
    int64_t look_every_ns = 0;    // so often the watching thread asks `over`; 0: deaths are watched
};

// Watches a bell once. Returns the token that the event will give back, which is never 0. Throws a Failure if no thread
// can be started, and std::bad_alloc.
uint64_t watch(Watch watch);
void watch_all(const std::vector<Watch>& watches);  // until their owner ends them
void unwatch(uint64_t token);
// The owner is closed: its watches end as if their bells had rung.
void end_watches(const void* owner);

}  // namespace ringmain
