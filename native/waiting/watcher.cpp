#include "waiting/watcher.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/room.hpp"
#include "topic/topic_file.hpp"

namespace ringmain {

// ------------------------------------------------------------------------------------------------- events

struct Events {
    std::mutex mutex;
    Event* first = nullptr;

    Events() {
        // Made by the first Event, so there is none yet if this throws.
        pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                       [] {
                           for (Event* event = all().first; event; event = event->next_) event->renew();
                           all().mutex.unlock();
                       });
    }
    static Events& all() {
        static Events* events = new Events;  // never destroyed: a fork may come at any time
        return *events;
    }
    void add(Event* event) {
        std::lock_guard lock(mutex);
        event->next_ = first;
        if (first) first->previous_ = event;
        first = event;
    }
    void remove(Event* event) {
        std::lock_guard lock(mutex);
        if (event->previous_) event->previous_->next_ = event->next_;
        if (event->next_) event->next_->previous_ = event->previous_;
        if (first == event) first = event->next_;
    }
};

Event::Event() : rang_(std::make_unique<Rang>()), fd_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
    if (fd_.fd < 0) throw refused("cannot make an eventfd to wait with", errno);
    Events::all().add(this);
}

Event::~Event() { Events::all().remove(this); }

// In a forked child. A thread of the parent may have been inside the old list, so it is abandoned, not freed.
void Event::renew() {
    (void)rang_.release();
    rang_ = std::make_unique<Rang>();
    ::close(fd_.fd);  // first: a process at its limit of descriptors gets this very number again
    int own = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    if (own < 0 || own == fd_.fd) return;
    dup3(own, fd_.fd, O_CLOEXEC);
    ::close(own);
}

void Event::await_one() {
    std::lock_guard lock(rang_->mutex);
    make_room(rang_->tokens, rang_->awaited + 1);
    ++rang_->awaited;
}

void Event::await_one_less() {
    std::lock_guard lock(rang_->mutex);
    --rang_->awaited;
}

void Event::ring() {
    uint64_t one = 1;
    (void)!write(fd_.fd, &one, sizeof one);
}

void Event::ring(uint64_t token) {
    std::lock_guard lock(rang_->mutex);
    rang_->tokens.push_back(token);
    --rang_->awaited;
    ring();
}

std::vector<uint64_t> Event::tokens() {
    std::lock_guard lock(rang_->mutex);
    return rang_->tokens;
}

void Event::forget(size_t count) {
    std::lock_guard lock(rang_->mutex);
    std::vector<uint64_t>& tokens = rang_->tokens;
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count));
    if (tokens.empty()) forget_all();
}

void Event::forget_all() {
    rang_->tokens.clear();
    uint64_t rings;
    (void)!read(fd_.fd, &rings, sizeof rings);
}

void Event::silence() {
    std::lock_guard lock(rang_->mutex);
    forget_all();
}

// ----------------------------------------------------------------------------------------------- watchers

namespace {

struct Watched : Watch {
    uint64_t token;
    int64_t look_at_ns;  // when to ask whether it is over
    bool over = false;
    std::unique_ptr<DeathWatch> deaths;  // of a sleep that was not brief

    Watched(Watch watch, uint64_t token, int64_t now_ns) : Watch(std::move(watch)), token(token) {
        if (!bell.word && look_every_ns == 0) look_every_ns = kSlice_ns;
        look_at_ns = now_ns + (look_every_ns ? look_every_ns : kBriefSleep_ns);
    }

    void look() {
        if (look_every_ns) {
            look_at_ns = monotonic_ns() + look_every_ns;
            over = awaiting.is_over();
            return;
        }
        try {
            if (!deaths)
                deaths = std::make_unique<DeathWatch>(awaiting);  // a copy: if there is no memory, it stays
        } catch (const std::bad_alloc&) {
            look_at_ns = monotonic_ns() + kSlice_ns;
            over = awaiting.is_over();
            return;
        }
        look_at_ns = deaths->on() ? kForever : monotonic_ns() + kSlice_ns;
        over = deaths->over();
    }
};

// A thread and the bells it sleeps on. Its own word is one of them, to wake it when the list changes.
class Watcher {
    std::mutex mutex_;
    std::vector<Watched> watches_;
    std::vector<Bell> bells_;  // the thread's own
    Word<uint32_t> changed_{};

    static bool moved(const Bell& bell) {
        return bell.word && __atomic_load_n(bell.word, __ATOMIC_ACQUIRE) != bell.value;
    }

