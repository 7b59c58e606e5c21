#include "waiting/wait_for_any.hpp"

#include <poll.h>

#include <algorithm>

#include "waiting/watcher.hpp"

namespace ringmain {

namespace {

constexpr int kPolls = 16;  // before threads are asked to watch

// Together, as one of them is to a sleep on one bell.
struct DeathWatches {
    std::vector<std::unique_ptr<DeathWatch>> each;

    bool over() const {
        return std::ranges::any_of(each, [](const auto& deaths) { return deaths->over(); });
    }
    int64_t slice_ns() const {
        int64_t least_ns = kForever;
        for (const auto& deaths : each) least_ns = std::min(least_ns, deaths->slice_ns());
        return least_ns;
    }
};

Woken sleep_on_event(const Event& event, int64_t timeout_ns) {
    pollfd ready{event.fd(), POLLIN, 0};
    timespec timeout = to_timespec(timeout_ns);
    int count = ppoll(&ready, 1, &timeout, nullptr);
    return count == 0 ? Woken::timed_out : count > 0 ? Woken::changed : Woken::interrupted;
}

}  // namespace

template <class Make>
void SleepForAny::add(Bell bell, Make awaiting) {
    bells_.push_back(bell);
    if (watched_) awaiting_.push_back(awaiting());
}

void SleepForAny::make_barrier() {
    if (process_barrier::make()) return;
    polls_ = true;
    for (Bell& bell : bells_) bell.always_wakes = false;
}

void SleepForAny::add(size_t index, const BlockingReader& reader, const Awaited& awaited) {
    polls_ |= reader.must_poll(awaited.bell);
    if (!awaited.bell.word) return;
    readers_.push_back({index, awaited.bell.word, awaited.mapped});
    if (!reader.attached()) {
        missing_->emplace_back(reader.directory, reader.topic);
        add(reader.directory, awaited.bell);
        return;
    }
    const TopicFile& file = reader.topic_file();
    if (lives_.insert({file.inode, file.epoch, reader.work != nullptr}).second)
        add(awaited.bell, [&] { return reader.awaiting(awaited.bell.word); });
}

void SleepForAny::add(const std::shared_ptr<Directory>& directory, Bell bell) {
    if (!bell.word || !lives_.insert({directory->inode(), 0, false}).second) return;
    auto over = [directory, missing = missing_] {
        return directory->replaced() ||
               std::ranges::any_of(*missing, [](const auto& each) { return each.first->has(each.second); });
    };
    add(bell, [&] { return Awaiting{bell.word, {}, over}; });
}

Woken SleepForAny::sleep_on_all(int64_t timeout_ns) const {
    if (bells_.empty()) return sleep({}, timeout_ns);
    return sleep_on_any(bells_.data(), std::min(bells_.size(), kMaxBells), timeout_ns);
}

// More bells than the kernel takes in one call: threads watch them, each as many as it takes. Empty: no thread or no memory is
// to be had.
std::shared_ptr<Event> SleepForAny::watched() const try {
    auto event = std::make_shared<Event>();
    std::vector<Watch> watches;
    for (size_t i = 0; i < bells_.size(); ++i) watches.push_back({bells_[i], event, awaiting_[i], this});
    watch_all(watches);
    return event;
} catch (const Failure&) {
    end_watches(this);
    return {};
} catch (const std::bad_alloc&) {
    end_watches(this);
    return {};
}

Woken SleepForAny::watched_by_threads(Deadline& deadline, int& polls) const {
    std::shared_ptr<Event> event = polls++ < kPolls ? nullptr : watched();
    if (!event) return sleep_on_all(std::min(kPoll_ns, deadline.left_ns()));
    Woken how = sleep_on_event(*event, std::min(polls_ ? kSlice_ns : kLongestSlice_ns, deadline.left_ns()));
    end_watches(this);
    return how;
}

Woken SleepForAny::once(Deadline& deadline, SleepsSoFar& before) const {
    if (bells_.size() > kMaxBells) return watched_by_threads(deadline, before.polls);
    auto sleep = [this](int64_t timeout_ns) { return sleep_on_all(timeout_ns); };
    if (polls_) return sleep(std::min(kSlice_ns, deadline.left_ns()));
    if (!watched_) {
        before.briefly = false;  // another sleep of this wait watches
        return sleep(std::min(kBriefSleep_ns, deadline.left_ns()));
    }
    auto watch = [this] {
        DeathWatches deaths;
        for (const Awaiting& each : awaiting_) deaths.each.push_back(std::make_unique<DeathWatch>(each));
        return deaths;
    };
    return sleep_watched(deadline, before.briefly, watch, sleep);
}

}  // namespace ringmain
