// The writer's side of the rule: take the turn, make room, announce, look at the holds, write, commit. See ring.hpp.
#pragma once

#include "rule/kept.hpp"
#include "rule/turn_ticket.hpp"
#include "rule/work_queue.hpp"

namespace ringmain {

// What blocks a writer: the participant in a slot, which either has the turn or holds bytes below `end - capacity`.
struct Obstacle {
    uint32_t slot = 0;
    bool is_turn = false;
    uint64_t end = 0;     // of a hold
    uint64_t taking = 0;  // of the turn: see turn_taking
};

class Writer {
  public:
    Obstacle obstacle;

    Writer(Ring ring, uint32_t slot)
        : ring_(ring),
          slot_(slot),
          own_(ring.slots + slot),
          fences_(!process_barrier::registered()),
          // An eighth of the ring at a time. At most 256 KiB: a longer stride would drop too much history of a big ring.
          stride_bytes_(std::min<uint64_t>(ring.capacity_bytes / 8, 256 * 1024)) {}

    const Ring& ring() const { return ring_; }
    uint64_t seq() const { return seq_; }
    uint64_t position() const { return position_; }

    // Call once after joining: on a one-writer contract the turn is ours from now on.
    Status attach() {
        // relaxed: what the writer before us did came with the roster lock.
        uint64_t seen = ring_.header.turn.load(std::memory_order_relaxed);
        if (ring_.contract.one_writer && turn_slot(seen, ring_.slot_count) == slot_) kept_ = seen;
        return refresh();
    }

    // Goes on with the turn, which a writer keeps while no other asks for it, or takes it. Either end() or commit() must
    // follow.
    Status begin() {
        // [BUSY] relaxed, then a light barrier: the processor may still let the load pass the store. A writer that asks for the
        // turn, or takes over, makes up for it with a process-wide barrier, so a publish pays nothing.
        own().busy.store(1, std::memory_order_relaxed);
        light_barrier(fences_);
        uint64_t seen = ring_.header.turn.load(std::memory_order_relaxed);
        return seen == kept_ ? Status::ok : begin_slow_path(seen);
    }

    // Makes `room` bytes writable at position(). May be called again with more.
    Status prepare(uint64_t room) {
        return position_ + room <= safe_end_ ? Status::ok : prepare_stride(room);
    }

    // After `blocked`: what to sleep on until the obstacle is gone. An empty bell: it is gone already, try again.
    Bell arm() {
        CRASH_POINT("publish: about to sleep");
        if (obstacle.is_turn) {
            takes_idle_turn_ = true;
            uint64_t seen = ring_.header.turn.load(std::memory_order_relaxed);  // relaxed: compared again
            if (turn_slot(seen, ring_.slot_count) != obstacle.slot || !ask(seen)) return {};
            waited_for_turn_ = true;
            bool always_wakes = process_barrier::make();
            // [IDLE] acquire: it rests, and begin() takes the turn from it. Otherwise it sees at its end that we ask.
            if (ring_.slots[obstacle.slot].busy.load(std::memory_order_acquire) == 0) return {};
            return {ring_.header.turn.futex(), static_cast<uint32_t>(seen), always_wakes};
        }
        Slot& holder = ring_.slots[obstacle.slot];
        Bell bell = ringmain::arm(holder.awaited);
        // acquire: what the reader read before it moved its hold comes before what we write.
        uint64_t hold = holder.hold.load(std::memory_order_acquire) & kPositionMask;
        if (hold == kNoHold || hold + ring_.capacity_bytes >= obstacle.end) return {};
        return bell;
    }

    // From now on, until it has the turn, begin() takes it from a writer at rest. False if already set.
    bool take_idle_turn() { return !std::exchange(takes_idle_turn_, true); }

    std::byte* payload(uint64_t sender_size, uint64_t kind_size) const {
        return ring_.at(position_) + payload_offset(sender_size, kind_size);
    }

    // Writes everything but the payload, which the caller writes before commit().
    void seal(uint64_t seq, int64_t time_ns, uint64_t size, std::string_view sender, std::string_view kind) {
        std::byte* at = ring_.at(position_);
        Envelope{seq, time_ns, static_cast<uint32_t>(size), static_cast<uint8_t>(sender.size()),
                 static_cast<uint8_t>(kind.size())}
            .store(at);
        copy_names(at, sender, kind);
        last_start_ = position_;
        position_ += footprint(size, sender.size(), kind.size());
        seq_ = seq + 1;
        pause_ns_ = time_ns - std::exchange(last_ns_, time_ns);
        ++messages_;
        bytes_ += size;
        sealed_ = true;
        CRASH_POINT("publish: written, not committed");
    }

