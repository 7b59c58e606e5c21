// Litmus tests of the explorer: small programs whose possible outcomes are known, so that a verdict about the ring rests
// on a memory model that was itself tested. Each is run three times: as the cases are, with every access interleaved
// whether ordered or not, and so without leaving out states seen before. All three must find exactly the
// outcomes that C++20 allows (without load buffering).
#include "explore/litmus.hpp"

#include <cstdio>
#include <set>

#include "base/bell.hpp"
#include "explore/model.hpp"
#include "format/layout.hpp"

extern "C" int explored_usleep(unsigned);

namespace ringmain::explore {

namespace {

constexpr auto rlx = std::memory_order_relaxed;
constexpr auto acq = std::memory_order_acquire;
constexpr auto rel = std::memory_order_release;
constexpr auto sc = std::memory_order_seq_cst;

Word<uint64_t>& word(size_t i) { return reinterpret_cast<Word<uint64_t>*>(data())[i]; }
Word<uint64_t>& x() { return word(0); }
Word<uint64_t>& y() { return word(1); }

uint64_t results[kMaxActors];
uint64_t outcome() {
    uint64_t all = 0;
    for (int i = 0; i < actor_count(); ++i) all = all * 100 + results[i];
    return all;
}

struct Litmus {
    const char* name;
    std::vector<std::function<void()>> actors;
    std::set<uint64_t> allowed;  // two digits for each actor
};

void result(uint64_t a, uint64_t b = 0) { results[self()] = 10 * a + b; }

std::vector<Litmus> all() {
    return {
        {"message passing, relaxed: the data may be old",
         {[] { x().store(1, rlx), y().store(1, rlx); },
          [] {
              uint64_t b = y().load(rlx);
              result(b, x().load(rlx));
          }},
         {0, 1, 10, 11}},
        {"message passing, release and acquire: never",
         {[] { x().store(1, rlx), y().store(1, rel); },
          [] {
              uint64_t b = y().load(acq);
              result(b, x().load(rlx));
          }},
         {0, 1, 11}},
        {"message passing by fences: never",
         {[] { x().store(1, rlx), fence(rel), y().store(1, rlx); },
          [] {
              uint64_t b = y().load(rlx);
              fence(acq);
              result(b, x().load(rlx));
          }},
         {0, 1, 11}},
        {"message passing through another's update: never",
         {[] { x().store(1, rlx), y().store(1, rel); }, [] { y().fetch_add(1, rlx); },
          [] {
              uint64_t b = y().load(acq);
              result(b, x().load(rlx));
          }},
         {0, 1, 10, 11, 21}},
        {"store buffering, seq_cst accesses taken for acquire and release: both may miss",
         {[] {
              x().store(1, rel);
              result(y().load(acq));
          },
          [] {
              y().store(1, rel);
              result(x().load(acq));
          }},
         {0, 10, 1000, 1010}},
        {"store buffering with seq_cst fences: one sees the other",
         {[] {
              x().store(1, rlx), fence(sc);
              result(y().load(rlx));
          },
          [] {
              y().store(1, rlx), fence(sc);
              result(x().load(rlx));
          }},
         {10, 1000, 1010}},
        {"coherence: who saw the newer does not see the older",
         {[] { x().store(1, rlx), x().store(2, rlx); },
          [] {
              uint64_t a = x().load(rlx);
              result(a, x().load(rlx));
          }},
         {0, 1, 2, 11, 12, 22}},
        {"independent reads of independent writes, acquire: the readers may disagree",
         {[] { x().store(1, rel); }, [] { y().store(1, rel); },
          [] {
              uint64_t a = x().load(acq);
              result(a, y().load(acq));
          },
          [] {
              uint64_t a = y().load(acq);
              result(a, x().load(acq));
          }},
         {0, 1, 10, 11, 100, 101, 110, 111, 1000, 1001, 1010, 1011, 1100, 1101, 1110, 1111}},
        {"the same with seq_cst fences: they agree",
         {[] { x().store(1, rlx); }, [] { y().store(1, rlx); },
          [] {
              uint64_t a = x().load(rlx);
              fence(sc);
              result(a, y().load(rlx));
          },
          [] {
              uint64_t a = y().load(rlx);
              fence(sc);
              result(a, x().load(rlx));
          }},
         {0, 1, 10, 11, 100, 101, 110, 111, 1000, 1001, 1011, 1100, 1101, 1110, 1111}},
        {"the sleeper is woken, or sees that there is nothing to sleep for",
         {[] {
              uint64_t old = x().fetch_add(2, rlx);
              if (old & 1) wake(x().futex());
          },
          [] {
              uint64_t old = x().fetch_add(1, rlx);
              bool slept = old == 0;
              if (slept) slept = sleep_on({x().futex(), 1}, 1) == Woken::changed;
              result(old, slept);
          }},
         {1, 20}},
        {"a nap ends with the next look, though a barrier has shown the store before",
         {[] { x().store(1, rel); },
          [] {
              for (; x().load(acq) == 0; explored_usleep(1)) process_barrier::make();
              result(1);
          }},
         {10}},
        {"two updates: none is lost",
         {[] { result(x().fetch_add(1, rlx)); }, [] { result(x().fetch_add(1, rlx)); }},
         {10, 1000}},
    };
}

}  // namespace

int run_litmus() {
    static constexpr const char* modes[] = {"reduced", "plain", "stateless"};
    int failures = 0;
    for (const Litmus& l : all()) {
        for (size_t mode = 0; mode < std::size(modes); ++mode) {
            Case c;
            c.name = l.name;
            c.setup = [] {
                set_capacity(kMaxCapacity), std::fill(std::begin(results), std::end(results), 0);
            };
            c.actors = l.actors;
            c.names.assign(l.actors.size(), "actor");
            c.account = outcome;
            c.plain = mode > 0;
            c.stateless = mode > 1;
            Explored o = explore(c, 10);
            bool good = o.whole && o.error.empty() && o.ends == l.allowed;
            std::printf("%-80s %-9s %7lu executions  %s\n", l.name, modes[mode], o.executions,
                        good ? "ok" : "WRONG");
            if (!good) {
                std::printf("  found:");
                for (uint64_t found : o.ends)
                    std::printf(" %0*lu", static_cast<int>(2 * l.actors.size()), found);
                std::printf("\n  %s\n", o.error.c_str());
            }
            failures += !good;
        }
    }
    return failures;
}

}  // namespace ringmain::explore
