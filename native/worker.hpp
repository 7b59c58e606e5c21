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

#include "reader.hpp"
#include "retirement.hpp"

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

// `work_bell`: how often a worker was called, and in its low half how often one passed a call on.
constexpr uint32_t kCall = 1 << 16;

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

    // A message is free: wakes one worker, if any sleeps. The one that wakes calls the next, if there is more.
    void call() const {
        fence(std::memory_order_seq_cst);  // after the message was given back
        call_if_idle();
    }
    // The same after a light barrier, for a message that was committed.
    void call_if_idle() const {
        // [CALL] relaxed: ordered by the barriers, and a worker that wakes sets it again. Pairs with [RESTS].
        if (ring_.header.work_idle.load(std::memory_order_relaxed) != 0) [[unlikely]]
            wake_one();
    }

    // All workers that sleep look around. `work_bell` changes, so that those about to sleep do, too.
    void rouse() const {
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
        if (first != kNoHold) call();
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

    [[gnu::noinline]] void wake_one() const {
        // relaxed: the bell changes afterwards.
        ring_.header.work_idle.exchange(0, std::memory_order_relaxed);
        ring_.header.work_bell.fetch_add(kCall, std::memory_order_release);
        wake(ring_.header.work_bell.futex(), 1);
    }
};

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
        queue_.call();
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
        bool sure = be_idle();
        CRASH_POINT("work: about to sleep");
        if (has_more() || is_retired(ring_.header)) return {};
        return {ring_.header.work_bell.futex(), slept_at_, sure};
    }

    // After a sleep: another may sleep on. It is called once we have taken a message and there are more.
    void woken() {
        be_idle();
        woken_ = true;
    }
    // After a message was taken, or none was for us: calls the next worker.
    void pass_on(bool took) {
        if (!std::exchange(woken_, false)) return;
        if (took) {
            if (has_more()) queue_.call();
            return;
        }
        uint64_t commit = ring_.header.commit.load(std::memory_order_acquire) & kPositionMask;
        if (queue_.cursor() == commit) return;  // another worker has taken it
        // Called for a message that we do not want. All others look; those that do not want it either leave it at that.
        uint32_t now = ring_.header.work_bell.load(std::memory_order_acquire);
        if (now % kCall != slept_at_ % kCall) return;  // another has, since we slept
        queue_.rouse();
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
            queue_.call();
            return;
        }
    }

    // False: a call may be missed.
    bool be_idle() {
        // relaxed: a caller that clears it changes the bell afterwards, so a worker that saw it set does not sleep on the old one.
        if (ring_.header.work_idle.load(std::memory_order_relaxed) == 0)
            ring_.header.work_idle.exchange(1, std::memory_order_relaxed);
        // [RESTS] the process-wide barrier: before the last look. Pairs with [CALL].
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
