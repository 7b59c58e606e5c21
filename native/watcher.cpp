#include "watcher.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "failure.hpp"

namespace ringmain {

Event::Event() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) throw Failure{Fault::system, "cannot make an eventfd", errno};
}

Event::~Event() { ::close(fd_); }

void Event::ring(uint64_t token) {
    std::lock_guard lock(mutex_);
    rang_.push_back(token);
    uint64_t one = 1;
    (void)!write(fd_, &one, sizeof one);
}

std::vector<uint64_t> Event::take() {
    std::lock_guard lock(mutex_);
    uint64_t count;
    (void)!read(fd_, &count, sizeof count);
    return std::exchange(rang_, {});
}

namespace {

// A thread and the bells it sleeps on. Its own word is one of them, to wake it when the list changes.
class Watcher {
    std::mutex mutex_;
    std::vector<Watch> watches_;
    Word<uint32_t> changed_{};

    void wake_thread() {
        changed_.fetch_add(1, std::memory_order_release);
        wake(changed_.futex());
    }

    static bool moved(const Bell& bell) { return __atomic_load_n(bell.word, __ATOMIC_ACQUIRE) != bell.value; }

    [[noreturn]] void run() {
        std::vector<Bell> bells;
        for (;;) {
            bells.assign(1, {changed_.futex(), changed_.load(std::memory_order_acquire)});
            {
                std::lock_guard lock(mutex_);
                for (const Watch& w : watches_) bells.push_back(w.bell);
            }
            int64_t limit_ns = bells.size() == 1 ? 3'600'000'000'000 : kSlice_ns;
            size_t woken = SIZE_MAX;
            Woken how = sleep_on_any(bells.data(), bells.size(), limit_ns, &woken);
            std::lock_guard lock(mutex_);
            std::erase_if(watches_, [&](const Watch& w) {
                bool rang = moved(w.bell) || (how == Woken::timed_out && w.every_slice) ||
                            (woken < bells.size() && woken > 0 && bells[woken].word == w.bell.word);
                if (rang) w.event->ring(w.token);
                return rang;
            });
        }
    }

  public:
    static constexpr size_t kMaxWatches = kMaxBells - 1;

    Watcher() {
        std::thread([this] { run(); }).detach();
    }

    bool add(Watch watch) {
        std::lock_guard lock(mutex_);
        if (watches_.size() >= kMaxWatches) return false;
        watches_.push_back(std::move(watch));
        wake_thread();
        return true;
    }
    bool remove(uint64_t token) {
        std::lock_guard lock(mutex_);
        return std::erase_if(watches_, [&](const Watch& w) { return w.token == token; }) > 0;
    }
};

// All watchers of the process. Threads do not survive a fork, so a child begins with none. It never touches those of its
// parent again, since a lock in them may have been held.
struct Watchers {
    std::mutex mutex;
    std::vector<Watcher*> list;
    uint64_t next_token = 1;

    static Watchers*& current() {
        static Watchers* watchers = [] {
            pthread_atfork(nullptr, nullptr, [] { current() = new Watchers; });
            return new Watchers;
        }();
        return watchers;
    }
};

}  // namespace

uint64_t watch(Bell bell, std::shared_ptr<Event> event, std::shared_ptr<const void> keep, bool every_slice) {
    Watchers& all = *Watchers::current();
    std::lock_guard lock(all.mutex);
    uint64_t token = all.next_token++;
    Watch watch{token, bell, std::move(event), std::move(keep), every_slice};
    for (Watcher* watcher : all.list)
        if (watcher->add(watch)) return token;
    all.list.push_back(new Watcher);
    all.list.back()->add(watch);
    return token;
}

void unwatch(uint64_t token) {
    Watchers& all = *Watchers::current();
    std::lock_guard lock(all.mutex);
    for (Watcher* watcher : all.list)
        if (watcher->remove(token)) return;
}

}  // namespace ringmain
