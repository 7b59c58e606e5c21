// What engine.cpp, memory.cpp and kernel.cpp know of each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "explore/engine.hpp"

namespace ringmain::explore {

constexpr size_t kMaxLocations = 240;
extern size_t locations_in_use;  // of the case so far, rounded up to whole vectors of the processor

// The oldest store of each location that an actor can still see.
struct alignas(16) Knowledge {
    std::array<uint8_t, kMaxLocations> at{};

    void join(const Knowledge& other) {
        for (size_t i = 0; i < locations_in_use; ++i) at[i] = at[i] > other.at[i] ? at[i] : other.at[i];
    }
    bool within(const Knowledge& other) const {
        for (size_t i = 0; i < locations_in_use; ++i)
            if (at[i] > other.at[i]) return false;
        return true;
    }
    uint64_t hash() const { return hash_bytes(at.data(), locations_in_use); }
};

// The shared memory of all cases: a few files, each with a header, a few slots, a table of kept kinds, a small ring (its mirror is
// an address, not a mapping). The first ones are the topics that a case begins with; further lives take the next.
constexpr int kTopics = 2, kFiles = 3;
constexpr size_t kSlots = 8;
// A topic's waiting file lies in the same memory as its first life: its header behind the topic's, its slots behind those of
// the actors. A descriptor is the actor's number, this bit if it is of a waiting file, and which file it is.
constexpr size_t kFirstWaitingSlot = kMaxActors;
constexpr int kWaitingFile = 8, kPerFile = 16;
constexpr int kNoFile = -1;
constexpr size_t kMaxCapacity = 1024;
// The table of kept kinds, where a case has one.
constexpr uint32_t kMaxKeptKinds = 2;
constexpr uint64_t kKeptEntryBytes = 64;
std::byte* control(int file = 0);
std::byte* kept(int file = 0);
std::byte* data(int file = 0);
int file_at(const void* address);
size_t offset_in_file(const void* address);
void set_capacity(size_t capacity_bytes);
std::string name_of(const void* address);

// memory.cpp
void memory_forget();  // a new case: nothing is known of any location
void memory_reset();   // a new execution
uint64_t memory_hash();
uint64_t hash_ahead(const Knowledge& k);  // of what some actor does not know; after memory_hash()
uint64_t latest(const void* address, size_t bytes);
void learn(int actor, const Knowledge& what);  // synchronises: the actor now knows this
Knowledge pass_on(int actor);                  // what the actor knows, for another actor to learn
void barrier_for_all();
// The kernel compares the newest value there, never an older one: so stores to it cannot come at any time.
void compared_by_kernel(const void* address);
size_t last_looked_at(int actor);
bool look_again(int actor,
                size_t where);  // time passes: the actor sees the newest there; false: it saw the same
void forget_stale_looks();
void refresh(int actor);  // time passes: the actor sees the newest of everything

// kernel.cpp
void kernel_forget();
void kernel_reset();
void await_end(bool or_death = false);  // waits until all other actors are done or waiting, or one dies
uint64_t kernel_hash();
// What the actor is about to sleep for, as it stands: a sleep past any of it is a lost wake-up.
struct Awaits {
    bool (*came)(const void*, uint64_t) = nullptr;
    const void* of = nullptr;
    uint64_t value = 0;
};
void awaits_nothing();
void awaits(const Awaits& what);  // too
// A wait looks once more. Fails if it has looked too often without a sleep: it keeps a core busy.
void count_look();
int looks();
// While the actor's sleep is listed, a death makes it ask whether its wait is over.
void watch_deaths(const std::function<bool()>* over);
void unwatch_deaths(const std::function<bool()>* over);
void count_found_over();
uint32_t times_found_over();
// The topics' names in the directory, which the kernel orders, and which file has each; and the directory's bell.
void begin_with(int topics);            // in setup: each has its first file
int new_file();                         // without a name
bool give_name(int topic, int file);    // false: another file has it
void remove_name(int topic, int file);  // if this file has it
int file_named(int topic);
const uint32_t* directory_bell();
void ring_directory();
void kernel_reaps(int actor);
void kernel_notices(size_t where);  // a store
bool kernel_is_quiet();             // no actor can go on: false if that woke one; fails if it is a deadlock

// checks.cpp
uint64_t ghost_hash();
void ghost_reset();
void begin_closing();  // engine.cpp
int deaths_so_far();
bool work_waits(int file);   // is a message of a shared contract free?
void check_words(int file);  // after each change of claim, commit or tail

}  // namespace ringmain::explore
