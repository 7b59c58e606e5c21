// The model of the kernel: locks that are dropped when their owner dies, futexes, and the process-wide barrier. roster.cpp
// is compiled with its system calls renamed to these, so that the explored file is the shipped one.
//
// The kernel synchronises: an actor that gets a lock, or finds that its owner is dead, knows all that the owner did. A wait on a
// futex compares and sleeps in one step. A wake-up carries no knowledge.
#include <fcntl.h>
#include <linux/futex.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <ctime>
#include <span>

#include "base/bell.hpp"
#include "explore/model.hpp"
#include "format/layout.hpp"

namespace ringmain::explore {

namespace {

constexpr size_t kMostBells = 3, kMostListed = 3;
constexpr int kMaxExpiries = 8;  // of slices with nothing else happening: then an actor waits forever

struct Lock {
    int owner = kNoActor;
    Knowledge left;  // what its past owners knew
};

struct Sleeper {
    Bell bells[kMostBells];
    size_t bell_count = 0;  // 0: waits for the end
    Woken how{};
    size_t watches = 0;  // napping: the location whose change it waits for
    size_t wants = 0;    // blocked: the lock
    bool until_death = false;
    Awaits awaited[kMostBells];                           // has any of it come?
    const std::function<bool()>* over[kMostListed] = {};  // its sleep is listed, to be asked after a death
    bool asks = false;                                    // an actor has died since

