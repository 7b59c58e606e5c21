// A shared contract: each message goes to one of the readers, called workers. Owns this invariant: a message that is not
// done is held, by the queue while it is free and by its worker while it is taken, and one living worker has it at a time.
//
//        taken_from of a worker         cursor                     commit
//   ------|=== done and taken ============|=== free, taken, done ====|------>  position
//
// The cursor is the hold of kQueueSlot: no free message lies below it. A message's mark (TaskMark, in its header) says
// whether it is free, taken by which slot, or done. A worker takes the oldest free message by changing its mark, and then
// moves the cursor past it; a worker that finds the message at the cursor taken moves the cursor for the other. So a
// worker that stops or dies between the two steps stops no other, and the mark says what a dead one had.
//
// What a worker holds is above its own hold. When it takes a message, the hold goes from the queue to the worker, which
// announces its own first. When it gives one back, the cursor goes back first. A writer that looked at one after the other
// could miss a message that changes hands twice meanwhile: so every way back counts `returned`, and a writer that finds
// that number changed looks again.
//
// docs/spec/shared-memory.md has the steps, and says who repairs what when a worker dies.
#pragma once

#include "rule/reader.hpp"
#include "rule/retirement.hpp"
#include "rule/work_queue.hpp"

namespace ringmain {

class Worker {
  public:
    Worker(Ring ring, uint32_t slot) : ring_(ring), queue_(ring), slot_(slot) {}

    // May there be a message for us? Another worker may be faster.
    bool has_more() const {
        // [OBSERVE] acquire: pairs with [COMMIT].
        uint64_t cursor = queue_.cursor();
        uint64_t commit = ring_.header.commit.load(std::memory_order_acquire) & kPositionMask;
        return cursor != commit &&
               !looked_at_all(commit, ring_.header.returned.load(std::memory_order_acquire));
    }

    void expect_one() const { prefetch_to_read(ring_.at(queue_.cursor())); }  // as Reader's

    // Takes the oldest free message that is wanted. After ok or empty, release() must follow, with the oldest message
    // that the worker has not finished.
    template <class Wanted>
    Status take(View& view, Wanted wanted) {
        for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
            uint64_t returned = ring_.header.returned.load(std::memory_order_acquire);
            uint64_t from = queue_.cursor();
            uint64_t commit = ring_.header.commit.load(std::memory_order_acquire) & kPositionMask;
            if (from == commit || looked_at_all(commit, returned)) return Status::empty;
            if (!holds(from)) continue;
            if (commit - from > ring_.capacity_bytes) return Status::corrupt;
            return take_from(from, commit, returned, view, wanted);
        }
        return Status::corrupt;
    }

    // How often the message was given back before. Only while it is ours.
    uint32_t returns(const View& view) const {
        return static_cast<uint32_t>(queue_.look(view.position).returns);
    }

    // The worker is done with a message. False: it is no longer ours.
    bool finish(const View& view) {
        Word<uint64_t>& word = queue_.mark_at(view.position);
        uint64_t seen =
            word.load(std::memory_order_relaxed);  // relaxed: only its owner changes a taken message's mark
        TaskMark mark = TaskMark::of(seen);
        if (mark.owner != slot_ + 1) return false;
        word.store(TaskMark{TaskMark::kDone, mark.returns}.in(seen), std::memory_order_release);
        CRASH_POINT("work: done, hold not moved");
        return true;
    }

    // Another worker shall have it. `counts`: as one more delivery that failed.
    bool give_back(const View& view, bool counts) {
        Word<uint64_t>& word = queue_.mark_at(view.position);
        uint64_t seen = word.load(std::memory_order_relaxed);  // relaxed: as in finish()
        TaskMark mark = TaskMark::of(seen);
        if (mark.owner != slot_ + 1) return false;
        word.exchange(mark.given_back(counts).in(seen), std::memory_order_seq_cst);
        CRASH_POINT("work: given back, cursor not moved");
        queue_.lower(view.position);
        CRASH_POINT("work: given back, bell not rung");
        queue_.wake_one_worker();
        return true;
    }

    // Holds what lies at or above `keep`, and nothing if it is kNoHold. False: the slot is no longer ours.
    bool release(uint64_t keep) {
        // release: what lies below is done. First, so that a dead worker's hold is never above what it may have taken.
        if (valid_ != keep) own().taken_from.store(keep, std::memory_order_release);
        valid_ = keep;
        if (keep == kNoHold) until_ = 0;
        return keep == hold_ || move_hold(keep);
    }

    // What to sleep on while there is nothing for us. An empty bell: something has come, or the topic was removed.
    Bell bell() {
        // fetch_or: the newest value, so that the kernel does not refuse to sleep again and again.
        slept_at_ = ring_.header.work_bell.fetch_or(0, std::memory_order_acquire);
        bool always_wakes = be_idle();
        CRASH_POINT("work: about to sleep");
        if (has_more() || is_retired(ring_.header)) return {};
        return {ring_.header.work_bell.futex(), slept_at_, always_wakes};
    }

