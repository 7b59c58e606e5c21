// A writer that waits: for room, for its turn, for readers. Owns these invariants: a wait behind a participant that does not
// move sleeps, looks whether it has died, and hears its host; a try that is not followed by a sleep was made because
// another participant has changed a word.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rule/writer.hpp"
#include "topic/participant.hpp"
#include "topic/reaping.hpp"
#include "waiting/host.hpp"
#include "waiting/sleep.hpp"
#include "waiting/spin.hpp"

namespace ringmain {

class Event;

// Has it given way? A hint: begin() and prepare() look again.
inline bool gone(const TopicFile& s, const Obstacle& o) {
    // relaxed, both: compared again.
    if (o.is_turn) return turn_taking(s.header().turn.load(std::memory_order_relaxed)) != o.taking;
    uint64_t hold = s.slot(o.slot).hold.load(std::memory_order_relaxed) & kPositionMask;
    return hold == kNoHold || hold + s.capacity_bytes >= o.end;
}

// False: another has taken over, or the topic was removed. begin() says so.
inline bool may_write(const TopicFile& s, uint32_t slot) {
    uint64_t turn = s.header().turn.load(std::memory_order_acquire);
    return traits(s.contract).one_writer ? turn_slot(turn, s.slot_count) == slot : !turn_over(turn);
}

// Sleeps until a reader may have joined or left since `seen`. No death is awaited: a reader that dies before it has rung does not
// count.
template <Host H>
void sleep_for_readers(const std::shared_ptr<TopicFile>& file, uint32_t seen, Deadline& deadline, H& host) {
    Bell bell{file->header().membership.futex(), seen};
    host.sleep(bell.word, file, [&] { return sleep(bell, std::min(kLongestSlice_ns, deadline.left_ns())); });
}

// Until so many readers take part; `readers`: so many do. timed_out: fewer.
template <Host H>
Outcome wait_for_readers(const std::shared_ptr<TopicFile>& file, int64_t wanted, uint32_t& readers,
                         Deadline& deadline, H& host) {
    for (;;) {
        // acquire: what we count is at least as new. A reader that joins or leaves changes it afterwards.
        uint32_t seen = file->header().membership.load(std::memory_order_acquire);
        readers = living_readers(*file);
        if (readers >= wanted) return Outcome::ready;
        if (deadline.left_ns() == 0) return Outcome::timed_out;
        sleep_for_readers(file, seen, deadline, host);
        if (!host.goes_on()) return Outcome::stopped;
    }
}

// A writer that is faster than the reader it waits for fills each gap at once, and waits again: it looks at all holds for a few
// messages, and each look takes the line of the hold away from the reader. So after some such waits in a row it lets room gather before
// it goes on, as a reader does with messages.
class GathersRoom {
#if defined(RINGMAIN_EXPLORE)
    static constexpr int kShortWaits = INT32_MAX;
#else
    static constexpr int kShortWaits = 16;  // in a row
#endif
    static constexpr uint64_t kFewBytes = 512;  // written from one wait to the next
    static constexpr int kPauses = 64;          // one to three microseconds
    static constexpr int kWaitsWithout = 256;   // after a pause in which little came
    uint64_t waited_for_ = 0;                   // the last time, up to there
    int short_waits_ = 0;                       // negative: so many to go

  public:
    // The room that was waited for is there. noinline, like all that is rare.
    [[gnu::noinline]] void before_going_on(const TopicFile& s, const Obstacle& o) {
        uint64_t written = o.end - std::exchange(waited_for_, o.end);
        short_waits_ = written < kFewBytes ? short_waits_ + 1 : std::min(short_waits_, 0);
        if (short_waits_ < kShortWaits) return;
        const Word<uint64_t>& hold = s.slot(o.slot).hold;
        // relaxed, both: compared with each other.
        uint64_t before = hold.load(std::memory_order_relaxed);
        for (int i = 0; i < kPauses; ++i) pause();
        if (hold.load(std::memory_order_relaxed) - before < 2 * written) short_waits_ = -kWaitsWithout;
    }
};

// One thread at a time, and while it waits others change nothing of it.
struct BlockingWriter {
    std::unique_ptr<Participant> participant;
    std::unique_ptr<Writer> writer;
    Spin spin;
    uint32_t min_readers = 0;           // send waits while fewer take part
    uint64_t enough_at = kNeverEnough;  // `membership` when there were enough readers: no need to count again
    bool lacks_readers = false;         // what the last send waited for in vain
    uint32_t membership_seen = 0;       // `membership` then
    uint32_t readers_seen = 0;          // and so many took part
    bool spins_for_room = true;  // of the wait for room under way: not again after a whole slice in vain
    GathersRoom gathers_room;
    static constexpr uint64_t kNeverEnough = UINT64_MAX;

