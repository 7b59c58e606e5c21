// Topics, how actors join them, and writers. readers.cpp has those that receive.
#include "explore/actor_state.hpp"
#include "explore/checks.hpp"
#include "waiting/blocking_writer.hpp"

namespace ringmain {

// As topic_file.cpp does. Here, since it is the core's own that marks and wakes.
void TopicFile::retire() {
    explore::note_stopped(explore::file_of(*this));
    mark_retired(header());
    CRASH_POINT("retire: marked, name kept");
    explore::remove_name(explore::topic_named(topic), explore::file_of(*this));
    CRASH_POINT("retire: unlinked, not announced");
    wake_for_retirement(header());
    directory->ring();
}

namespace explore {

Topic topic;
std::string topic_name(int actor, int topic) { return std::to_string(actor) + std::to_string(topic); }

Ring ring_of_topic(const TopicFile& s) {
    return {s.header(),
            &s.slot(0),
            s.data(),
            s.capacity_bytes,
            traits(s.contract),
            s.slot_count,
            explore::kept(file_of(s)),
            topic.kept_kinds,
            kKeptEntryBytes};
}

Participant* join(int actor, int topic, Role role, bool takeover) {
    auto topic_file = TopicFile::open(nullptr, topic_name(actor, topic), Access::write);
    RosterLock lock(*topic_file);
    return new Participant(topic_file, role, "actor", takeover, lock);
}

namespace {

// Never destroyed either.
struct WriterState {
    Storage<Writer> writer;
    Storage<BlockingWriter> blocking;
} writer_states[kMaxActors];

Writer& make_writer(int actor, Participant* participant) {
    WriterState& me = writer_states[actor];
    Writer& writer = me.writer.make(ring_of_topic(participant->topic_file()), participant->slot());
    require(writer.attach() == Status::ok, "a new writer finds the words corrupt");
    BlockingWriter& blocking = me.blocking.make();
    blocking.participant.reset(participant);
    blocking.writer.reset(&writer);
    blocking.spin.set(1);
    return writer;
}

void compose(int file, Writer& writer, uint32_t size, uint64_t id, int64_t time_ns = 7) {
    uint64_t words[kMaxCapacity / 8];
    for (uint32_t i = 0; i < size / 8; ++i) words[i] = id;
    std::string_view sender = topic.sender_of(writer.seq()), kind = topic.kind_of(writer.seq());
    copy_in(writer.payload(sender.size(), kind.size()), words, size);
    note_sealed({file, writer.seq()}, id);
    writer.seal(writer.seq(), time_ns, size, sender, kind);
}

uint64_t room(const Writer& writer, uint32_t size) {
    uint64_t seq = writer.seq();
    return room_for(footprint(size, topic.sender_of(seq).size(), topic.kind_of(seq).size()));
}

bool hold_moved(const void* word, uint64_t end) {
    uint64_t hold = latest(word, 8) & kPositionMask;
    return hold == kNoHold || hold + topic.capacity_bytes >= end;
}

// The explorer as the host of a writer's wait: between two steps, `pause` hashes the actor's state.
template <class Pause>
class ExplorerHost {
    const BlockingWriter& writing_;
    Pause pause_;

  public:
    ExplorerHost(const BlockingWriter& writing, Pause pause) : writing_(writing), pause_(pause) {}

