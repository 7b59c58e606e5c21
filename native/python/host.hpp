// Python as the host of a wait: other threads have the interpreter while it sleeps, and signals and close() end it.
#pragma once

#include "python/py.hpp"
#include "waiting/host.hpp"

namespace ringmain::py {

// Of a wait that nothing but a signal ends.
struct SignalHost {
    template <class Step>
    auto outside(Step step) {
        WithoutGil unlocked;
        return step();
    }
    template <class Sleep>
    Woken sleep(const uint32_t*, const std::shared_ptr<const void>&, Sleep sleep) {
        return outside(sleep);
    }
    bool goes_on() { return PyErr_CheckSignals() == 0; }
};
static_assert(Host<SignalHost>);

class PythonHost {
    Sleepers& sleepers_;
    const bool& closing_;

  public:
    PythonHost(Sleepers& sleepers, const bool& closing) : sleepers_(sleepers), closing_(closing) {}

    template <class Step>
    auto outside(Step step) {
        WithoutGil unlocked;
        return step();
    }
    template <class Sleep>
    Woken sleep(const uint32_t* word, std::shared_ptr<const void> mapped, Sleep sleep) {
        return sleep_until_closed(sleepers_, closing_, word, std::move(mapped), sleep);
    }
    // False: an exception is raised, or the endpoint is being closed.
    bool goes_on() { return PyErr_CheckSignals() == 0 && !closing_; }
};
static_assert(Host<PythonHost>);

}  // namespace ringmain::py