    bool sleeps_on(const void* word) const {
        return std::any_of(bells, bells + bell_count, [&](const Bell& bell) { return bell.word == word; });
    }
    bool changed() const {
        return std::any_of(bells, bells + bell_count, [](const Bell& bell) {
            return static_cast<uint32_t>(latest(bell.word, 4)) != bell.value;
        });
    }
    bool listed() const {
        return std::any_of(over, over + kMostListed, [](auto* each) { return each != nullptr; });
    }
    bool is_over() const {
        return std::any_of(over, over + kMostListed, [](auto* each) { return each && (*each)(); });
    }
};

constexpr size_t kLocks = 1 + kSlots;  // of a file: the roster's, and one for each slot
Lock locks[2 * kFiles * kLocks];       // of each topic, then of its waiting file
uint8_t touched[2 * kFiles * kLocks];  // for the whole case: by which actors, as a bit set
Sleeper sleepers[kMaxActors];
int looks_of[kMaxActors];  // since the actor last slept
uint32_t found_over_by[kMaxActors];
bool names_change;  // for the whole case: a topic is given its name, or loses it
int named_file[kTopics];
int files_made;
Knowledge named_by;             // what those who changed a name knew
Knowledge left_by_dead;         // what they knew
constexpr int kMostLooks = 12;  // more than others can change words in a case
int expiries;
int slices_left;  // that may end although no wake-up was lost

size_t lock_index(int descriptor, int64_t byte) {
    auto file = static_cast<size_t>(descriptor / kPerFile);
    size_t first = (2 * file + (descriptor & kWaitingFile ? 1 : 0)) * kLocks;
    if (byte == kRosterLockByte) return first;
    return first + 1 + static_cast<size_t>(byte - static_cast<int64_t>(kRosterOffset)) / sizeof(Slot);
}

// A step of the kernel that others can notice, and that orders what came before it.
void about_to_change_names() {
    if (self() == kNoActor) return;
    if (!names_change) {
        names_change = true;
        start_again();
    }
    reach();
    dies_here();
    count_step();
    learn(self(), named_by);
    named_by.join(pass_on(self()));
}

void let_go(Lock& lock) {
    lock.owner = kNoActor;
    for (int i = 0; i < actor_count(); ++i)
        if (life(i) == Life::blocked && &locks[sleepers[i].wants] == &lock) unblock(i);
}

bool is_work_bell(const void* word) {
    return word != directory_bell() && offset_in_file(word) == offsetof(Header, work_bell);
}

bool missed(const Sleeper& s) {
    // A call wakes one worker of several: the others have missed something only if there is work for them.
    auto bell_missed = [](const Bell& bell) {
        return is_work_bell(bell.word) ? work_waits(file_at(bell.word))
                                       : static_cast<uint32_t>(latest(bell.word, 4)) != bell.value;
    };
    auto came = [](const Awaits& what) { return what.came && what.came(what.of, what.value); };
    return std::any_of(s.bells, s.bells + s.bell_count, bell_missed) ||
           (s.bell_count != 0 && std::ranges::any_of(s.awaited, came));
}

// Is it one that must be armed while an actor sleeps on it?
bool is_bell(const void* word) {
    size_t offset = offset_in_file(word);
    if (offset < kRosterOffset) return offset == offsetof(Header, bell);
    return offset < schema_offset(kDefaultSlotCount) &&
           (offset - kRosterOffset) % sizeof(Slot) == offsetof(Slot, awaited);
}

std::string names_of(const Sleeper& s) {
    std::string text;
    for (size_t i = 0; i < s.bell_count; ++i) text += (i ? ", " : "") + name_of(s.bells[i].word);
    return text;
}

std::string who_waits() {
    std::string text;
    for (int i = 0; i < actor_count(); ++i)
        if (life(i) == Life::asleep && sleepers[i].bell_count != 0)
            text += " actor " + std::to_string(i) + " sleeps on " + names_of(sleepers[i]) + ";";
        else if (life(i) != Life::done && life(i) != Life::dead)
            text += " actor " + std::to_string(i) + " waits;";
    return text;
}

int get_or_set_lock(int descriptor, int command, struct flock* request) {
    int fd = descriptor % kWaitingFile;
    size_t index = lock_index(descriptor, request->l_start);
    Lock& lock = locks[index];
    bool setup = self() == kNoActor;
    // The owner touches its lock even if it does nothing more: it may die.
    auto touches = static_cast<uint8_t>(1u << fd);
    bool surprise = !(touched[index] & touches);
    touched[index] |= touches;
    if (!setup) {
        if (surprise) start_again();
        for (int i = 0; i < actor_count(); ++i)
            if (i != fd && (touched[index] >> i & 1) && life(i) != Life::done && life(i) != Life::dead) {
                reach();
                break;
            }
        count_step();
    }
    if (command == F_OFD_GETLK) {
        bool taken = lock.owner != kNoActor;  // also by another description of the actor itself
        request->l_type = taken ? F_WRLCK : F_UNLCK;
        if (!setup && !taken) learn(self(), lock.left);
        if (!setup) observe(taken);
        if (tracing()) record("lives? lock " + std::to_string(index) + (taken ? " taken" : " free"));
        return 0;
    }
    dies_here();
    if (request->l_type == F_UNLCK) {
        if (tracing()) record("unlock " + std::to_string(index));
        if (!setup) observe(2);
        if (lock.owner != fd) return 0;
        if (!setup) lock.left.join(pass_on(self()));
        let_go(lock);
        return 0;
    }
    // The roster lock is tried again and again, with a time limit that no honest holder exceeds: here it is waited for.
    while (index % kLocks == 0 && lock.owner != kNoActor && lock.owner != fd) {
        sleepers[self()].wants = index;
        block(Life::blocked);
    }
    bool taken = lock.owner != kNoActor && lock.owner != fd;
    if (!taken) lock.owner = fd;
    if (!taken && !setup) learn(self(), lock.left);
    if (!setup) observe(taken);
    if (tracing()) record("lock " + std::to_string(index) + (taken ? " refused" : ""));
    errno = EAGAIN;
    return taken ? -1 : 0;
}

}  // namespace

void kernel_forget() {
    for (uint8_t& by : touched) by = 0;
    names_change = false;
}

void kernel_reset() {
    for (Lock& lock : locks) lock = {};
    for (Sleeper& s : sleepers) s = {};
    for (int& looks : looks_of) looks = 0;
    for (uint32_t& found : found_over_by) found = 0;
    named_by = left_by_dead = {};
    expiries = 0;
    slices_left = slices();
}

uint64_t kernel_hash() {
    uint64_t hash = static_cast<uint64_t>(expiries + 16 * slices_left);
    if (deaths_so_far() > 0) hash = mix(hash, hash_ahead(left_by_dead));
    if (names_change) {
        for (int file : named_file) hash = mix(hash, static_cast<uint64_t>(file));
        hash = mix(hash, mix(static_cast<uint64_t>(files_made), hash_ahead(named_by)));
    }
    for (size_t i = 0; i < std::size(locks); ++i)
        if (touched[i])
            hash = mix(hash, mix(static_cast<uint64_t>(locks[i].owner), hash_ahead(locks[i].left)));
    for (int i = 0; i < actor_count(); ++i) {
        const Sleeper& s = sleepers[i];  // also of one that was woken and does not know it yet
        for (size_t b = 0; b < s.bell_count; ++b)
            hash = mix(hash, mix(reinterpret_cast<uint64_t>(s.bells[b].word), s.bells[b].value));
        hash = mix(hash, 16 * s.asks + 8 * s.listed() + static_cast<uint64_t>(s.how));
    }
    return hash;
}

void kernel_reaps(int actor) {
    left_by_dead.join(pass_on(actor));
    for (Lock& lock : locks) {
        if (lock.owner != actor) continue;
        lock.left.join(pass_on(actor));
        let_go(lock);
    }
    for (int i = 0; i < actor_count(); ++i) {
        if (life(i) == Life::napping || (life(i) == Life::asleep && sleepers[i].until_death)) unblock(i);
        sleepers[i].asks |= sleepers[i].listed();
    }
}

void kernel_notices(size_t where) {
    for (int i = 0; i < actor_count(); ++i)
        if (life(i) == Life::napping && sleepers[i].watches == where && look_again(i, where)) unblock(i);
}

bool kernel_is_quiet() {
    bool any_waits = false, only_legitimate = true, any_missed = false, any_asks = false;
    for (int i = 0; i < actor_count(); ++i) {
        if (life(i) == Life::done || life(i) == Life::dead) continue;
        any_waits = true;
        const Sleeper& s = sleepers[i];
        if (life(i) != Life::asleep) only_legitimate = false;
        if (life(i) == Life::asleep && missed(s)) any_missed = true;
        for (const Bell& bell : std::span(s.bells, s.bell_count)) {
            bool of_messages = offset_in_file(bell.word) == offsetof(Header, bell) ||
                               is_work_bell(bell.word) || bell.word == directory_bell();
            if (!of_messages) only_legitimate = false;
            if (life(i) == Life::asleep && is_bell(bell.word) && !is_armed(latest(bell.word, 8)))
                fail("an actor sleeps on a bell that is not armed:" + who_waits());
        }
        // The first sleep of a wait is brief, and one that is listed asks after a death.
        any_asks |= life(i) == Life::asleep && s.bell_count != 0 && (!s.listed() || s.asks);
    }
    if (!any_waits) return true;
    if (closing()) fail("the last look at the ring did not come to an end:" + who_waits());
    if (any_missed && deaths_so_far() == 0)
        fail("a lost wake-up: what was awaited has come, and the sleeper was not woken:" + who_waits());
    bool last = only_legitimate && !any_missed && (deaths_so_far() == 0 || !any_asks);
    if (!last && (deaths_so_far() == 0 || ++expiries > kMaxExpiries))
        fail("an actor waits forever:" + who_waits());
    // Either the end, or a slice is over: the waker died before its wake-up, or the awaited actor is dead.
    if (last) begin_closing();
    bool any_goes_on = false;
    for (int i = 0; i < actor_count(); ++i) {
        Sleeper& s = sleepers[i];
        if (life(i) != Life::asleep || (!last && (s.bell_count == 0 || (s.listed() && !s.asks)))) continue;
        s.how = Woken::timed_out;
        unblock(i);
        any_goes_on = true;
    }
    if (!any_goes_on) fail("an actor waits forever, though processes that died are watched:" + who_waits());
    return false;
}

void count_look() {
    if (++looks_of[self()] > kMostLooks)
        fail("a wait looks again and again, and never sleeps:" + who_waits());
}

int looks() { return looks_of[self()]; }

// The kernel says who is dead: all that they did is seen.
void watch_deaths(const std::function<bool()>* over) {
    if (deaths_allowed()) {  // an actor may die just before
        reach();
        count_step();
        observe(13);
    }
    auto* free = std::ranges::find(sleepers[self()].over, nullptr);
    if (free == std::end(sleepers[self()].over)) give_up("an actor lists too many sleeps");
    *free = over;
    if (deaths_so_far() > 0) learn(self(), left_by_dead);
}
void unwatch_deaths(const std::function<bool()>* over) {
    *std::ranges::find(sleepers[self()].over, over) = nullptr;
}
void count_found_over() { ++found_over_by[self()]; }
uint32_t times_found_over() { return self() == kNoActor ? 0 : found_over_by[self()]; }

void begin_with(int topics) {
    for (int topic = 0; topic < kTopics; ++topic) named_file[topic] = topic < topics ? topic : kNoFile;
    files_made = topics;
}

int new_file() {
    about_to_change_names();
    if (files_made == kFiles) give_up("the case makes too many files");
    if (self() != kNoActor) observe(100 + static_cast<uint64_t>(files_made));
    if (tracing()) record("makes file " + std::to_string(files_made));
    return files_made++;
}

bool give_name(int topic, int file) {
    about_to_change_names();
    bool free = named_file[topic] == kNoFile;
    if (free) named_file[topic] = file;
    if (self() != kNoActor) observe(10 + free);
    if (tracing())
        record(free ? "gives file " + std::to_string(file) + " the name" : "another file has the name");
    return free;
}

void remove_name(int topic, int file) {
    about_to_change_names();
    if (named_file[topic] == file) named_file[topic] = kNoFile;
    if (self() != kNoActor) observe(12);
    if (tracing()) record("takes the name of file " + std::to_string(file));
}

int file_named(int topic) {
    if (self() == kNoActor || !names_change) return named_file[topic];
    reach();
    count_step();
    learn(self(), named_by);
    int file = named_file[topic];
    observe(20 + static_cast<uint64_t>(file));
    if (tracing())
        record(file == kNoFile ? "no file has the name" : "file " + std::to_string(file) + " has the name");
    return file;
}

// In the header of the waiting file, which has no use for it.
const uint32_t* directory_bell() {
    auto* header = reinterpret_cast<Header*>(control() + kFirstWaitingSlot * sizeof(Slot));
    return header->work_bell.futex();
}

void ring_directory() {
    auto* header = reinterpret_cast<Header*>(control() + kFirstWaitingSlot * sizeof(Slot));
    header->work_bell.fetch_add(1, std::memory_order_release);
    wake(directory_bell());
}

void awaits_nothing() { sleepers[self()] = {}; }
void awaits(const Awaits& what) {
    auto free = std::ranges::find(sleepers[self()].awaited, nullptr, &Awaits::came);
    if (free == std::end(sleepers[self()].awaited)) give_up("an actor awaits too much");
    *free = what;
}

void await_end(bool or_death) {
    sleepers[self()] = {};
    sleepers[self()].until_death = or_death;
    observe(9);
    block(Life::asleep);
}

}  // namespace ringmain::explore

