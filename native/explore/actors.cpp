// Topics, how actors join them, and writers. readers.cpp has those that receive.
#include "explore/actor_state.hpp"
#include "explore/checks.hpp"
#include "rule/retirement.hpp"
#include "topic/reaping.hpp"
#include "topic/removal.hpp"
#include "waiting/blocking_writer.hpp"

namespace ringmain::explore {

Topic topic;
ActorState actor_states[kMaxActors];

Ring ring_of_topic(const TopicFile& s) {
    return {s.header(),   &s.slot(0),      s.data(),         s.capacity_bytes, traits(s.contract),
            s.slot_count, explore::kept(), topic.kept_kinds, kKeptEntryBytes};
}

void join(int actor, Role role, bool takeover) {
    ActorState& me = actor_states[actor];
    me.topic_file =
        new std::shared_ptr<TopicFile>(TopicFile::open(nullptr, std::to_string(actor), Access::write));
    RosterLock lock(**me.topic_file);
    me.participant = new Participant(*me.topic_file, role, "actor", takeover, lock);
}

namespace {

// Never destroyed either.
struct WriterState {
    Storage<Writer> writer;
    Storage<BlockingWriter> blocking;
} writer_states[kMaxActors];

Writer& make_writer(int actor) {
    const ActorState& joined = actor_states[actor];
    WriterState& me = writer_states[actor];
    Writer& writer = me.writer.make(ring_of_topic(**joined.topic_file), joined.participant->slot());
    require(writer.attach() == Status::ok, "a new writer finds the words corrupt");
    BlockingWriter& blocking = me.blocking.make();
    blocking.participant.reset(joined.participant);
    blocking.writer.reset(&writer);
    blocking.spin.set(1);
    return writer;
}

void compose(Writer& writer, uint32_t size, uint64_t id, int64_t time_ns = 7) {
    uint64_t words[kMaxCapacity / 8];
    for (uint32_t i = 0; i < size / 8; ++i) words[i] = id;
    std::string_view sender = topic.sender_of(writer.seq()), kind = topic.kind_of(writer.seq());
    copy_in(writer.payload(sender.size(), kind.size()), words, size);
    note_sealed(writer.seq(), id);
    writer.seal(writer.seq(), time_ns, size, sender, kind);
}

uint64_t room(const Writer& writer, uint32_t size) {
    uint64_t seq = writer.seq();
    return room_for(footprint(size, topic.sender_of(seq).size(), topic.kind_of(seq).size()));
}

bool hold_moved(uint64_t slot, uint64_t end) {
    auto& word = reinterpret_cast<Slot*>(control() + kRosterOffset)[slot].hold;
    uint64_t hold = latest(&word, 8) & kPositionMask;
    return hold == kNoHold || hold + topic.capacity_bytes >= end;
}

// The explorer as the host of a writer's wait: between two steps, `pause` hashes the actor's state.
template <class Pause>
class ExplorerHost {
    const Writer& writer_;
    Pause pause_;

  public:
    ExplorerHost(const Writer& writer, Pause pause) : writer_(writer), pause_(pause) {}

