// The reader's side of the rule: observe, check, copy or borrow, check again, move on. See ring.hpp.
#pragma once

#include "rule/extension.hpp"
#include "rule/ring.hpp"

namespace ringmain {

enum class Start { next, oldest, newest };

// A message in place. Until still_whole() has returned true after the last access, its bytes may be anything.
struct View {
    uint64_t position, end;
    uint64_t seq;
    int64_t time_ns;
    const std::byte* at;
    uint32_t size;
    uint8_t sender_size, kind_size;

    const std::byte* sender() const { return at + sizeof(MessageHeader); }
    // Extension and kind.
    Said said() const { return parts_of({reinterpret_cast<const char*>(sender() + sender_size), kind_size}); }
    const std::byte* payload() const { return at + payload_offset(sender_size, kind_size); }
};

class Reader {
  public:
    uint64_t lost = 0;          // since we joined
    uint64_t pending_lost = 0;  // since the message before

    // An observer never holds, whatever the contract: it blocks no writer, and is lapped like a reader of `broadcast`.
    Reader(Ring ring, uint32_t slot, Start on_lap, bool conflate, bool observes = false)
        : ring_(ring),
          own_(ring.slots + slot),
          fences_(!process_barrier::registered()),
          always_holds_(ring.contract.holds == Holds::always && !observes),
          holds_borrowed_(ring.contract.holds == Holds::while_borrowed && !observes),
          conflate_(conflate),
          on_lap_(on_lap) {}

    uint64_t position() const { return position_; }
    uint64_t sequence() const { return expected_; }
    uint64_t messages() const { return messages_; }
    // On a shared contract a Worker takes and holds, and this only counts: all that it is shown stays where it is.
    void hold_nothing() { held_from_ = 0; }
    bool always_holds() const { return always_holds_; }
    // Does a borrowed message stay where it is?
    bool keeps_borrowed() const { return always_holds_ || holds_borrowed_; }

    // Call once after joining. A reader that waited for the topic to appear expects all of its messages: with
    // `from_the_first`, those that are already gone count as lost.
    Status attach(Start start, bool from_the_first = false) {
        uint64_t held = own().hold.load(std::memory_order_acquire) & kPositionMask;
        if (always_holds_ && held != kNoHold) {
            // Enrolled, and held for us from the beginning; or it goes on where a pipe's last reader stopped, and what
            // that one read is not lost.
            from_the_first = false;
            position_ = seen_ = hold_ = held;
            uint64_t commit = ring_.header.commit.load(std::memory_order_acquire) & kPositionMask;
            if (position_ > commit || commit > kMaxPosition || commit - position_ > ring_.capacity_bytes)
                return Status::corrupt;
            // relaxed: came with `commit`, and the hold keeps it.
            number_here_ = ring_.word_at(position_).load(std::memory_order_relaxed);
        } else if (!jump(start)) {
            return Status::corrupt;
        }
        expected_ = from_the_first ? 0 : number_here_;
        count_lost(number_here_);
        publish_progress();
        // [READY] release: our position, and our hold if we have one. Pairs with wait_for_readers: we receive every
        // message that is sent after it has counted us.
        own().busy.store(0, std::memory_order_release);
        ring_.header.membership.fetch_add(1, std::memory_order_release);
        wake(ring_.header.membership.futex());
        return Status::ok;
    }

    bool has_more() {
        if (position_ != seen_) return true;
        if (short_looks_ >= kShortLooks) [[unlikely]]
            look_after_a_pause();
        else
            look_at_once();
        for (uint64_t ahead = 64; ahead < kPrefetchBytes && position_ + ahead < seen_; ahead += 64)
            prefetch_to_read(ring_.at(position_ + ahead));
        return position_ != seen_;
    }

    // Before a look that waits for a single message: its line comes together with that of `commit`, not after it.
    void expect_one() const { prefetch_to_read(ring_.at(position_)); }

    // For a reader to which the time of each message matters more than how many it gets.
    void never_pause() { short_looks_ = INT64_MIN / 2; }

