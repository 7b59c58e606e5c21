#include "waiting/death_watch.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "topic/process.hpp"
#include "topic/roster.hpp"

namespace ringmain {

namespace {

constexpr int64_t kTick_ns = kLongestSlice_ns;  // how often the thread looks while all processes are watched
constexpr int64_t kBlindTick_ns = 20'000'000;   // and while one is not
constexpr size_t kMostProcesses = 128;          // a descriptor each, and programs have 1,024 by default

std::atomic<uint32_t> times_found{0};

// A process that may have to ring.
struct Process {
    uint32_t pid;
    uint64_t started_ticks;
    int fd;  // -1: it has died
    int users =
        0;  // sleeps that are listed. Without any, it is kept until the next tick: the next sleep is like this one
};

int open_pidfd(uint32_t pid) {
    constexpr long kPidfdOpen = 434;  // the same number on x86_64 and aarch64; sets FD_CLOEXEC
    return static_cast<int>(syscall(kPidfdOpen, static_cast<pid_t>(pid), 0));
}

// This process may have closed descriptors that are not its own, and the number may stand for another file.
void close_if_kind(int fd, std::string_view kind) {
    char self[32], link[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d",
             fd);  // no string: a child that was forked has no way to throw
    ssize_t size = readlink(self, link, sizeof link);
    if (size > 0 && std::string_view(link, static_cast<size_t>(size)).find(kind) != std::string_view::npos)
        ::close(fd);
}

}  // namespace

bool Awaiting::is_over() const {
    try {
        return over();
    } catch (const Failure&) {
        return true;
    } catch (const std::exception&) {
        return true;
    }
}

struct DeathWatch::Listed {
    Awaiting awaiting;
    std::vector<Process*> processes;
    bool blind = false;  // not all processes are watched
};

// The thread, and what it shares with the sleepers, under the mutex. Threads do not survive a fork, so a child begins anew.
struct DeathWatch::Thread {
    std::mutex mutex;
    std::set<Listed*> sleeps;
    std::map<std::pair<uint32_t, uint64_t>, Process> processes;  // by pid and start
    int epoll = -1, nudge = -1;                                  // -1: there is no thread
    int64_t tick_ns = kForever;  // how long the thread sleeps at most; kForever: nothing is listed
    bool nudged = false;         // it will plan anew: many that are listed together wake it once

    static Thread*& current() {
        static Thread* thread = [] {
            auto first = std::make_unique<Thread>();
            pthread_atfork([] { current()->mutex.lock(); }, [] { current()->mutex.unlock(); },
                           [] {
                               current()->close_all();
                               current() = new Thread;  // the old one is abandoned, not freed
                           });
            return first.release();
        }();
        return thread;
    }

    // In a forked child. It shares the epoll instance with its parent, so it takes nothing off that.
    void close_all() const {
        for (const auto& [key, process] : processes) close_if_kind(process.fd, "pidfd");
        close_if_kind(epoll, "eventpoll");
        close_if_kind(nudge, "eventfd");
    }

    // False: no thread or no descriptor is to be had.
    bool start() {
        if (epoll >= 0) return true;
        int poller = epoll_create1(EPOLL_CLOEXEC), waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        epoll_event woken{.events = EPOLLIN, .data = {.u64 = 0}};
        bool started = poller >= 0 && waker >= 0 && epoll_ctl(poller, EPOLL_CTL_ADD, waker, &woken) == 0;
        if (started) {
            epoll = poller;
            nudge = waker;
            // With all signals blocked: they are for the program's own threads, whose waits they interrupt.
            sigset_t every, before;
            sigfillset(&every);
            pthread_sigmask(SIG_SETMASK, &every, &before);
            try {
                std::thread([this] { run(); }).detach();
            } catch (const std::exception&) {  // no thread, or no memory for one
                started = false;
            }
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
        }
        if (started) return true;
        epoll = nudge = -1;
        for (int fd : {poller, waker})
            if (fd >= 0) ::close(fd);
        return false;
    }

