// Depth-first search over all choices: which actor steps next, which store a load sees, where an actor dies. Owns this
// invariant: an execution is a function of its list of choices, so any can be repeated.
//
// An execution is run from the start each time, actors being fibers of one thread. Before each scheduling decision in
// new territory the state is hashed, and a state seen before ends the execution: what follows from it has been or
// will be explored. An actor's part of the state is the hash of what it has observed, since it is a
// function of that; so two orders of independent steps meet in one state, and nothing is explored twice.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace ringmain::explore {

constexpr int kMaxActors = 5;
constexpr int kNoActor = -1;  // during setup: accesses go straight to memory

inline uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t h = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xff51afd7ed558ccd;
    h ^= h >> 32;
    h *= 0xc4ceb9fe1a85ec53;
    return h ^ (h >> 29);
}
uint64_t hash_bytes(const void* bytes, size_t size);

// One case: `setup` builds its topic for every execution, then the actors run.
struct Case {
    std::string name, contract;
    std::function<void()> setup;
    std::vector<std::function<void()>> actors;
    std::vector<std::string> names;
    std::vector<int> mortal;  // actors that may die
    int deaths = 0;           // at most so many in one execution
    bool fallback = false;    // the kernel has no process-wide barrier: all fence
    int slices = 0;           // so many sleeps may time out although no actor is dead
    int stale_looks = 2;      // in one operation an actor may see this often that a word is not its newest
    bool deep = false;        // only with --deep
    bool stateless = false;   // states seen before are explored again: to check the hash
    bool plain = false;  // every access is interleaved, whether ordered or not: slow, to check the reduction
    std::function<uint64_t()> account;  // how an execution ended
};

struct Explored {
    uint64_t executions = 0, states = 0, steps = 0;
    uint64_t deaths = 0;      // executions in which an actor died
    std::set<uint64_t> ends;  // the different ends of executions, as `account` returns them
    uint64_t restarts = 0;    // how often a word turned out to be shared that was assumed private
    bool whole = false;       // everything was explored
    std::string error;        // empty, or the invariant that broke, with the steps that led there
    bool beyond = false;      // the error is that the explorer's limits were reached
    double seconds = 0;
};

// `only_random`: a few executions of random choices, without the search.
Explored explore(const Case& c, double limit_s, bool only_random = false);

// ---- for the parts that model memory and kernel ------------------------------------------------------------

enum class Life : uint8_t { running, blocked, asleep, napping, done, dead };

int self();  // the actor that runs, or kNoActor
Life life(int actor);
int actor_count();
bool may_die(int actor);
bool deaths_allowed();  // in this case
bool plain();           // interleave every access
int slices();
int stale_looks();
bool fallback();

void reach();      // a step that others can notice follows: any actor may go first
bool dies_here();  // does the actor die before the step it is about to make? If so the call does not return
int choose(int options);  // one of the options; each will be tried
void block(Life how);     // until another actor calls unblock()
void unblock(int actor);
void observe(uint64_t value);  // what the actor has read; part of its state
void record(const std::string& text);
bool tracing();
[[noreturn]] void fail(const std::string& why);     // the core is broken
[[noreturn]] void give_up(const std::string& why);  // the case exceeds the explorer's limits
void start_again();  // a word assumed private is shared: restart the search with that knowledge
void count_step();

// ---- for the actors --------------------------------------------------------------------------------------------

// An operation is over and these bytes are the actor's whole state: what it observed during the operation is forgotten.
void settle(const void* state, size_t size, uint64_t extra);
// All other actors are done or waiting, and nothing more will happen: the actors check the final state.
bool closing();
void require(bool condition, const char* what);

}  // namespace ringmain::explore