    // Writes and seals messages with one envelope for all: at least one, for which there is room, and as many more as have
    // room and end at or below `limit`. Returns how many. All that it needs is in registers: what it writes could be its own
    // fields, for all that the compiler knows.
    [[gnu::always_inline]] size_t seal_run(const std::string_view* messages, size_t count, uint64_t limit,
                                           int64_t time_ns, std::string_view sender, std::string_view kind) {
        std::byte* data = ring_.data;
        uint64_t mask = ring_.capacity_bytes - 1, end = std::min(limit, safe_end_), bytes = 0, start;
        uint64_t position = position_, seq = seq_, offset = payload_offset(sender.size(), kind.size());
        size_t done = 0;
        do {
            std::string_view message = messages[done];
            std::byte* at = data + (position & mask);
            Envelope{seq++, time_ns, static_cast<uint32_t>(message.size()),
                     static_cast<uint8_t>(sender.size()), static_cast<uint8_t>(kind.size())}
                .store(at);
            if (offset != sizeof(MessageHeader)) copy_names(at, sender, kind);
            copy_in(at + offset, message.data(), message.size());
            prefetch_to_write(data + ((position + kPrefetchBytes) & mask));
            start = position;
            bytes += message.size();
            position += offset + align_up(message.size());
            CRASH_POINT("publish: written, not committed");
        } while (++done < count && position + room_for(offset + align_up(messages[done].size())) <= end);
        last_start_ = start;
        position_ = position;
        seq_ = seq;
        pause_ns_ = time_ns - std::exchange(last_ns_, time_ns);
        messages_ += done;
        bytes_ += bytes;
        sealed_ = true;
        return done;
    }

    // Makes visible all that was sealed since begin(), ends the turn, and rings the bell.
    [[gnu::always_inline]] void commit() {
        // relaxed: made visible by [COMMIT].
        ring_.word_at(position_).store(seq_, std::memory_order_relaxed);
        ring_.header.newest.store(last_start_, std::memory_order_relaxed);
        // [COMMIT] release: the bytes above become visible. Pairs with [OBSERVE].
        ring_.header.commit.store(position_, std::memory_order_release);
        light_barrier(fences_);  // before the look at the bell
        CRASH_POINT("publish: committed, turn kept");
        sealed_ = false;
        // relaxed: statistics.
        own().messages.store(messages_, std::memory_order_relaxed);
        own().bytes.store(bytes_, std::memory_order_relaxed);
        end_turn();
        CRASH_POINT("publish: turn given back, bell not rung");
        ring_if_armed(ring_.header.bell);
        if (ring_.contract.shared) WorkQueue(ring_).wake_one_worker_after_barrier();
    }

    // Ends the turn, or rests: then it stays ours until another writer wants it. What was sealed and not committed is discarded.
    void end() {
        if (sealed_) {  // a writer that keeps the turn does not look at the words again
            sealed_ = false;
            messages_ = own().messages.load(std::memory_order_relaxed);  // relaxed: our own
            bytes_ = own().bytes.load(std::memory_order_relaxed);
            position_ = 0;  // back to `commit`: refresh() only moves forward
            (void)refresh();
        }
        end_turn();
    }

  private:
    static constexpr uint64_t kPrefetchBytes = 256;  // lines that the readers have, and we need soon
    static constexpr int kMaxLooks = 1000;           // with honest workers and writers a few are enough
    static constexpr uint64_t kNoTurn = UINT64_MAX;
    // After it has met a rival, a writer gives the turn back so many times without being asked, because asking costs more
    // than taking. One that meets no other meanwhile keeps it again. In a burst, messages that follow each other at once,
    // it gives the turn back only after so many bytes: handing it over costs more than a message.
#if defined(RINGMAIN_EXPLORE)
    static constexpr uint32_t kRivalry = 1;
    static constexpr uint64_t kBurstBytes = 33;  // two small messages
    static constexpr int kLeavePauses = 0;
#else
    static constexpr uint32_t kRivalry = 64;
    static constexpr uint64_t kBurstBytes = 4096;
    static constexpr int kLeavePauses =
        32;  // about a microsecond: a writer that spins takes the turn meanwhile
#endif
    static constexpr int64_t kBurstPause_ns = 2'000;

