// What a wait leaves to the program that it waits in, between two of its steps. The loops are the same for all: Python's host
// lets other threads have the interpreter and looks at signals; that of C++ looks at a stop token, or does nothing; the
// explorer's makes one step of its schedule, and counts the looks.
#pragma once

#include <concepts>
#include <memory>
#include <stop_token>
#include <utility>

#include "base/bell.hpp"

namespace ringmain {

// How a wait ends. A rare failure (a roster that stays locked, no descriptor left) is thrown instead, as a Failure.
enum class Outcome {
    ready,       // there is room, or a message
    timed_out,   // the deadline has passed
    too_few,     // it has passed, and fewer readers take part than the writer asks for
    stopped,     // the host has ended the wait; it knows why
    taken_over,  // another has our turn or our slot, or the topic was removed
    corrupt,     // the words in shared memory contradict each other
    not_there,   // looked once: there is nothing yet
};

// A step of a wait that may take long: any callable. What it returns is returned.
struct AnyStep {
    int operator()() const;
};
struct AnySleep {
    Woken operator()() const;
};

template <class H>
concept Host = requires(H& host, const uint32_t* word, std::shared_ptr<const void> mapped) {
    // Runs a step that sleeps, takes a lock, or spins; no state of the endpoint is changed meanwhile but by this step.
    { host.outside(AnyStep()) } -> std::same_as<int>;
    // Runs a sleep on a word, which lies in `mapped`. The host may end it by change_and_wake(word).
    { host.sleep(word, mapped, AnySleep()) } -> std::same_as<Woken>;
    // Between two steps. False: the wait ends at once, with Outcome::stopped.
    { host.goes_on() } -> std::same_as<bool>;
};

// A program whose threads need nothing from each other.
struct PlainHost {
    template <class Step>
    auto outside(Step step) {
        return step();
    }
    template <class Sleep>
    Woken sleep(const uint32_t*, const std::shared_ptr<const void>&, Sleep sleep) {
        return sleep();
    }
    bool goes_on() { return true; }
};
static_assert(Host<PlainHost>);

#if !defined(RINGMAIN_EXPLORE)

// The same, and a stop token ends its waits.
class StoppableHost : public PlainHost {
    std::stop_token token_;

  public:
    explicit StoppableHost(std::stop_token token) : token_(std::move(token)) {}

    template <class Sleep>
    Woken sleep(const uint32_t* word, const std::shared_ptr<const void>&, Sleep sleep) {
        // Registered before the last look at the token: a stop that comes in between changes the word, and the kernel refuses
        // to sleep on its old value.
        std::stop_callback wakes(token_, [word] {
            if (word) change_and_wake(word);
        });
        return token_.stop_requested() ? Woken::interrupted : sleep();
    }
    bool goes_on() { return !token_.stop_requested(); }
};
static_assert(Host<StoppableHost>);

#endif

}  // namespace ringmain