    // What to sleep on while there is no message. An empty bell: one has come meanwhile, or the topic was removed.
    Bell bell() {
        Bell bell = arm(ring_.header.bell);
        CRASH_POINT("read: about to sleep");
        return may_sleep() ? bell : Bell{};
    }
    // The same in steps, for a sleep on many bells: arm each, make the barrier once, ask each.
    Bell arm_bell() { return arm_before_barrier(ring_.header.bell); }
    bool may_sleep() const {
        // [OBSERVE] acquire: pairs with [COMMIT]. A removal is seen here too, or has changed the bell: [RETIRE].
        uint64_t commit = ring_.header.commit.load(std::memory_order_acquire);
        return (commit & kPositionMask) == position_ && !(commit & kRetired);
    }

    // Finds the next message without moving on. After ok, the payload may be read; then still_whole(), then take().
    [[gnu::always_inline]] Status peek(View& view) {
        for (int attempt = 0; attempt < kMaxAttempts && has_more(); ++attempt) {
            if (conflate_) [[unlikely]]
                skip_to_newest();
            uint64_t at = position_;
            Envelope e = Envelope::load(ring_, at);
            if (!held(at) && !intact(at)) {
                if (!lapped()) return Status::corrupt;
                continue;
            }
            // The sizes can be trusted no further than the writer, which may be buggy or hostile.
            uint64_t bytes = e.bytes(), there = seen_ - at;
            if (there > ring_.capacity_bytes || bytes > there) [[unlikely]]
                return Status::corrupt;
            view = {at, at + bytes, e.seq, e.time_ns, ring_.at(at), e.size, e.sender_size, e.kind_size};
            CRASH_POINT("read: message found, not copied");
            return Status::ok;
        }
        return position_ == seen_ ? Status::empty : Status::corrupt;
    }

    // Finds the next message as peek() does, and on `bus` holds it: no writer overwrites it before release(). Readers
    // of the waiting contracts hold anyway; readers of `broadcast` and observers never do.
    Status borrow(View& view) {
        if (!holds_borrowed_) return peek(view);
        if (hold_ != kNoHold) return peek(view);  // the hold of an older message covers all later ones
        if (!borrows_) say_that_we_borrow();
        for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
            if (!move_hold(position_)) return Status::taken_over;
            // [HOLD] announced before we look at `claim`. Pairs with [LOOK] and [CLAIM].
            fence(std::memory_order_seq_cst);
            CRASH_POINT("read: hold announced");
            Status status = peek(view);
            if (status == Status::ok && view.position == hold_) {
                held_from_ = hold_;
                return status;
            }
            if (status != Status::ok) {
                (void)move_hold(kNoHold);
                return status;
            }
            // Lapped, or gone forward to the newest: the hold is not at the message found. Try again from there.
        }
        (void)move_hold(kNoHold);
        return Status::corrupt;
    }

    bool still_whole(const View& view) const { return held(view.position) || intact(view.position); }

    // Moves on past the message; returns how many were lost just before it.
    [[gnu::always_inline]] uint64_t take(const View& view) {
        skip(view);
        ++messages_;
        bytes_ += view.size;
        uint64_t gap = pending_lost;
        pending_lost = 0;
        CRASH_POINT("read: taken, hold not moved");
        return gap;
    }

    // Moves on past a message that is screened out.
    void skip(const View& view) {
        count_lost(view.seq);
        expected_ = view.seq + 1;
        position_ = view.end;
        if (position_ + kPrefetchBytes < seen_) prefetch_to_read(ring_.at(position_ + kPrefetchBytes));
    }

    // Lets the writer overwrite everything below `keep`; on the waiting contracts at most what we have read.
    // kNoHold: nothing is needed beyond what the contract says. False: the slot is no longer ours.
    [[gnu::always_inline]] bool release(uint64_t keep = kNoHold) {
        uint64_t hold = always_holds_ ? std::min(keep, position_) : holds_borrowed_ ? keep : kNoHold;
        publish_progress();
        return hold == hold_ || move_hold(hold);
    }

    // Where the reader is, to go back to before the messages taken since are given to a caller. Only before release().
    struct Mark {
        uint64_t position, expected, messages, bytes, lost, pending_lost;
    };
    Mark mark() const { return {position_, expected_, messages_, bytes_, lost, pending_lost}; }
    void back_to(const Mark& mark) {
        position_ = mark.position;
        expected_ = mark.expected;
        messages_ = mark.messages;
        bytes_ = mark.bytes;
        lost = mark.lost;
        pending_lost = mark.pending_lost;
    }