    Ring ring_;
    uint32_t slot_;
    Slot* own_;
    bool fences_;              // see light_barrier
    uint32_t rivalry_ = 0;     // so many more times the turn is given back without being asked for
    uint64_t kept_ = kNoTurn;  // `turn`, if it has been ours since we last read the words and no writer asks
    uint64_t position_ = 0;    // where the next message begins: `commit`, while it is our turn
    uint64_t seq_ = 0;         // its number
    uint64_t tail_ = 0, claim_ = 0;  // our copies of the words
    uint64_t safe_end_ = 0;          // no hold blocks the bytes below this, now or later: see look_at_holds
    uint64_t stride_bytes_;
    uint64_t last_start_ = 0;  // where the newest message begins
    bool waited_for_turn_ = false;
    bool takes_idle_turn_ = false;        // takes the turn from a writer at rest
    TurnTicket ticket_;                   // while it is not ours
    int64_t came_ns_ = 0;                 // for the turn, since then; 0: it is ours
    bool waits_for_others_ = false;       // has found another's turn since
    uint64_t burst_begin_ = 0;            // position_ when we took the turn
    int64_t last_ns_ = 0, pause_ns_ = 0;  // the time of the last message, and how long after the one before
    uint64_t messages_ = 0, bytes_ = 0;   // those that are not committed, too
    bool sealed_ = false;                 // some are not committed yet

    // noinline: most messages have no names.
    [[gnu::noinline]] static void copy_names(std::byte* at, std::string_view sender, std::string_view kind) {
        std::byte* names = at + sizeof(MessageHeader);
        copy_in(names, sender.data(), sender.size());
        copy_in(names + sender.size(), kind.data(), kind.size());
    }

    [[gnu::always_inline]] void end_turn() {
        if (rivalry_ != 0 && !is_in_burst()) [[unlikely]] {
            give_back();
            return rest();
        }
        rest();
        light_barrier(fences_);
        CRASH_POINT("publish: at rest, turn kept");
        // relaxed: a writer that asks makes the process-wide barrier. It sees that we rest, or we see that it asks.
        uint64_t turn = ring_.header.turn.load(std::memory_order_relaxed);
        if (turn != kept_) [[unlikely]]
            end_of_kept(turn);
    }

    Slot& own() const { return *own_; }

    // [RELEASE] release: pairs with [IDLE].
    void rest() { own().busy.store(0, std::memory_order_release); }

    // May we go on though another writer wants the turn? It cannot take it before it has asked.
    bool is_in_burst() const { return position_ - burst_begin_ < kBurstBytes && pause_ns_ < kBurstPause_ns; }
    // noinline, as all that only several writers reach.
    [[gnu::noinline]] void end_of_kept(uint64_t turn) {
        if (turn != (kept_ | kTurnWanted) || !is_in_burst()) give_back();
    }

    // noinline: not reached by a writer that has kept the turn.
    [[gnu::noinline]] Status begin_slow_path(uint64_t seen) {
        if (seen == (kept_ | kTurnWanted) && position_ - burst_begin_ < kBurstBytes) return Status::ok;
        // A writer that took the turn since we had it is a rival.
        if (kept_ != kNoTurn && seen != turn_given_back(kept_)) rivalry_ = kRivalry;
        Status status = ring_.contract.one_writer ? Status::taken_over : try_to_take(seen);
        if (status == Status::ok) return took_turn();
        rest();
        return status;
    }

    // Takes the turn if it is free, or if the writer that has it rests.
    Status try_to_take(uint64_t seen) {
        if (came_ns_ == 0) came_ns_ = monotonic_ns();
        for (int attempt = 0; attempt < kMaxLooks; ++attempt) {
            if (turn_over(seen)) return Status::taken_over;
            if (turn_taking(seen) == kept_) {
                give_back();  // the writer that asks may have seen us at rest
                seen = ring_.header.turn.load(std::memory_order_relaxed);  // relaxed: compared again
                continue;
            }
            if (turn_free(seen)) {
                ticket_.come_to_free(ring_, seen);
                seen = leave_to_others(seen);
                if (!turn_free(seen)) continue;
            } else {
                uint32_t owner = turn_slot(seen, ring_.slot_count);
                if (owner == kNoSlot) return Status::corrupt;
                if (owner == slot_) return Status::taken_over;  // our slot was given to another writer
                rivalry_ = kRivalry;
                ticket_.come_to_taken(ring_, seen);
                waits_for_others_ = true;
                obstacle = {owner, true, 0, turn_taking(seen)};
                if (!takes_idle_turn_) {
                    // relaxed: a wish. The owner gives the turn back when it likes; who cannot wait for that asks.
                    if (seen & kTurnWanted || ring_.header.turn.compare_exchange(seen, seen | kTurnWanted,
                                                                                 std::memory_order_relaxed))
                        return Status::blocked;
                    continue;
                }
                const Word<uint32_t>& busy = ring_.slots[owner].busy;
                // relaxed: a hint. In the middle of a message it soon ends its turn, or sees that we ask: arm().
                if (busy.load(std::memory_order_relaxed) != 0) return Status::blocked;
                if (!ask(seen)) continue;
                process_barrier::make_or_wait();
                CRASH_POINT("turn: asked for, not taken");
                // [IDLE] acquire: all that the owner did. Pairs with [RELEASE] in rest().
                if (busy.load(std::memory_order_acquire) != 0) return Status::blocked;
            }
            if (take_turn(seen)) return Status::ok;
        }
        obstacle = {slot_, true, 0};  // the turn changes hands all the time: try again
        return Status::blocked;
    }