    template <class Step>
    auto outside(Step step) {
        const Obstacle& o = writing_.writer->obstacle;
        awaits_nothing();
        if (!o.is_turn) awaits({hold_moved, &writing_.topic_file().slot(o.slot).hold, o.end});
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

void open_topics(int count, const Topic& opened) {
    topic = opened;
    begin_with(count);
    forget_readers();
    set_capacity(topic.capacity_bytes);
    for (int file = 0; file < kFiles; ++file) {
        auto& header = *reinterpret_cast<Header*>(control(file));
        auto& waiting = *reinterpret_cast<Header*>(control(file) + kFirstWaitingSlot * sizeof(Slot));
        if (topic.persists) header.flags.store(kPersist, std::memory_order_relaxed);
        waiting.flags.store(kPersist, std::memory_order_relaxed);  // its removal is not explored
        auto* slots = reinterpret_cast<Slot*>(control(file) + kRosterOffset);
        for (size_t i = 0; i < kSlots; ++i) {
            slots[i].hold.store(kNoHold, std::memory_order_relaxed);
            slots[i].taken_from.store(kNoHold, std::memory_order_relaxed);
        }
        if (traits(topic.contract).keeps_unread) {
            slots[kOnlyReaderSlot].hold.store(0, std::memory_order_relaxed);
            header.slots_used.store(1, std::memory_order_relaxed);
        }
    }
}

void begin_without(int topic) { remove_name(topic, topic); }

void add_writer(int actor, int topic, const std::vector<uint32_t>& sent_before) {
    Writer& writer = make_writer(actor, join(actor, topic, Role::writer, false));
    for (uint32_t size : sent_before) {
        writer.begin();
        writer.prepare(room(writer, size));
        compose(topic, writer, size, 1 + writer.seq());
        writer.commit();
    }
}

void enrol(int creator) {
    std::string name = topic_name(creator, 0);
    auto waiting_file = TopicFile::open(nullptr, name, Access::write, FileKind::waiting);
    auto topic_file = TopicFile::open(nullptr, name, Access::write);
    RosterLock of_waiting(*waiting_file), of_topic(*topic_file);
    enrol_waiting(*topic_file, *waiting_file, of_topic, of_waiting);
}

namespace {

// Opens the topic as a publisher does, creating it if there is none. False: it has its one writer.
bool open_to_write(const std::shared_ptr<Directory>& directory, const Sends& sends) {
    WriterRequest request{.contract = topic.contract, .persist = topic.persists, .name = "actor"};
    try {
        make_writer(self(), join_as_writer(directory, topic_name(self(), sends.topic), request).release());
        return true;
    } catch (const Failure& failure) {
        require(failure.fault == Fault::busy, "a writer cannot open its topic");
        return false;
    }
}

// What a writer has done so far.
struct Progress {
    uint64_t step = 0;
    size_t sent = 0;
};

void pause_here(const WriterState& me, const BlockingWriter& blocking, const Progress& at) {
    uint64_t waits = mix(blocking.spins_for_room, static_cast<uint64_t>(looks()));
    settle(me.writer.bytes, sizeof me.writer.bytes, mix(mix(at.step, at.sent), waits));
}

// False: another has taken over.
bool send_all(const Sends& sends, const std::vector<uint32_t>& sizes, Progress& at) {
    WriterState& me = writer_states[self()];
    Writer& writer = me.writer.get();
    BlockingWriter& blocking = me.blocking.get();
    int file = file_of(blocking.topic_file());
    auto id_of = [](uint64_t step) { return static_cast<uint64_t>(self() + 1) * 1000 + step; };
    auto pause = [&] { pause_here(me, blocking, at); };
    ExplorerHost host(blocking, pause);
    Deadline deadline(kForever);
    at.sent = 0;
    while (at.sent < sizes.size()) {
        ++at.step;
        pause();
        if (sends.takes_idle_turn) writer.take_idle_turn();
        // One that gives up has no time to wait for room, and waits for its turn alone.
        uint64_t first = sends.gives_up ? 0 : room_for(footprint(sizes[at.sent], 0, 0));
        Outcome outcome = blocking.start(first, deadline, host);
        if (outcome == Outcome::taken_over) return false;
        require(outcome == Outcome::ready, "a writer finds the words corrupt");
        bool gave_up = false;
        size_t batch_end = std::min(at.sent + sends.batch, sizes.size());
        do {
            uint32_t size = sizes[at.sent];
            at.step += 100;
            gave_up = sends.gives_up && writer.prepare(room(writer, size)) == Status::blocked;
            if (gave_up) break;
            outcome = blocking.extend(room(writer, size), deadline, host);
            require(outcome == Outcome::ready, "a writer finds the ring corrupt");
            // One that takes an idle turn is in no burst, so that there are fewer states.
            compose(file, writer, size, id_of(at.step),
                    sends.takes_idle_turn ? static_cast<int64_t>(at.step) * 1'000'000 : 7);
            ++at.sent;
        } while (at.sent < batch_end);
        if (gave_up) {
            writer.end();
            ++at.sent;
        } else if (sends.drops_first && at.sent == 1) {
            uint64_t dropped = writer.seq() - 1;
            writer.end();
            note_dropped({file, dropped}, id_of(at.step));
        } else {
            writer.commit();
            note_committed({file, writer.seq() - 1});
        }
        forget_stale_looks();
    }
    return true;
}

}  // namespace

void write(const Sends& sends) {
    WriterState& me = writer_states[self()];
    auto directory = Directory::at("", false);
    if (sends.opens && !open_to_write(directory, sends)) return;
    if (sends.joins) make_writer(self(), join(self(), sends.topic, Role::writer, sends.takeover));
    Progress at;
    send_all(sends, sends.sizes, at);
    at.step = ~uint64_t{0};
    pause_here(me, me.blocking.get(), at);
    if (sends.leaves) me.blocking.get().participant->leave();
    if (sends.removes) unlink_topic(directory, topic_name(self(), sends.topic), true);
    if (sends.again.empty() || !open_to_write(directory, sends)) return;
    at.step = 10'000;
    send_all(sends, sends.again, at);
    at.step = ~uint64_t{1};
    pause_here(me, me.blocking.get(), at);
}

}  // namespace explore

}  // namespace ringmain
