// A publisher that is blocked: waits for room or for the turn, reaps a dead participant, and names the one it waits for.
#include "publisher.hpp"

namespace ringmain::py {

PyObject* raise_too_large(const PublisherState& p, uint64_t size, uint64_t envelope_bytes) {
    std::string advice = "; no topic takes more than 4 GiB in one message";
    if (size <= UINT32_MAX) {
        uint64_t needed = size + envelope_bytes + room_for(sizeof(MessageHeader));
        if (!p.ring().contract.writer_waits()) needed *= 2;
        bool keeps = p.ring().kept_kinds != 0;
        if (keeps)
            needed = 1024 * (sizeof(KeptEntry) + sizeof(MessageHeader) + align_up(size) + envelope_bytes);
        advice = "; ask for capacity=" + std::to_string(round_capacity(needed)) + " or more" +
                 (keeps ? ", since a topic with keep_last_per_kind has a 1024th of it for each kind" : "");
    }
    return raise("MessageTooLarge", "a message of " +
                                        (size == UINT64_MAX ? "2^64 or more" : std::to_string(size)) +
                                        " bytes is too large for topic '" + p.topic + "': with its " +
                                        std::to_string(p.ring().capacity_bytes) + " bytes it takes up to " +
                                        std::to_string(p.largest_bytes - envelope_bytes) + advice);
}

PyObject* raise_status(const PublisherState& p, Status status) {
    bool removed = false;
    if (status == Status::taken_over) {
        try {
            removed = finish_removal(p.participant->topic_file());
        } catch (const Failure& failure) {
            return raise(failure);
        }
    }
    if (removed || (status == Status::taken_over && p.participant->topic_file().retired()))
        return raise("TopicNotFound", "topic '" + p.topic + "' was removed; open it again to go on", ENOENT);
    if (status == Status::taken_over)
        return raise("TakenOver",
                     "another writer has taken over topic '" + p.topic + "'; this one cannot send any more",
                     ECONNABORTED);
    return raise_corrupt(p.topic);
}

// Inherited through fork: the slot is the parent's, so join again. Call inside OneAtATime: the threads of a child may all
// come here, and the first one joins for all of them.
static PublisherState* revived(PyObject* self, PublisherState& p) {
    if (p.open() || !p.participant || p.closing) return usable(self);  // another thread was first
    Ref done(PyObject_CallMethod(self, "_revive", nullptr));
    if (!done && p.closing) {  // _revive closed it, and leaves the rest to the thread inside: us
        SavedError error;
        leave_topic(p);
        p.closing = false;
    }
    return done ? usable(self) : nullptr;
}

PublisherState* usable_slowly(PyObject* self) {
    PublisherState* p = reinterpret_cast<PublisherObject*>(self)->state;
    if (p->open() && !p->closing) {
        raise("InUse", "a reservation or stream of topic '" + p->topic +
                           "' is still open, or a view of one is still alive: finish it first");
        return nullptr;
    }
    if (p->participant && !p->closing) {
        if (p->caller.is_us()) return revived(self, *p);
        OneAtATime turn(p->caller);
        return turn.entered ? revived(self, *p) : nullptr;
    }
    raise("Closed", "the publisher of topic '" + p->topic + "' is closed");
    return nullptr;
}

static std::string describe_obstacle(const PublisherState& p) {
    const TopicFile& s = p.participant->topic_file();
    const Obstacle& o = p.writer->obstacle;
    if (p.ring().contract.shared && !o.is_turn && o.slot == kQueueSlot)
        return living_readers(s) == 0 ? "a worker to take its messages: none has come yet"
                                      : "its workers, which have yet to take the oldest messages";
    if (!slot_taken(s, o.slot)) return "its reader, who has not come yet";
    ParticipantInfo m = look_at(s, o.slot, true);
    if (o.is_turn) return m.describe() + ", whose turn it is to write";
    if (p.ring().contract.shared) {
        double since_s = static_cast<double>(wall_ns() - static_cast<int64_t>(m.taken_ns)) / 1e9;
        char text[64];
        snprintf(text, sizeof text, ", which has had a message for %.3g s", m.taken_ns ? since_s : 0.0);
        return m.describe() + text;
    }
    uint64_t behind = (s.header().commit.load(std::memory_order_relaxed) & kPositionMask) - m.hold;
    uint64_t next = p.writer->seq();
    return m.describe() + ", " + std::to_string(next > m.sequence ? next - m.sequence : 0) + " messages (" +
           std::to_string(behind) + " bytes) behind";
}

void leave_topic(PublisherState& p) {
    std::unique_ptr<Participant> participant = std::move(p.participant);
    p.writer.reset();
    WithoutGil unlocked;
    participant.reset();
}

// After a wait: is a signal pending, or was the publisher closed meanwhile? False: raised.
static bool goes_on(PublisherState& p) {
    if (PyErr_CheckSignals() != 0) return false;
    if (!p.closing) return true;
    // A reservation that is being written outlives this wait, and refuses to be closed.
    if (!p.reserved) leave_topic(p);
    raise("Closed", "the publisher of topic '" + p.topic + "' was closed while it waited");
    return false;
}

bool wait_for_min_readers(PublisherState& p, Deadline& deadline) {
    const TopicFile& s = p.participant->topic_file();
    Slices slices;
    for (;;) {
        // acquire: what we count is at least as new. A reader that joins or leaves changes it afterwards.
        uint32_t membership = s.header().membership.load(std::memory_order_acquire);
        p.lacks_readers = false;
        if (p.enough_at == membership) [[likely]]
            return true;
        uint64_t turn = s.header().turn.load(std::memory_order_acquire);
        bool ours = traits(s.contract).one_writer ? turn_slot(turn, s.slot_count) == p.participant->slot()
                                                  : !turn_over(turn);
        if (!ours) return true;  // taken over, or removed: begin() says so
        uint32_t readers = living_readers(s);
        if (readers >= p.min_readers) {
            p.enough_at = membership;
            return true;
        }
        p.lacks_readers = true;
        p.membership_seen = membership;
        p.enough_at = PublisherState::kNeverEnough;
        if (deadline.left_ns() == 0) {
            raise("Full", "topic '" + p.topic + "' had " + std::to_string(readers) + " of " +
                              std::to_string(p.min_readers) + " readers within " +
                              seconds(deadline.timeout_ns()) + ": nothing was sent");
            return false;
        }
        sleep_until_closed(p.sleepers, p.closing, {s.header().membership.futex(), membership},
                           p.participant->shared(), deadline, slices, false, [] { return false; });
        if (!goes_on(p)) return false;
    }
}

// Adds the time since then to what the writer has waited so far. Only a writer that must wait pays for it.
static void count_blocked(PublisherState& p, int64_t since_ns) {
    Word<uint64_t>& total = p.participant->own().blocked_ns;
    // relaxed: statistics, which the owner alone writes.
    uint64_t before_ns = total.load(std::memory_order_relaxed);
    total.store(before_ns + static_cast<uint64_t>(monotonic_ns() - since_ns), std::memory_order_relaxed);
}

constexpr unsigned kLooksAtTurn = 64;  // a few microseconds

int wait_for_room(PublisherState& p, Deadline& deadline) {
    const TopicFile& s = p.participant->topic_file();
    Writer& w = *p.writer;
    Obstacle o = w.obstacle;
    if (deadline.left_ns() == 0) {
        try {
            if (reap_if_dead(s, o.slot)) return 1;
        } catch (const Failure&) {
        }
        raise("Full", "topic '" + p.topic + "' had no room within " + seconds(deadline.timeout_ns()) +
                          ": waiting for " + describe_obstacle(p));
        return 0;
    }
    auto gone = [&, looks = 0u, sent = UINT64_MAX]() mutable {
        // Given back; or kept, by a writer that does not send. We seldom look at its slot, which it changes with every message.
        if (o.is_turn) {
            if (turn_taking(s.header().turn.load(std::memory_order_relaxed)) != o.taking) return true;
            if (++looks % kLooksAtTurn != 0) return false;
            uint64_t before = std::exchange(sent, s.slot(o.slot).messages.load(std::memory_order_relaxed));
            return sent == before;
        }
        uint64_t hold = s.slot(o.slot).hold.load(std::memory_order_relaxed) & kPositionMask;
        return hold == kNoHold || hold + s.capacity_bytes >= o.end;
    };
    auto stop = [&] { return PyErr_CheckSignals() != 0 || p.closing; };
    int64_t since_ns = monotonic_ns();
    bool changed = p.spin.until(deadline.left_ns(), gone, stop);
    if (!changed && PyErr_Occurred()) return -1;
    // It still has the turn, and perhaps it rests. Then we take it, without the roster lock, which a stopped process may have.
    bool kept = o.is_turn && turn_taking(s.header().turn.load(std::memory_order_relaxed)) == o.taking;
    bool insists = kept && w.insist();
    if (changed || insists) {
        count_blocked(p, since_ns);
        return 1;
    }
    p.participant->own().waits_for.store(o.slot + 1, std::memory_order_relaxed);
    int result = 1;
    try {
        if (!reap_if_dead(s, o.slot)) {
            Bell bell = w.arm();
            if (bell.word) sleep_without_gil(bell, std::min(kObstacleSlice_ns, deadline.left_ns()));
        }
    } catch (const Failure& failure) {
        raise(failure);
        result = -1;
    }
    count_blocked(p, since_ns);  // here, because goes_on may leave the topic
    return result == 1 && !goes_on(p) ? -1 : result;
}

SeenWaiting::~SeenWaiting() {
    if (!p.participant) return;  // it left the topic, and its slot is free
    Word<uint32_t>& waits_for = p.participant->own().waits_for;
    // relaxed: for observers. The owner alone writes it.
    if (waits_for.load(std::memory_order_relaxed)) waits_for.store(0, std::memory_order_relaxed);
}

bool start_message_slowly(PublisherState& p, uint64_t room, Deadline& deadline) {
    SeenWaiting seen{p};
    if (deadline.left_ns() == 0) p.writer->insist();
    for (;;) {
        Status status = p.writer->begin();
        if (status == Status::ok) [[likely]] {
            status = p.writer->prepare(room);
            if (status == Status::ok) [[likely]]
                return true;
            p.writer->end();
        }
        if (status != Status::blocked) {
            raise_status(p, status);
            return false;
        }
        if (wait_for_room(p, deadline) != 1) return false;
    }
}

bool check_kind(std::string_view kind) {
    if (kind.size() <= kMaxEnvelopeNameBytes) return true;
    PyErr_Format(PyExc_ValueError, "kind is at most %zu bytes of UTF-8, this one has %zu",
                 kMaxEnvelopeNameBytes, kind.size());
    return false;
}

}  // namespace ringmain::py
