// ringmain_wait_any: until one of several subscribers has a message.
#include "face/failing.hpp"
#include "face/subscriber_host.hpp"
#include "waiting/wait_for_any.hpp"

using namespace ringmain;
using namespace ringmain::face;

namespace {

// Subscribers of one thread, each of which checks what it joins.
template <class H>
class SubscribersHost : public H {
    std::span<ringmain_subscriber* const> all_;

  public:
    template <class... Of>
    explicit SubscribersHost(std::span<ringmain_subscriber* const> all, Of... of)
        : H(std::move(of)...), all_(all) {}

    // Throws what it was refused for.
    template <class Look>
    Outcome look(size_t index, Look look) {
        SubscriberHost<PlainHost> host(*all_[index]);
        Outcome how = look(all_[index]->end, host);
        if (host.refusal) std::rethrow_exception(host.refusal);
        return how;
    }
    template <class Sleep>
    Woken sleep(std::span<const SleepsFor> sleepers, Sleep sleep) {
        return sleepers.empty() ? H::sleep(nullptr, nullptr, sleep)
                                : H::sleep(sleepers[0].word, sleepers[0].mapped, sleep);
    }
};

ringmain_status wait_any(std::span<ringmain_subscriber* const> all, const ringmain_wait* wait,
                         uint8_t* ready) {
    for (ringmain_subscriber* each : all)
        if (ringmain_status status = check_ours(*each); status != RINGMAIN_OK) return status;
    Deadline deadline = deadline_of(wait);
    std::vector<size_t> found;
    auto wait_with = [&](auto host) { return wait_for_any(all.size(), deadline, found, host); };
    Outcome how = wait && wait->stop
                      ? wait_with(SubscribersHost<StoppableHost>(all, wait->stop->source.get_token()))
                      : wait_with(SubscribersHost<PlainHost>(all));
    for (size_t index : found) ready[index] = 1;
    if (how == Outcome::ready) return RINGMAIN_OK;
    std::string topics;
    for (const ringmain_subscriber* each : all)
        topics += (topics.empty() ? "'" : ", '") + each->end.topic + "'";
    if (how == Outcome::stopped)
        return fail(RINGMAIN_STOPPED, "the wait for a message on one of " + topics + " was stopped");
    if (how == Outcome::corrupt || how == Outcome::taken_over)
        return fail(how == Outcome::corrupt ? RINGMAIN_CORRUPT : RINGMAIN_TAKEN_OVER,
                    "the wait ended, because of one of " + topics + ": receive from each to learn which");
    return deadline.timeout_ns() == 0
               ? RINGMAIN_EMPTY
               : fail(RINGMAIN_TIMEOUT, "no message on any of " + topics + within(deadline));
}

}  // namespace

extern "C" {

RINGMAIN_API ringmain_status ringmain_wait_any(ringmain_subscriber* const* subscribers, size_t count,
                                               const ringmain_wait* wait, uint8_t* ready) {
    std::fill(ready, ready + count, uint8_t{0});
    return guarded([&] { return wait_any({subscribers, count}, wait, ready); });
}
}