namespace ringmain {

using namespace explore;

Woken sleep_on_any(const Bell* bells, size_t count, int64_t, size_t*) {
    if (closing()) return Woken::timed_out;
    if (count > kMostBells) give_up("an actor sleeps on too many bells");
    for (size_t i = 0; i < count; ++i) compared_by_kernel(bells[i].word);
    reach();
    count_step();
    Sleeper& s = sleepers[self()];
    std::copy(bells, bells + count, s.bells);
    s.bell_count = count;
    s.how = Woken::changed;
    dies_here();
    bool slice_is_over = slices_left > 0 && choose(2) == 1;
    if (slice_is_over) {
        --slices_left;
        s.how = Woken::timed_out;
        if (tracing()) record("sleeps for a slice on " + names_of(s));
    } else if (!s.changed()) {
        if (tracing()) record((s.listed() ? "sleeps, listed, on " : "sleeps on ") + names_of(s));
        observe(7);  // having slept differs from being about to sleep
        block(Life::asleep);
        while (s.how == Woken::timed_out && s.listed() && !closing()) {
            s.asks = false;
            s.how = Woken::changed;
            learn(self(), left_by_dead);
            if (tracing()) record("is asked, after a death");
            if (s.is_over()) {
                count_found_over();
                break;
            }
            if (!s.changed()) block(Life::asleep);
        }
        if (tracing()) record(s.how == Woken::timed_out ? "wakes: time is up" : "wakes");
    }
    Woken how = s.how;
    s.bell_count = 0;
    s.how = {};
    s.asks = false;
    looks_of[self()] = 0;
    observe(static_cast<uint64_t>(how) + 8);
    return how;
}

Woken sleep_on(Bell bell, int64_t timeout_ns) { return sleep_on_any(&bell, 1, timeout_ns, nullptr); }

namespace process_barrier {

bool registered() { return !fallback(); }

bool make() {
    if (self() == kNoActor) return true;
    if (fallback()) {
        explore::fence(std::memory_order_seq_cst);
        return true;  // all fence, so that no ring is missed
    }
    reach();
    dies_here();
    count_step();
    if (tracing()) record("process-wide barrier");
    barrier_for_all();
    observe(5);
    return true;
}

void make_or_wait() { make(); }

}  // namespace process_barrier

void wake(const uint32_t* word, int how_many) {
    if (self() == kNoActor) return;
    reach();
    count_step();
    dies_here();
    if (tracing()) record("wakes those on " + name_of(word));
    for (; how_many > 0; --how_many) {
        int found[kMaxActors], count = 0;
        for (int i = 0; i < actor_count(); ++i)
            if (life(i) == Life::asleep && sleepers[i].sleeps_on(word)) found[count++] = i;
        if (count == 0) break;
        int chosen = found[how_many >= count ? 0 : choose(count)];
        sleepers[chosen].how = Woken::changed;
        unblock(chosen);
    }
    observe(4);
}

}  // namespace ringmain

using namespace ringmain::explore;

extern "C" {

int explored_fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    auto* request = va_arg(arguments, struct flock*);
    va_end(arguments);
    return get_or_set_lock(fd, command, request);
}

// A napping actor polls a word: until it changes, or an actor dies, there is nothing new to see.
int explored_usleep(unsigned) {
    size_t where = last_looked_at(self());
    dies_here();
    observe(6);
    if (look_again(self(), where)) return 0;
    sleepers[self()].watches = where;
    block(Life::napping);
    return 0;
}

int explored_clock_gettime(clockid_t, struct timespec* now) noexcept {
    *now = {1, 0};  // time stands still: an awaited event comes, or the explorer finds that it never does
    return 0;
}

// All actors are one process of one user.
pid_t explored_getpid() noexcept { return 1; }
uid_t explored_geteuid() noexcept { return 0; }
}