  private:
    // With an honest writer a few attempts are enough; a hostile one must not keep us here endlessly.
    static constexpr int kMaxAttempts = 10'000;
    // A reader that keeps up with a busy writer looks at `commit` for every message, and each look takes the line away from the
    // writer: both become slower. So after several looks in a row that found a little, it pauses before each, for one to three
    // microseconds, until it is far behind. Where a pause finds no more, as when messages are sent one by one, many looks do
    // without.
#if defined(RINGMAIN_EXPLORE)
    static constexpr int64_t kShortLooks = INT64_MAX;
#else
    static constexpr int64_t kShortLooks = 16;
#endif
    static constexpr uint64_t kFewBytes = 512, kManyBytes = 4096;
    static constexpr int kGatherPauses = 64;
    static constexpr int kLooksWithoutPause = 256;
    static constexpr uint64_t kPrefetchBytes = 128;  // of what is committed: those lines are the writer's
    static constexpr int kMaxWalks = 16;  // each looks at every message of the ring, if the hint is bad

    Ring ring_;
    Slot* own_;
    bool fences_;  // see light_barrier
    bool always_holds_, holds_borrowed_, conflate_;
    bool borrows_ = false;  // the writers know that we borrow
    Start on_lap_;
    uint64_t position_ = 0;     // of the next message
    uint64_t expected_ = 0;     // its number
    uint64_t seen_ = 0;         // `commit` when last looked at: no need to look again before
    int64_t short_looks_ = 0;   // looks at `commit` in a row that found a little; negative: so many to go
    uint64_t found_bytes_ = 0;  // by the last look without a pause that found any
    uint64_t hold_ = kNoHold;   // what our hold word says
    uint64_t held_from_ =
        kNoHold;                // the hold, once a look at `claim` has confirmed it: no writer overwrites it
    uint64_t number_here_ = 0;  // the number of the message where jump() went
    uint64_t messages_ = 0, bytes_ = 0;

    Slot& own() const { return *own_; }

    // [CHECK] acquire fence, then a relaxed load: if any byte read before was written after a claim, we see
    // that claim. Pairs with [CLAIM].
    bool intact(uint64_t position) const {
        fence(std::memory_order_acquire);
        return ring_.header.claim.load(std::memory_order_relaxed) <= position + ring_.capacity_bytes;
    }

    // Held bytes stay, whatever `claim` says: a writer announces first and looks at the holds afterwards, so a
    // claim may run past a hold while its writer waits for us.
    bool held(uint64_t position) const { return always_holds_ || position >= held_from_; }

    void look() {
        // [OBSERVE] acquire: the bytes below are visible. Pairs with [COMMIT].
        seen_ = ring_.header.commit.load(std::memory_order_acquire) & kPositionMask;
    }
    void look_at_once() {
        look();
        uint64_t found = seen_ - position_;
        if (found == 0) return;
        short_looks_ = found < kFewBytes ? short_looks_ + 1 : std::min<int64_t>(short_looks_, 0);
        found_bytes_ = found;
    }
    // noinline, like all that is rare.
    [[gnu::noinline]] void look_after_a_pause() {
        for (int i = 0; i < kGatherPauses; ++i) pause();
        look();
        uint64_t found = seen_ - position_;
        if (found < 2 * found_bytes_)
            short_looks_ = -kLooksWithoutPause;
        else if (found >= kManyBytes)
            short_looks_ = 0;
    }

    // Where the newest message begins; `commit` if there is none. Whether it is still whole is the caller's to check.
    uint64_t find_newest(uint64_t tail, uint64_t commit) const {
        // relaxed: a hint. A writer that has sealed a message and not committed it, or died there, has changed it already.
        uint64_t newest = ring_.header.newest.load(std::memory_order_relaxed);
        if (newest % kAlignBytes == 0 && tail <= newest && newest < commit) return newest;
        uint64_t found = commit;
        for (uint64_t at = tail, bytes; at < commit && commit - tail <= ring_.capacity_bytes; at += bytes) {
            bytes = Envelope::load(ring_, at).bytes();
            if (bytes > commit - at) return commit;
            found = at;
        }
        return found;
    }

