#include "explore/engine.hpp"

#include <ucontext.h>
#include <csetjmp>

#include <cxxabi.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <memory>
#include <utility>

#include "explore/arena.hpp"
#include "explore/model.hpp"

namespace ringmain::explore {

namespace {

constexpr size_t kStackBytes = 256 * 1024;
constexpr uint64_t kMaxSteps = 20'000;  // of one execution: more is an endless loop

constexpr int kScouts = 4'000;
constexpr int kScoutsCourage = 30;
constexpr size_t kToldSteps = 300;

struct ExceptionState {  // what the C++ runtime keeps for each thread, hence here for each fiber
    void* caught;
    unsigned uncaught;
};

struct Fiber {
    jmp_buf start, resume;
    bool started = false;
    std::unique_ptr<char[]> stack;
    ucontext_t context;
    ExceptionState exceptions{};
    Life life = Life::running;
    uint64_t observed = 0;
    bool stirred = false;  // has done something since it was last handed over to
};

struct Choice {
    uint16_t options, taken;
};

// Hashes of the states seen, open addressing. 64 bits: two states in 10^7 collide with a chance of 3 in a million.
class Seen {
    std::vector<uint64_t> table_;
    size_t count_ = 0;

  public:
    Seen() : table_(1 << 16) {}
    size_t count() const { return count_; }
    bool insert(uint64_t hash) {
        if (hash == 0) hash = 1;
        if (2 * count_ > table_.size()) {
            std::vector<uint64_t> old(2 * table_.size());
            old.swap(table_);
            for (uint64_t h : old)
                if (h) insert_hash(h);
        }
        if (!insert_hash(hash)) return false;
        ++count_;
        return true;
    }

