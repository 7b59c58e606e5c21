// What the workers of a shared contract have in common: the mark of each message, the cursor, and the bell they sleep on.
// worker.hpp says how they take messages.
#pragma once

#include "rule/ring.hpp"

namespace ringmain {

// Of a message on a shared contract: the upper 16 bits of its header's third word.
struct TaskMark {
    static constexpr uint64_t kFree = 0,
                              kDone = 0xfff;      // otherwise the owner is 1 + a slot below kMaxWorkers
    static constexpr uint64_t kMostReturns = 15;  // the count stays there

    uint64_t owner, returns;

    static TaskMark of(uint64_t word) { return {word >> 48 & 0xfff, word >> 60}; }
    uint64_t in(uint64_t word) const {
        return (word & ((uint64_t{1} << 48) - 1)) | owner << 48 | returns << 60;
    }
    TaskMark given_back(bool counts) const {
        return {kFree, counts && returns < kMostReturns ? returns + 1 : returns};
    }
};
static_assert(kMaxWorkers < TaskMark::kDone);

// `work_bell`: how often one worker was woken, and in its low half how often all were.
constexpr uint32_t kWokeOne = 1 << 16;

// The words that all workers share.
class WorkQueue {
    Ring ring_;

  public:
    explicit WorkQueue(const Ring& ring) : ring_(ring) {}

    // [CURSOR] seq_cst: after our hold was announced. A cursor that is where it was still held the message then.
    uint64_t cursor() const { return word().load(std::memory_order_seq_cst) & kPositionMask; }

    Word<uint64_t>& mark_at(uint64_t position) const { return (&ring_.word_at(position))[2]; }
    TaskMark look(uint64_t position) const {
        // [MARK] seq_cst: after the cursor was moved. Pairs with [GIVEN].
        return TaskMark::of(mark_at(position).load(std::memory_order_seq_cst));
    }

    // Moves the cursor from one position to a later one. False: it was elsewhere.
    bool advance(uint64_t from, uint64_t to) const {
        uint64_t seen = from;
        if (!word().compare_exchange(seen, to, std::memory_order_seq_cst)) return false;
        fence(std::memory_order_seq_cst);  // before the look at the bell of writers
        CRASH_POINT("work: cursor moved, bell not rung");
        ring_if_armed(ring_.slots[kQueueSlot].awaited);
        return true;
    }

    // Moves the cursor back to a free message that the caller holds, at least until this returns.
    void lower(uint64_t to) const {
        // [GIVEN] seq_cst: after the mark. A worker that moves the cursor past the message looks at the mark afterwards.
        uint64_t seen = word().load(std::memory_order_seq_cst);
        while (seen > to && !word().compare_exchange(seen, to, std::memory_order_seq_cst)) {
        }
        // [RETURNED] seq_cst: after the cursor, and before the caller's hold goes. Pairs with the writer's two looks.
        ring_.header.returned.fetch_add(1, std::memory_order_seq_cst);
    }

    // A message is free: wakes one worker, if any sleeps. The one that wakes wakes the next, if there is more.
    void wake_one_worker() const {
        fence(std::memory_order_seq_cst);  // after the message was given back
        wake_one_worker_after_barrier();
    }
    // The same after a light barrier, for a message that was committed.
    void wake_one_worker_after_barrier() const {
        // [WAKE-ONE] relaxed: ordered by the barriers, and a worker that wakes sets it again. Pairs with [RESTS].
        if (ring_.header.work_idle.load(std::memory_order_relaxed) != 0) [[unlikely]]
            wake_idle_worker();
    }

    // All workers that sleep look around. `work_bell` changes, so that those about to sleep do, too.
    void wake_all_workers() const {
        ring_.header.work_bell.fetch_add(1, std::memory_order_release);
        wake(ring_.header.work_bell.futex());
    }

    // Gives back what a dead worker had, under the roster lock. May be repeated, if the process that did it dies.
    void return_taken(uint32_t slot) const {
        Slot& dead = ring_.slots[slot];
        uint64_t from = dead.taken_from.load(std::memory_order_acquire);
        if (from == kNoHold) return;
        // relaxed: its owner is dead, which the kernel has told us.
        uint64_t until = dead.taken_until.load(std::memory_order_relaxed);
        uint64_t commit = ring_.header.commit.load(std::memory_order_acquire) & kPositionMask;
        uint64_t hold = dead.hold.load(std::memory_order_acquire) & kPositionMask;
        // Another process may have written anything here: then there is nothing that could be given back.
        bool sane = from % kAlignBytes == 0 && hold <= from && until <= commit &&
                    commit - from <= ring_.capacity_bytes;
        uint64_t first = kNoHold;
        for (uint64_t at = from; sane && at < until;) {
            uint64_t bytes = Envelope::load(ring_, at).bytes();
            if (bytes > until - at) break;
            uint64_t word = mark_at(at).load(std::memory_order_seq_cst);
            TaskMark mark = TaskMark::of(word);
            if (mark.owner == slot + 1) {
                mark = mark.given_back(true);
                mark_at(at).exchange(mark.in(word), std::memory_order_seq_cst);
                CRASH_POINT("reap: message given back, hold kept");
            }
            if (mark.owner == TaskMark::kFree) first = std::min(first, at);
            at += bytes;
        }
        if (first != kNoHold) lower(first);
        dead.taken_from.store(kNoHold, std::memory_order_release);
        if (first != kNoHold) wake_one_worker();
    }

    // Is any message free or taken? Without living participants, under the roster lock.
    bool unfinished() const {
        uint64_t commit = ring_.header.commit.load(std::memory_order_acquire) & kPositionMask;
        uint64_t at = cursor();
        if (commit - at > ring_.capacity_bytes) return false;
        while (at < commit) {
            if (look(at).owner != TaskMark::kDone) return true;
            at += Envelope::load(ring_, at).bytes();
        }
        return false;
    }

  private:
    Word<uint64_t>& word() const { return ring_.slots[kQueueSlot].hold; }

    [[gnu::noinline]] void wake_idle_worker() const {
        // relaxed: the bell changes afterwards.
        ring_.header.work_idle.exchange(0, std::memory_order_relaxed);
        ring_.header.work_bell.fetch_add(kWokeOne, std::memory_order_release);
        wake(ring_.header.work_bell.futex(), 1);
    }
};

}  // namespace ringmain