    // Goes to the next message to come, or to the oldest or newest whole one, and reads its number.
    [[gnu::noinline]] bool jump(Start where) {
        for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
            if (where == Start::newest && attempt == kMaxWalks) where = Start::next;
            // [OLDEST] acquire: pairs with [TAIL]; [OBSERVE] acquire: pairs with [COMMIT].
            uint64_t commit = ring_.header.commit.load(std::memory_order_acquire) & kPositionMask;
            uint64_t there =
                where == Start::next ? commit : ring_.header.tail.load(std::memory_order_acquire);
            if (where == Start::newest && there % kAlignBytes == 0 && there <= commit)
                there = find_newest(there, commit);
            if (there % kAlignBytes != 0 || there > kMaxPosition ||
                (where != Start::next && there > commit)) {
                // The writer may have moved both between our two loads.
                continue;
            }
            if (always_holds_) {
                bool lower = there < hold_;  // or none yet: kNoHold
                if (!move_hold(there)) return false;
                // [HOLD] announced before we look at `claim`. We join only once, so that no writer needs to fence. A hold that only
                // goes forward needs no other: writers that have not seen it yet saw a lower one. So a reader that must wait
                // for want of a barrier waits once, and is not lapped again by the writer that its new hold sets free.
                if (lower) process_barrier::make_or_wait();
                CRASH_POINT("read: hold announced");
            }
            // relaxed: checked by intact().
            uint64_t seq = ring_.word_at(there).load(std::memory_order_relaxed);
            if (!intact(there)) continue;
            position_ = there;
            seen_ = commit;
            number_here_ = seq;
            return true;
        }
        return false;
    }

    // noinline, like all that is rare: it must not weigh on peek(), which is inlined where messages are taken.
    [[gnu::noinline]] bool lapped() {
        if (!jump(conflate_ ? Start::oldest : on_lap_) && !jump(Start::next)) return false;
        count_lost(number_here_);
        publish_progress();  // there may be no message to take after it, and yet all is read
        return true;
    }

    // Goes forward to the newest message, if the hint is good. What is passed over is skipped, not lost.
    [[gnu::noinline]] void skip_to_newest() {
        uint64_t commit = ring_.header.commit.load(std::memory_order_acquire) & kPositionMask;
        // relaxed: checked below and by peek().
        uint64_t newest = ring_.header.newest.load(std::memory_order_relaxed);
        if (newest % kAlignBytes != 0 || newest <= position_ || newest >= commit) return;
        uint64_t seq = ring_.word_at(newest).load(std::memory_order_relaxed);
        if (!held(newest) && !intact(newest)) return;
        position_ = newest;
        expected_ = seq;
        seen_ = commit;
    }

    // A conflating reader asks for the newest only: what it passes over is skipped, not lost.
    void count_lost(uint64_t seq) {
        if (seq > expected_ && !conflate_) {
            lost += seq - expected_;
            pending_lost += seq - expected_;
        }
        expected_ = seq;
    }

    // From now on writers fence between `claim` and their look at the holds. Once for each reader: a fence for every stride
    // costs the writers little, and the barrier would cost the borrower much.
    [[gnu::noinline]] void say_that_we_borrow() {
        // [BORROWING] relaxed, an exchange since several readers may store it, then the process-wide barrier: a writer that did not
        // see it has announced its claim to us.
        ring_.header.borrowing.exchange(1, std::memory_order_relaxed);
        process_barrier::make_or_wait();
        borrows_ = true;
    }

    // Moves the hold. False: the slot is no longer ours, and the hold stays as it is.
    [[gnu::always_inline]] bool move_hold(uint64_t position) {
        // relaxed: only we change it, unless we were taken for dead. A reaper between this and the store is not noticed until
        // the next move; what we stored then is dropped by the writer that it blocks (holds_wrongly).
        if (own().hold.load(std::memory_order_relaxed) != hold_) [[unlikely]]
            return false;
        // [MOVE] release: our reads of the bytes below come before the writer's next writes. Pairs with [LOOK].
        own().hold.store(position, std::memory_order_release);
        light_barrier(fences_);  // before the look at the bell
        hold_ = position;
        if (held_from_ < position) held_from_ = position;
        CRASH_POINT("read: hold moved, bell not rung");
        ring_if_armed(own().awaited);
        return true;
    }

    // relaxed: statistics.
    [[gnu::always_inline]] void publish_progress() {
        own().position.store(position_, std::memory_order_relaxed);
        own().sequence.store(expected_, std::memory_order_relaxed);
        own().messages.store(messages_, std::memory_order_relaxed);
        own().bytes.store(bytes_, std::memory_order_relaxed);
        own().lost.store(lost, std::memory_order_relaxed);
    }
};

}  // namespace ringmain