    // After a sleep: another may sleep on. It is woken once we have taken a message and there are more.
    void woken() {
        // exchange: a load might still find it set, from before it was cleared by who woke us; then others would sleep on.
        // relaxed: [RESTS] the barrier comes next. Pairs with [WAKE-ONE].
        ring_.header.work_idle.exchange(1, std::memory_order_relaxed);
        process_barrier::make();
        woken_ = true;
    }
    // After a message was taken, or none was for us: wakes the next worker.
    void pass_on(bool took) {
        if (!std::exchange(woken_, false)) return;
        if (took) {
            if (has_more()) queue_.wake_one_worker();
            return;
        }
        uint64_t commit = ring_.header.commit.load(std::memory_order_acquire) & kPositionMask;
        if (queue_.cursor() == commit) return;  // another worker has taken it
        // Woken for a message that we do not want. All others look; those that do not want it either leave it at that.
        uint32_t now = ring_.header.work_bell.load(std::memory_order_acquire);
        if (now % kWokeOne != slept_at_ % kWokeOne) return;  // another has, since we slept
        queue_.wake_all_workers();
    }

    // What is wanted has changed: looks at all free messages again.
    void look_again() { looked_until_ = kNoHold; }

  private:
    static constexpr int kMaxAttempts = 10'000;  // as Reader's

    Ring ring_;
    WorkQueue queue_;
    uint32_t slot_;
    uint64_t hold_ = kNoHold;   // what our hold word says
    uint64_t valid_ = kNoHold;  // from here on it is good: the cursor was there after the hold was announced
    uint64_t looked_until_ = kNoHold;  // no free message below it is wanted, while `returned` is this:
    uint64_t looked_returned_ = 0;
    uint64_t until_ = 0;  // what we have taken and not finished lies below
    uint32_t slept_at_ = 0;
    bool woken_ = false;

    Slot& own() const { return ring_.slots[slot_]; }

    bool looked_at_all(uint64_t commit, uint64_t returned) const {
        return looked_until_ == commit && looked_returned_ == returned;
    }

    // Holds all from the cursor on. False: the cursor has moved, perhaps before we held.
    bool holds(uint64_t from) {
        if (from >= valid_) return true;
        if (from < hold_) {
            // [HOLD] seq_cst exchange, then a fence: announced before we look at the cursor. Pairs with [LOOK].
            move_hold(from);
            fence(std::memory_order_seq_cst);
            CRASH_POINT("work: hold announced");
        }
        if (queue_.cursor() != from) return false;
        valid_ = from;
        own().taken_from.store(from, std::memory_order_release);
        return true;
    }

    template <class Wanted>
    Status take_from(uint64_t from, uint64_t commit, uint64_t returned, View& view, Wanted wanted) {
        bool know = looked_until_ != kNoHold && looked_returned_ == returned && looked_until_ > from;
        uint64_t at = know ? looked_until_ : from;
        bool none_free = !know;  // between the cursor and `at`
        while (at < commit) {
            Word<uint64_t>& word = queue_.mark_at(at);
            // [MARK] acquire: a message that was given back. Pairs with [GIVEN].
            uint64_t seen = word.load(std::memory_order_acquire);
            Envelope e = Envelope::load(ring_, at);
            uint64_t end = at + e.bytes();
            if (e.bytes() > commit - at) return Status::corrupt;
            TaskMark mark = TaskMark::of(seen);
            if (mark.owner == TaskMark::kFree) {
                view = {at, end, e.seq, e.time_ns, ring_.at(at), e.size, e.sender_size, e.kind_size};
                if (wanted(view)) {
                    reach(end);
                    // [TAKE] seq_cst: one worker succeeds, and sees the bytes. Pairs with [GIVEN] and [TAKE].
                    if (!word.compare_exchange(seen, TaskMark{slot_ + 1, mark.returns}.in(seen),
                                               std::memory_order_seq_cst))
                        continue;
                    CRASH_POINT("work: taken, cursor not moved");
                    if (none_free) skip(from, at, end);
                    return Status::ok;
                }
                if (none_free && at != from) skip(from, at, at);
                none_free = false;
            }
            at = end;
        }
        if (none_free && at != from) skip(from, at, at);
        looked_until_ = commit;
        looked_returned_ = returned;
        return Status::empty;
    }

    // Moves the cursor past messages that others have taken, up to `until`, and to `to` past our own. One of theirs may have
    // been given back meanwhile: its giver found the cursor still below it, so we move it back.
    void skip(uint64_t from, uint64_t until, uint64_t to) {
        reach(to);
        if (!queue_.advance(from, to)) return;
        for (uint64_t at = from; at < until; at += Envelope::load(ring_, at).bytes()) {
            if (queue_.look(at).owner != TaskMark::kFree) continue;
            queue_.lower(at);
            queue_.wake_one_worker();
            return;
        }
    }

    // False if a wake may be missed.
    bool be_idle() {
        // relaxed: a process that clears it changes the bell afterwards, so a worker that saw it set does not sleep on the old one.
        if (ring_.header.work_idle.load(std::memory_order_relaxed) == 0)
            ring_.header.work_idle.exchange(1, std::memory_order_relaxed);
        // [RESTS] the process-wide barrier: before the last look. Pairs with [WAKE-ONE].
        return process_barrier::make();
    }

    // Before a message below `end` is taken, or the cursor moved past it: if we die, the process that reaps us looks there.
    void reach(uint64_t end) {
        if (end <= until_) return;
        until_ = end;
        own().taken_until.store(end,
                                std::memory_order_relaxed);  // relaxed: [TAKE] and the cursor come after it
    }

    // [HOLD] pairs with [LOOK]. False: the slot was no longer ours.
    bool move_hold(uint64_t position) {
        uint64_t old = own().hold.exchange(position, std::memory_order_seq_cst);
        bool ours = (old & kPositionMask) == hold_;
        hold_ = position;
        fence(std::memory_order_seq_cst);  // before the look at the bell of writers
        CRASH_POINT("work: hold moved, bell not rung");
        ring_if_armed(own().awaited);
        return ours;
    }
};

}  // namespace ringmain