    const Ring& ring() const { return writer->ring(); }
    const TopicFile& topic_file() const { return participant->topic_file(); }

    // acquire: what we count is at least as new. A reader that joins or leaves changes it afterwards.
    uint32_t membership() const { return topic_file().header().membership.load(std::memory_order_acquire); }
    bool has_enough_readers() const { return min_readers == 0 || enough_at == membership(); }

    // The turn, and room for a message: without waiting, and without looking at why.
    [[gnu::always_inline]] bool start_at_once(uint64_t room) {
        Writer& w = *writer;
        if (w.begin() == Status::ok) [[likely]] {
            if (w.prepare(room) == Status::ok) [[likely]]
                return true;
            w.end();
        }
        return false;
    }
    // The same, waiting until the deadline. While it waits, it does not have the turn. After `ready`, the message can be
    // written, sealed and committed.
    template <Host H>
    Outcome start(uint64_t room, Deadline& deadline, H& host);
    // More room for the message that was started, which keeps the turn.
    template <Host H>
    Outcome extend(uint64_t room, Deadline& deadline, H& host);
    // Until `min_readers` take part.
    template <Host H>
    Outcome wait_for_min_readers(Deadline& deadline, H& host);

    // After timed_out: whom it waits for, in words, and as participants.
    std::string describe_obstacle() const;
    std::optional<ParticipantInfo> obstacle() const;
    // After timed_out or too_few: rings the event when there may be room, or enough readers. Returns its token; 0: try again now.
    uint64_t watch_for_room(const std::shared_ptr<Event>& event);
};

// Does the writer whose turn it is send nothing? It rests, or is in the middle of a message for long, or has stopped or died: to
// spin any longer is no use. We seldom look at its slot, which it changes with every message.
class Silence {
    static constexpr unsigned kLooksAtTurn = 64;  // a few microseconds
    static constexpr unsigned kLong = 6;          // so many times that
    unsigned looks_ = 0, in_vain_ = 0;
    uint64_t sent_ = UINT64_MAX;

  public:
    bool of(const TopicFile& s, const Obstacle& o) {
        if (!o.is_turn || ++looks_ % kLooksAtTurn != 0) return false;
        const Slot& owner = s.slot(o.slot);
        // relaxed, both: a guess.
        uint64_t before = std::exchange(sent_, owner.messages.load(std::memory_order_relaxed));
        in_vain_ = sent_ == before ? in_vain_ + 1 : 0;
        return in_vain_ != 0 && (in_vain_ >= kLong || owner.busy.load(std::memory_order_relaxed) == 0);
    }
};

// All tries of one wait for room or for the turn. While it lasts, from the first sleep on, the slot says which participant the
// writer waits for: one that awakes and tries again is still seen to wait.
class RoomWait {
    BlockingWriter& w_;
    Deadline& deadline_;
    // Who has no time to wait for room still waits for the turn: the message of the writer that has it ends soon.
    Deadline for_turn_{1'000'000};

    int64_t left_ns(const Obstacle& o) {
        int64_t left = deadline_.left_ns();
        return left == 0 && o.is_turn ? for_turn_.left_ns() : left;
    }

    // Adds the time since then to what the writer has waited so far. Only a writer that must wait pays for it.
    void count_blocked(int64_t since_ns) {
        Word<uint64_t>& total = w_.participant->own().blocked_ns;
        // relaxed: statistics, which the owner alone writes.
        uint64_t before_ns = total.load(std::memory_order_relaxed);
        total.store(before_ns + static_cast<uint64_t>(monotonic_ns() - since_ns), std::memory_order_relaxed);
    }

    // False: the host has ended the wait.
    template <Host H>
    bool spin(const Obstacle& o, H& host) {
        const TopicFile& s = w_.topic_file();
        bool stopped = false;
        auto ready = [&, silence = Silence()]() mutable { return gone(s, o) || silence.of(s, o); };
        auto stop = [&] { return (stopped = !host.goes_on()) || slot_dead(s, o.slot); };
        // To ask for the turn cuts short what its owner does. So none does while it goes round.
        (void)(o.is_turn ? w_.spin.while_it_moves(left_ns(o), ready, stop, host)
                         : w_.spin.until(left_ns(o), ready, stop, host));
        return !stopped;
    }