    // Lets those that come before us take the turn. `turn` as it is then.
    uint64_t leave_to_others(uint64_t seen) {
        for (int i = 0; i < kLeavePauses && turn_free(seen) && ticket_.others_before(seen); ++i) {
            pause();
            seen = ring_.header.turn.load(std::memory_order_relaxed);  // relaxed: compared again
        }
        return seen;
    }

    // Marks the turn of another writer. False: it has changed.
    bool ask(uint64_t& seen) {
        // [ASKED] acq_rel, and the process-wide barrier follows: it sees that we ask, or we see that it is busy. Pairs with [BUSY].
        if (!(seen & kTurnAsked) &&
            !ring_.header.turn.compare_exchange(seen, seen | kTurnAsked, std::memory_order_acq_rel))
            return false;
        seen |= kTurnAsked;
        return true;
    }

    // Others may ask for what we take. One that slept cannot know whether others still sleep: it keeps the mark, too, at worst
    // for one wake-up too many.
    bool take_turn(uint64_t& seen) {
        uint64_t mine = turn_taken(seen, slot_, ticket_.taking(seen));
        uint64_t marked = mine | (seen & (kTurnWanted | kTurnAsked)) | (waited_for_turn_ ? kTurnAsked : 0);
        // [TURN] acq_rel: all that the previous writer did, and who finds the turn ours finds us busy. Pairs with [RELEASE].
        if (!ring_.header.turn.compare_exchange(seen, marked, std::memory_order_acq_rel)) return false;
        kept_ = mine;
        ticket_.discard();
        return true;
    }

    // Gives the turn back, unless it was taken meanwhile, and wakes a writer that waits for it.
    [[gnu::noinline]] void give_back() {
        if (ring_.contract.one_writer) return;
        if (rivalry_ != 0) --rivalry_;
        uint64_t seen = kept_;
        // [RELEASE] release: pairs with [TURN].
        while (!ring_.header.turn.compare_exchange(seen, turn_given_back(kept_), std::memory_order_release)) {
            rivalry_ = kRivalry;
            if (turn_taking(seen) != kept_) return;  // taken: we rested
        }
        if (seen & kTurnAsked) wake(ring_.header.turn.futex(), 1);
    }

    Status took_turn() {
        CRASH_POINT("publish: turn taken");
        waited_for_turn_ = takes_idle_turn_ = false;
        Status status = refresh();
        burst_begin_ = position_;
        int64_t waited_ns = monotonic_ns() - std::exchange(came_ns_, 0);
        if (std::exchange(waits_for_others_, false)) last_ns_ += waited_ns;  // that is no pause
        if (status != Status::ok) {
            give_back();
            rest();
            kept_ = kNoTurn;  // the words are read again before the next message
        }
        return status;
    }

    // Reads the words as the previous writer left them. Those that contradict each other are left alone.
    Status refresh() {
        // acquire: the message before, and the number it left at `commit`. Pairs with [COMMIT].
        uint64_t commit = ring_.header.commit.load(std::memory_order_acquire) & kPositionMask;
        // relaxed: only the writer that has the turn changes these two.
        uint64_t claim = ring_.header.claim.load(std::memory_order_relaxed);
        uint64_t tail = ring_.header.tail.load(std::memory_order_relaxed);
        bool sane = claim <= kMaxPosition && tail <= commit && commit >= position_ && claim >= commit &&
                    claim % kAlignBytes == 0 && tail % kAlignBytes == 0 &&
                    claim - tail <= ring_.capacity_bytes;
        if (!sane) return Status::corrupt;
        claim_ = claim;
        tail_ = tail;
        position_ = commit;
        seq_ = ring_.word_at(position_).load(std::memory_order_relaxed);  // relaxed: came with `commit`
        return Status::ok;
    }