    // nullptr: it has died, or a process that has nothing to do with the topic has its pid now. `blind`: it cannot be known.
    Process* watch(uint32_t pid, uint64_t started_ticks, bool& blind) {
        auto known = processes.find({pid, started_ticks});
        if (known != processes.end()) return known->second.fd < 0 ? nullptr : &known->second;
        if (processes.size() >= kMostProcesses) return blind = true, nullptr;
        FileDescriptor own{open_pidfd(pid)};
        if (own.fd < 0) return blind = errno != ESRCH, nullptr;
        // Asked after the descriptor was opened: from then on the number stands for no other process.
        uint64_t started_now = process::start_ticks(std::to_string(pid));
        blind = started_now == 0 || started_now == started_ticks;
        if (started_now != started_ticks) return nullptr;
        Process& process = processes[{pid, started_ticks}] = {pid, started_ticks, own.fd};
        epoll_event died{.events = EPOLLIN, .data = {.u64 = pid}};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, own.fd, &died) == 0) {
            own.release();
            blind = false;
            return &process;
        }
        processes.erase({pid, started_ticks});
        return nullptr;
    }

    // The descriptor is closed only if it is still the one that is watched: see close_if_kind.
    void stop_watching(Process& process) {
        int fd = std::exchange(process.fd, -1);
        if (fd >= 0 && epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr) == 0) ::close(fd);
    }

    void list_processes(Listed& sleep) {
        const TopicFile& file = *sleep.awaiting.file;
        bool all = traits(file.contract).shared;  // any worker may die with a message
        const ProcessIdentity& us = this_process();
        for (uint32_t index : taken_slots(file)) {
            if (index == file.own_slot || (!all && !slot_has_role(file, index, Role::writer))) continue;
            ParticipantInfo who = look_at(file, index, true);
            if (who.same_namespace && who.pid == us.pid && who.started_ticks == us.started_ticks) continue;
            bool blind = !who.same_namespace || who.started_ticks == 0;
            Process* process = blind ? nullptr : watch(who.pid, who.started_ticks, blind);
            if (process && std::ranges::find(sleep.processes, process) == sleep.processes.end()) {
                sleep.processes.push_back(process);
                ++process->users;
            }
            sleep.blind |= blind && slot_alive(file, index);
        }
    }

    void died(uint32_t pid) {
        for (auto at = processes.lower_bound({pid, 0}); at != processes.end() && at->first.first == pid; ++at)
            stop_watching(at->second);
    }

    bool add(Listed& sleep) {
        std::lock_guard lock(mutex);
        if (!start()) return false;
        try {
            sleeps.insert(&sleep);
        } catch (const std::bad_alloc&) {
            return false;
        }
        try {
            if (sleep.awaiting.file) list_processes(sleep);
        } catch (const std::exception&) {
            sleep.blind = true;  // for want of memory not all are watched
        }
        if (!nudged && tick_ns > (sleep.blind ? kBlindTick_ns : kTick_ns)) {
            uint64_t one = 1;
            nudged = write(nudge, &one, sizeof one) == sizeof one;
        }
        return true;
    }

    void remove(Listed& sleep) {
        std::lock_guard lock(mutex);
        for (Process* process : sleep.processes) --process->users;
        sleeps.erase(&sleep);
    }

    // Without a descriptor to wait on, because this process has closed it, all are blind.
    [[noreturn]] void run() {
        int64_t tick_at_ns = monotonic_ns() + kTick_ns;
        for (bool lost = false;;) {
            int64_t left_ns = plan(lost, tick_at_ns);
            epoll_event events[16];
            int count =
                epoll_wait(epoll, events, std::size(events),
                           left_ns == kForever ? -1 : static_cast<int>((left_ns + 999'999) / 1'000'000));
            lost |= count < 0 && errno != EINTR;
            if (lost) usleep(kBlindTick_ns / 1000);
            std::lock_guard lock(mutex);
            for (int i = 0; i < count; ++i)
                events[i].data.u64 == 0 ? clear_nudge() : died(static_cast<uint32_t>(events[i].data.u64));
            bool tick = monotonic_ns() >= tick_at_ns;
            for (Listed* sleep : sleeps)
                if (lost_one(*sleep) || tick || lost || sleep->blind) ring_if_over(*sleep);
            if (!tick) continue;
            tick_at_ns = monotonic_ns() + kTick_ns;
            forget_unused();
        }
    }

    int64_t plan(bool lost, int64_t& tick_at_ns) {
        std::lock_guard lock(mutex);
        nudged = false;
        int64_t now_ns = monotonic_ns();
        bool idle = sleeps.empty() && processes.empty();
        if (tick_ns == kForever) tick_at_ns = now_ns + kTick_ns;  // it was idle
        bool blind = lost || std::ranges::any_of(sleeps, [](const Listed* sleep) { return sleep->blind; });
        tick_ns = idle ? kForever : blind ? kBlindTick_ns : kTick_ns;
        return idle ? kForever : std::clamp<int64_t>(tick_at_ns - now_ns, 0, tick_ns);
    }

    void clear_nudge() const {
        uint64_t count;
        (void)!read(nudge, &count, sizeof count);
    }

    static bool lost_one(Listed& sleep) {
        return std::erase_if(sleep.processes, [](Process* process) {
                   bool dead = process->fd < 0;
                   process->users -= dead;
                   return dead;
               }) > 0;
    }

    static void ring_if_over(const Listed& sleep) {
        if (!sleep.awaiting.is_over()) return;
        // relaxed: those that it wakes see it, since the kernel wakes them afterwards.
        times_found.fetch_add(1, std::memory_order_relaxed);
        change_and_wake(sleep.awaiting.word);
    }

    void forget_unused() {
        for (auto at = processes.begin(); at != processes.end();) {
            auto here = at++;
            if (here->second.users > 0) continue;
            stop_watching(here->second);
            processes.erase(here);
        }
    }
};

DeathWatch::DeathWatch(Awaiting awaiting)
    : listed_(new Listed{std::move(awaiting)}), on_(Thread::current()->add(*listed_)) {}

DeathWatch::~DeathWatch() {
    if (on_) Thread::current()->remove(*listed_);
}

bool DeathWatch::over() const {
    if (!listed_->awaiting.is_over()) return false;
    times_found.fetch_add(1, std::memory_order_relaxed);  // relaxed: for this thread, or as above
    return true;
}

int64_t DeathWatch::slice_ns() const {
    if (!on_) return kSlice_ns;
    return syscall(SYS_gettid) == getpid() ? kTick_ns : kLongestSleep_ns;
}

uint32_t found_over() {
    return times_found.load(std::memory_order_relaxed);  // relaxed: see where it is counted
}

}  // namespace ringmain