    // Outside. Throws a Failure.
    void sleep(const Obstacle& o) {
        if (reap_if_dead(w_.topic_file(), o.slot)) return;
        Bell bell = w_.writer->arm();
        if (bell.word)
            w_.spins_for_room =
                ringmain::sleep(bell, std::min(kObstacleSlice_ns, left_ns(o))) != Woken::timed_out;
    }

  public:
    RoomWait(BlockingWriter& w, Deadline& deadline) : w_(w), deadline_(deadline) { w.spins_for_room = true; }
    ~RoomWait() {
        Word<uint32_t>& waits_for = w_.participant->own().waits_for;
        // relaxed: for observers. The owner alone writes it.
        if (waits_for.load(std::memory_order_relaxed)) waits_for.store(0, std::memory_order_relaxed);
    }
    RoomWait(const RoomWait&) = delete;
    RoomWait& operator=(const RoomWait&) = delete;

    // After `blocked`: waits until the obstacle may be gone. ready: try again.
    template <Host H>
    Outcome once(H& host) {
        const TopicFile& s = w_.topic_file();
        Obstacle o = w_.writer->obstacle;
        int64_t since_ns = monotonic_ns();
        if (left_ns(o) == 0) return reap_if_dead(s, o.slot) ? Outcome::ready : Outcome::timed_out;
        if (w_.spins_for_room && !spin(o, host)) return Outcome::stopped;
        // Not what the spin found: it also ends where it is no use. A writer that keeps the turn may rest; then we take it, once,
        // without the roster lock, which a stopped process may have.
        if (gone(s, o)) {
            w_.spins_for_room = true;
            if (!o.is_turn && !w_.spin.asked_for()) w_.gathers_room.before_going_on(s, o);
        } else if (!o.is_turn || !w_.writer->take_idle_turn()) {
            w_.participant->own().waits_for.store(o.slot + 1,
                                                  std::memory_order_relaxed);  // relaxed: for observers
            host.outside([&] { sleep(o); });
        }
        count_blocked(since_ns);
        return host.goes_on() ? Outcome::ready : Outcome::stopped;
    }
};

inline Outcome outcome_of(Status status) {
    return status == Status::taken_over ? Outcome::taken_over : Outcome::corrupt;
}

template <Host H>
Outcome BlockingWriter::start(uint64_t room, Deadline& deadline, H& host) {
    if (!has_enough_readers())
        if (Outcome how = wait_for_min_readers(deadline, host); how != Outcome::ready) return how;
    RoomWait wait(*this, deadline);
    if (deadline.left_ns() == 0) writer->take_idle_turn();
    for (;;) {
        Status status = writer->begin();
        if (status == Status::ok) [[likely]] {
            status = writer->prepare(room);
            if (status == Status::ok) [[likely]]
                return Outcome::ready;
            writer->end();
        }
        if (status != Status::blocked) return outcome_of(status);
        if (Outcome how = wait.once(host); how != Outcome::ready) return how;
    }
}

template <Host H>
Outcome BlockingWriter::extend(uint64_t room, Deadline& deadline, H& host) {
    Status status = writer->prepare(room);
    if (status == Status::ok) return Outcome::ready;
    RoomWait wait(*this, deadline);
    while (status == Status::blocked) {
        if (Outcome how = wait.once(host); how != Outcome::ready) return how;
        status = writer->prepare(room);
    }
    return status == Status::ok ? Outcome::ready : outcome_of(status);
}

template <Host H>
Outcome BlockingWriter::wait_for_min_readers(Deadline& deadline, H& host) {
    const TopicFile& s = topic_file();
    for (;;) {
        uint32_t seen = membership();
        lacks_readers = false;
        if (enough_at == seen) [[likely]]
            return Outcome::ready;
        if (!may_write(s, participant->slot())) return Outcome::ready;
        readers_seen = living_readers(s);
        if (readers_seen >= min_readers) {
            enough_at = seen;
            return Outcome::ready;
        }
        lacks_readers = true;
        membership_seen = seen;
        enough_at = kNeverEnough;
        if (deadline.left_ns() == 0) return Outcome::too_few;
        sleep_for_readers(participant->shared(), seen, deadline, host);
        if (!host.goes_on()) return Outcome::stopped;
    }
}

}  // namespace ringmain