    // noinline: runs once a stride, and must not weigh on what is done for every message.
    [[gnu::noinline]] Status prepare_stride(uint64_t room) {
        uint64_t end = position_ + room;
        if (room > ring_.capacity_bytes) return Status::too_large;
        uint64_t target = std::max({end, position_ + stride_bytes_, claim_});
        if (target > claim_) {
            if (ring_.kept_kinds != 0 && !keep_dropped(ring_, tail_, position_, target))
                return Status::corrupt;
            if (Status status = drop_oldest(target); status != Status::ok) return status;
            CRASH_POINT("publish: tail moved, not claimed");
            // [CLAIM] relaxed, then a release fence: announced before any byte below is written. Pairs with [CHECK]: a
            // reader of new bytes sees it.
            ring_.header.claim.store(target, std::memory_order_relaxed);
            claim_ = target;
        }
        // Also where the claim is that of a writer that died before us: we have read it, and our bytes come after it.
        fence(std::memory_order_release);
        // Announced before we look at the holds, too: one of us and a reader that announces a hold sees the other. A reader
        // that joins makes the process-wide barrier; one that borrows fences, and so do we once a reader does.
        light_barrier(fences_);
        // [BORROWING] relaxed: ordered by these barriers. Pairs with Reader::say_that_we_borrow.
        if (ring_.header.borrowing.load(std::memory_order_relaxed)) fence(std::memory_order_seq_cst);
        CRASH_POINT("publish: claimed, not written");
        return look_at_holds(end);
    }

    Status drop_oldest(uint64_t target) {
        while (tail_ + ring_.capacity_bytes < target) {
            uint64_t bytes = Envelope::load(ring_, tail_).bytes();
            if (bytes > position_ - tail_) return Status::corrupt;
            tail_ += bytes;
        }
        // [TAIL] release: a reader that starts at the oldest finds a whole message there. Pairs with [OLDEST].
        ring_.header.tail.store(tail_, std::memory_order_release);
        return Status::ok;
    }

    // Nothing held is overwritten below the smallest hold plus the capacity. That stays true without another look:
    // a hold only moves forward, and a new one is only good if it is at or above claim - capacity, and claim is
    // already announced. So one look is enough for a whole stride.
    Status look_at_holds(uint64_t end) {
        if (!ring_.contract.shared) return look_once(end);
        for (int attempt = 0; attempt < kMaxLooks; ++attempt) {
            // [RETURNED] seq_cst: while this stays the same, holds go from the queue, which is looked at first, to workers
            // and not back. Otherwise a message could go to a slot that we have looked at from one that we have not.
            uint64_t returned = ring_.header.returned.load(std::memory_order_seq_cst);
            uint64_t safe_before = safe_end_;
            Status status = look_once(end);
            if (status != Status::ok || ring_.header.returned.load(std::memory_order_seq_cst) == returned)
                return status;
            safe_end_ = safe_before;
        }
        obstacle = {kQueueSlot, false, end};
        return Status::blocked;
    }

    Status look_once(uint64_t end) {
        uint64_t safe_end = claim_;
        uint32_t used = ring_.contract.holds == Holds::never ? 0 : ring_.slots_used();
        for (uint32_t i = 0; i < used; ++i) {
            // [LOOK] acquire: what the reader has read comes before what we write. Pairs with [HOLD].
            // seq_cst on a shared contract: a worker that found the cursor where it was has announced its hold to us.
            const Word<uint64_t>& word = ring_.slots[i].hold;
            uint64_t hold = (ring_.contract.shared ? word.load(std::memory_order_seq_cst)
                                                   : word.load(std::memory_order_acquire)) &
                            kPositionMask;
            if (hold == kNoHold || hold + ring_.capacity_bytes >= safe_end) continue;
            if (hold + ring_.capacity_bytes < end) {
                obstacle = {i, false, end};
                return Status::blocked;
            }
            safe_end = std::min(safe_end, hold + ring_.capacity_bytes);
        }
        // Only now, when no hold blocks us: a writer that was blocked must look again.
        safe_end_ = safe_end;
        return Status::ok;
    }
};

}  // namespace ringmain