    template <class Step>
    auto outside(Step step) {
        const Obstacle& o = writer_.obstacle;
        awaits(o.is_turn ? nullptr : hold_moved, o.slot, o.end);
        return step();
    }
    template <class Sleep>
    Woken sleep(const uint32_t*, const std::shared_ptr<const void>&, Sleep sleep) {
        return sleep();
    }
    bool goes_on() {
        count_look();
        pause_();
        return true;
    }
};

}  // namespace

// As endpoint.cpp and TopicFile::retire() do.
void remove_topic(TopicFile& topic_file, const RosterLock& lock) {
    stop_writers(topic_file, lock);
    note_stopped();
    CRASH_POINT("remove: writers stopped, not retired");
    mark_retired(topic_file.header());
    remove_name();
    CRASH_POINT("retire: unlinked, not announced");
    wake_for_retirement(topic_file.header());
    ring_directory();
}

void open_topic(const Topic& opened) {
    topic = opened;
    forget_readers();
    set_capacity(topic.capacity_bytes);
    auto& header = *reinterpret_cast<Header*>(control());
    auto& waiting = *reinterpret_cast<Header*>(control() + kFirstWaitingSlot * sizeof(Slot));
    for (Header* each : {&header, &waiting})
        each->flags.store(kPersist, std::memory_order_relaxed);  // removal is not explored here
    auto* slots = reinterpret_cast<Slot*>(control() + kRosterOffset);
    for (size_t i = 0; i < kSlots; ++i) {
        slots[i].hold.store(kNoHold, std::memory_order_relaxed);
        slots[i].taken_from.store(kNoHold, std::memory_order_relaxed);
    }
    if (traits(topic.contract).keeps_unread) {
        slots[kOnlyReaderSlot].hold.store(0, std::memory_order_relaxed);
        header.slots_used.store(1, std::memory_order_relaxed);
    }
}

void add_writer(int actor, const std::vector<uint32_t>& sent_before) {
    join(actor, Role::writer, false);
    Writer& writer = make_writer(actor);
    for (uint32_t size : sent_before) {
        writer.begin();
        writer.prepare(room(writer, size));
        compose(writer, size, 1 + writer.seq());
        writer.commit();
    }
}

void enrol(int creator) {
    std::string actor = std::to_string(creator);
    auto waiting_file = TopicFile::open(nullptr, actor, Access::write, FileKind::waiting);
    auto topic_file = TopicFile::open(nullptr, actor, Access::write);
    RosterLock of_waiting(*waiting_file), of_topic(*topic_file);
    enrol_waiting(*topic_file, *waiting_file, of_topic, of_waiting);
}

void write(const Sends& sends) {
    const ActorState& joined = actor_states[self()];
    WriterState& me = writer_states[self()];
    if (sends.joins) {
        join(self(), Role::writer, sends.takeover);
        make_writer(self());
    }
    if (sends.gives_name) {
        give_name();
        ring_directory();
    }
    Writer& writer = me.writer.get();
    uint64_t step = 0;
    size_t sent = 0;
    auto id_of = [](uint64_t step) { return static_cast<uint64_t>(self() + 1) * 1000 + step; };
    BlockingWriter& blocking = me.blocking.get();
    auto pause_here = [&] {
        uint64_t waits = mix(blocking.spins_for_room, static_cast<uint64_t>(looks()));
        settle(me.writer.bytes, sizeof me.writer.bytes, mix(mix(step, sent), waits));
    };
    ExplorerHost host(writer, pause_here);
    Deadline deadline(kForever);
    while (sent < sends.sizes.size()) {
        ++step;
        pause_here();
        if (sends.takes_idle_turn) writer.take_idle_turn();
        // One that gives up has no time to wait for room, and waits for its turn alone.
        uint64_t first = sends.gives_up ? 0 : room_for(footprint(sends.sizes[sent], 0, 0));
        Outcome outcome = blocking.start(first, deadline, host);
        if (outcome == Outcome::taken_over) break;
        require(outcome == Outcome::ready, "a writer finds the words corrupt");
        bool gave_up = false;
        size_t batch_end = std::min(sent + sends.batch, sends.sizes.size());
        do {
            uint32_t size = sends.sizes[sent];
            step += 100;
            gave_up = sends.gives_up && writer.prepare(room(writer, size)) == Status::blocked;
            if (gave_up) break;
            outcome = blocking.extend(room(writer, size), deadline, host);
            require(outcome == Outcome::ready, "a writer finds the ring corrupt");
            // One that takes an idle turn is in no burst, so that there are fewer states.
            compose(writer, size, id_of(step),
                    sends.takes_idle_turn ? static_cast<int64_t>(step) * 1'000'000 : 7);
            ++sent;
        } while (sent < batch_end);
        if (gave_up) {
            writer.end();
            ++sent;
        } else if (sends.drops_first && sent == 1) {
            uint64_t dropped = writer.seq() - 1;
            writer.end();
            note_dropped(dropped, id_of(step));
        } else {
            writer.commit();
            note_committed(writer.seq() - 1);
        }
        forget_stale_looks();
    }
    step = ~uint64_t{0};
    pause_here();
    if (sends.leaves) joined.participant->leave();
    if (sends.removes) {
        RosterLock lock(**joined.topic_file);
        remove_topic(**joined.topic_file, lock);
    }
}

}  // namespace ringmain::explore