  private:
    bool insert_hash(uint64_t hash) {
        size_t mask = table_.size() - 1, i = hash & mask;
        for (; table_[i]; i = (i + 1) & mask)
            if (table_[i] == hash) return false;
        table_[i] = hash;
        return true;
    }
};

enum class End { complete, pruned, failed, beyond, again };

Fiber fibers[kMaxActors];
ucontext_t creator;
jmp_buf main_loop;
const Case* current_case;
int running = kNoActor;
std::vector<Choice> choices;
size_t depth;
std::unique_ptr<Seen> seen;
int deaths;
bool closing_down, trace;
std::set<uint64_t> ends;
bool scouting;  // random choices, to find out what is shared, and what breaks often, before the search begins
uint64_t chance;
uint64_t steps, all_steps;
End ending;
std::string why;

[[noreturn]] void finish(End how) {
    explorer_allocates();
    ending = how;
    running = kNoActor;
    _longjmp(main_loop, 1);
}

void switch_to(int next) {
    auto* exceptions = reinterpret_cast<ExceptionState*>(abi::__cxa_get_globals());
    int previous = running;
    if (previous == next) return;
    if (previous != kNoActor) fibers[previous].exceptions = *exceptions;
    *exceptions = fibers[next].exceptions;
    static jmp_buf never;  // from setup there is no way back
    if (_setjmp(previous == kNoActor ? never : fibers[previous].resume) == 0) {
        running = next;
        bool first = !fibers[next].started;
        fibers[next].started = true;
        _longjmp(first ? fibers[next].start : fibers[next].resume, 1);
    }
}

uint64_t state_hash() {
    uint64_t hash = mix(memory_hash(), kernel_hash());
    for (int i = 0; i < actor_count(); ++i)
        hash = mix(hash, mix(fibers[i].observed, static_cast<uint64_t>(fibers[i].life)));
    return mix(mix(hash, ghost_hash()), static_cast<uint64_t>(2 * deaths + closing_down));
}

bool is_old() {
    Allocates ours(false);
    return !seen->insert(state_hash());
}

// Whatever an actor does before its first step that others can notice, it does at once.
bool begin_next() {
    for (int i = 0; i < actor_count(); ++i) {
        if (fibers[i].started) continue;
        switch_to(i);
        return true;
    }
    return false;
}

// Hands over to one of the actors that can go on; returns when it is the caller's turn again.
void schedule() {
    if (begin_next()) return;
    int options[kMaxActors], count = 0;
    auto can_run = [](int i) { return fibers[i].life == Life::running; };
    do {
        if (running != kNoActor && can_run(running)) options[count++] = running;
        for (int i = 0; i < actor_count(); ++i)
            if (i != running && can_run(i)) options[count++] = i;
        if (count == 0 && kernel_is_quiet()) {
            explorer_allocates();
            if (current_case->account && !scouting && !trace) ends.insert(current_case->account());
            finish(End::complete);
        }
    } while (count == 0);
    bool asks = !trace && !scouting && !current_case->stateless;
    if (asks && depth >= choices.size() && is_old()) finish(End::pruned);
    switch_to(options[choose(count)]);
}

void body(int actor) {
    observe(1);  // having begun is a step, too
    current_case->actors[static_cast<size_t>(actor)]();
    fibers[actor].life = Life::done;
    schedule();
    std::abort();  // no actor hands over to one that is done
}

void entry(int actor) {
    // The frame stays at the top of the stack, so that every execution can begin here.
    if (_setjmp(fibers[actor].start) == 0) setcontext(&creator);
    body(running);
}

void make_fibers() {
    for (int i = 0; i < kMaxActors; ++i) {
        Fiber& f = fibers[i];
        if (f.stack) return;
        f.stack = std::make_unique<char[]>(kStackBytes);
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack.get();
        f.context.uc_stack.ss_size = kStackBytes;
        f.context.uc_link = nullptr;
        makecontext(&f.context, reinterpret_cast<void (*)()>(entry), 1, i);
        swapcontext(&creator, &f.context);
    }
}

End run_once() {
    memory_reset();
    kernel_reset();
    ghost_reset();
    depth = 0;
    deaths = 0;
    steps = 0;
    closing_down = false;
    for (Fiber& f : fibers) {
        f.started = false;
        f.exceptions = {};
        f.life = Life::running;
        f.observed = 0;
        f.stirred = false;
    }
    arena_reset();
    if (_setjmp(main_loop) == 0) {
        Allocates theirs(true);
        current_case->setup();
        schedule();
    }
    *reinterpret_cast<ExceptionState*>(abi::__cxa_get_globals()) = {};
    all_steps += steps;
    return ending;
}

bool next_branch() {
    while (!choices.empty() && choices.back().taken + 1 == choices.back().options) choices.pop_back();
    if (choices.empty()) return false;
    ++choices.back().taken;
    return true;
}

std::deque<std::string> told;

// The last execution once more, with every step written down; if it is long, its end.
std::string story() {
    choices.resize(depth);
    trace = true;
    told.clear();
    run_once();
    std::string text;
    for (const std::string& line : told) text += line;
    return text;
}

// An execution of random choices. What broke, if it did, with the steps that led there.
std::string scout() {
    uint64_t before = chance;
    if (run_once() != End::failed) return {};
    // With what is known by now the same chances may lead elsewhere; then it ends without its steps.
    std::string broken = why;
    chance = before;
    depth = 0;
    std::string steps = story();
    trace = false;
    return broken + (ending == End::failed && why == broken ? "\n" + steps : "");
}

}  // namespace

uint64_t hash_bytes(const void* bytes, size_t size) {
    uint64_t hash = size, word;
    auto* at = static_cast<const char*>(bytes);
    for (; size >= 8; size -= 8, at += 8) {
        std::memcpy(&word, at, 8);
        hash = (hash ^ word) * 0x9fb21c651e98df25;
        hash ^= hash >> 31;
    }
    return mix(hash, 0);
}

int self() { return running; }
Life life(int actor) { return fibers[actor].life; }
int actor_count() { return static_cast<int>(current_case->actors.size()); }
bool closing() { return closing_down; }
bool tracing() { return trace; }
void observe(uint64_t value) {
    fibers[running].observed = mix(fibers[running].observed, value);
    fibers[running].stirred = true;
}
void settle(const void* state, size_t size, uint64_t extra) {
    fibers[running].observed = mix(hash_bytes(state, size), extra);
}

void count_step() {
    if (++steps > kMaxSteps) fail("an endless loop: more than " + std::to_string(kMaxSteps) + " steps");
}

// Two decisions without a step between them would find the state of the first among those seen, and give up what
// follows from it unexplored.
void reach() {
    if (running == kNoActor) return;
    if (!std::exchange(fibers[running].stirred, false))
        give_up("an actor that has done nothing lets others go first");
    schedule();
}

int choose(int options) {
    if (options == 1) return 0;
    if (scouting) {
        chance = chance * 6364136223846793005 + 1442695040888963407;
        return static_cast<int>((chance >> 33) % static_cast<uint64_t>(options));
    }
    if (depth < choices.size()) return choices[depth++].taken;
    if (trace) return 0;
    Allocates ours(false);
    choices.push_back({static_cast<uint16_t>(options), 0});
    ++depth;
    return 0;
}

int slices() { return current_case->slices; }
int stale_looks() { return current_case->stale_looks; }
bool deaths_allowed() { return current_case->deaths > 0; }
bool fallback() { return current_case->fallback; }
bool plain() { return current_case->plain; }

bool may_die(int actor) {
    if (deaths >= current_case->deaths) return false;
    for (int mortal : current_case->mortal)
        if (mortal == actor) return true;
    return false;
}

bool dies_here() {
    if (running == kNoActor || !may_die(running)) return false;
    if (choose(scouting ? kScoutsCourage : 2) != 1)
        return false;  // a scout dies seldom, or it would never get far
    if (trace) record("dies");
    ++deaths;
    fibers[running].life = Life::dead;
    kernel_reaps(running);
    schedule();
    std::abort();  // a dead actor never runs again
}

void block(Life how) {
    fibers[running].life = how;
    schedule();
    observe(3);  // having woken is a step: others had theirs meanwhile
}

void unblock(int actor) { fibers[actor].life = Life::running; }

void record(const std::string& text) {
    if (!trace) return;
    Allocates ours(false);
    std::string who = running == kNoActor ? "setup" : current_case->names[static_cast<size_t>(running)];
    told.push_back("      " + who + std::string(who.size() < 10 ? 10 - who.size() : 1, ' ') + text + "\n");
    if (told.size() > kToldSteps) told.pop_front();
}

void fail(const std::string& reason) {
    explorer_allocates();
    why = reason;
    finish(End::failed);
}

void give_up(const std::string& reason) {
    explorer_allocates();
    why = reason;
    finish(End::beyond);
}

void require(bool condition, const char* what) {
    if (!condition) fail(what);
}

void start_again() {
    if (!scouting) finish(End::again);
}

void begin_closing() { closing_down = true; }
int deaths_so_far() { return deaths; }

Explored explore(const Case& c, double limit_s, bool only_random) {
    make_fibers();
    Explored outcome;
    current_case = &c;
    memory_forget();
    kernel_forget();
    choices.clear();
    seen = std::make_unique<Seen>();
    trace = false;
    ends.clear();
    all_steps = 0;
    // Processor time, not wall time: whether a case is explored completely must not depend on the machine's load.
    std::clock_t begin = std::clock();
    auto elapsed = [&] { return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC; };
    scouting = true;
    chance = 1;
    for (int i = 0; i < (c.plain ? 0 : kScouts) && outcome.error.empty(); ++i) outcome.error = scout();
    scouting = false;
    outcome.whole = only_random;
    if (only_random || !outcome.error.empty()) return outcome;
    all_steps = 0;
    for (;;) {
        End end = run_once();
        if (end == End::again) {
            ++outcome.restarts;
            choices.clear();
            seen = std::make_unique<Seen>();
            outcome.executions = outcome.deaths = all_steps = 0;
            ends.clear();
            continue;
        }
        ++outcome.executions;
        if (deaths) ++outcome.deaths;
        if (end == End::failed || end == End::beyond) {
            outcome.beyond = end == End::beyond;
            outcome.error = why + "\n" + story();
            break;
        }
        if (!next_branch()) {
            outcome.whole = true;
            break;
        }
        if ((outcome.executions & 1023) == 0 && elapsed() > limit_s) break;
    }
    outcome.ends = ends;
    outcome.states = seen->count();
    outcome.steps = all_steps;
    outcome.seconds = elapsed();
    return outcome;
}

}  // namespace ringmain::explore