    [[noreturn]] void run() {
        for (std::vector<Bell>& bells = bells_;;) {
            bells.assign(1, {changed_.futex(), changed_.load(std::memory_order_acquire)});
            int64_t look_at_ns = kForever;
            {
                std::lock_guard lock(mutex_);
                for (const Watched& w : watches_) {
                    if (w.bell.word) bells.push_back(w.bell);
                    look_at_ns = std::min(look_at_ns, w.look_at_ns);
                }
            }
            int64_t left_ns = std::clamp<int64_t>(look_at_ns - monotonic_ns(), 0, kLongestSleep_ns);
            size_t woken = SIZE_MAX;
            sleep_on_any(bells.data(), bells.size(), left_ns, &woken);
            int64_t now_ns = monotonic_ns();
            std::lock_guard lock(mutex_);
            for (Watched& w : watches_)
                if (now_ns >= w.look_at_ns) w.look();
            end_if([&](const Watched& w) {
                return w.over || moved(w.bell) ||
                       (woken < bells.size() && woken > 0 && bells[woken].word == w.bell.word);
            });
        }
    }

    template <class Ended>
    bool end_if(Ended ended) {
        return std::erase_if(watches_, [&](const Watched& w) {
                   bool over = ended(w);
                   if (over) w.event->ring(w.token);
                   return over;
               }) > 0;
    }

  public:
    static constexpr size_t kMaxWatches = kMaxBells - 1;

    void wake_thread() {
        changed_.fetch_add(1, std::memory_order_release);
        wake(changed_.futex());
    }

    // With all signals blocked: they are for the program's own threads, whose waits they interrupt.
    Watcher() {
        bells_.reserve(kMaxBells);  // with which the thread needs no memory
        sigset_t every, before;
        sigfillset(&every);
        pthread_sigmask(SIG_SETMASK, &every, &before);
        struct Restore {
            sigset_t& mask;
            ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
        } restore{before};
        std::thread([this] { run(); }).detach();
    }

    // Takes it, unless there is no room. wake_thread() must follow.
    bool add(Watched& watch) {
        std::lock_guard lock(mutex_);
        if (watches_.size() >= kMaxWatches) return false;
        make_room(watches_);
        watch.event->await_one();
        watches_.push_back(std::move(watch));
        return true;
    }
    bool remove(uint64_t token) {
        std::lock_guard lock(mutex_);
        return std::erase_if(watches_, [&](const Watched& w) {
                   bool found = w.token == token;
                   if (found) w.event->await_one_less();
                   return found;
               }) > 0;
    }
    void end_of(const void* owner) {
        std::lock_guard lock(mutex_);
        if (end_if([&](const Watched& w) { return w.owner == owner; })) wake_thread();
    }
};

// All watchers of the process. Threads do not survive a fork, so a child begins with none. It never touches those of its
// parent again, since a lock in them may have been held.
struct Watchers {
    std::mutex mutex;
    std::vector<Watcher*> list;

    static Watchers*& current() {
        static Watchers* watchers = [] {
            auto first = std::make_unique<Watchers>();
            pthread_atfork(nullptr, nullptr, [] { current() = new Watchers; });
            return first.release();
        }();
        return watchers;
    }
};

// A child goes on counting: the tokens that its endpoints have from the parent must not mean other watches.
std::atomic<uint64_t> next_token{1};
// relaxed: its own thread has seen that it began to watch. What ends watches then needs no memory.
bool none_watched() { return next_token.load(std::memory_order_relaxed) == 1; }

}  // namespace

// The watcher that took it, and has yet to be woken.
static Watcher& assign(Watchers& all, Watched& watched) {
    for (Watcher* watcher : all.list)
        if (watcher->add(watched)) return *watcher;
    try {
        make_room(all.list);
        all.list.push_back(new Watcher);
    } catch (const std::system_error& error) {
        throw Failure{Fault::system,
                      std::string("no thread can be started to wait for messages (asyncio and fileno() need "
                                  "one): ") +
                          error.what() + "; raise the limit of threads (ulimit -u, pids.max), or use recv()",
                      error.code().value()};
    }
    all.list.back()->add(watched);
    return *all.list.back();
}

uint64_t watch(Watch watch) {
    Watchers& all = *Watchers::current();
    std::lock_guard lock(all.mutex);
    uint64_t token = next_token.fetch_add(1, std::memory_order_relaxed);
    Watched watched(std::move(watch), token, monotonic_ns());
    assign(all, watched).wake_thread();
    return token;
}

void watch_all(const std::vector<Watch>& watches) {
    Watchers& all = *Watchers::current();
    std::lock_guard lock(all.mutex);
    std::set<Watcher*> changed;
    int64_t now_ns =
        monotonic_ns();  // of all of them, so that their thread wakes once for all of their looks
    for (const Watch& watch : watches) {
        Watched watched(watch, next_token.fetch_add(1, std::memory_order_relaxed), now_ns);
        changed.insert(&assign(all, watched));
    }
    for (Watcher* watcher : changed) watcher->wake_thread();
}

void unwatch(uint64_t token) {
    if (token == 0 || none_watched()) return;
    Watchers& all = *Watchers::current();
    std::lock_guard lock(all.mutex);
    for (Watcher* watcher : all.list)
        if (watcher->remove(token)) return;
}

void end_watches(const void* owner) {
    if (none_watched()) return;
    Watchers& all = *Watchers::current();
    std::lock_guard lock(all.mutex);
    for (Watcher* watcher : all.list) watcher->end_of(owner);
}

}  // namespace ringmain
