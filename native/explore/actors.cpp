#include "explore/actors.hpp"

#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "explore/checks.hpp"
#include "explore/kept_check.hpp"
#include "explore/model.hpp"
#include "rule/retirement.hpp"
#include "rule/worker.hpp"
#include "rule/writer.hpp"
#include "topic/participant.hpp"
#include "topic/reaping.hpp"
#include "topic/removal.hpp"
#include "waiting/blocking_writer.hpp"

namespace ringmain::explore {

Topic topic;

namespace {

// Objects live in zeroed memory, so that their bytes, padding included, are their whole state.
template <class T>
struct Storage {
    alignas(16) std::byte bytes[(sizeof(T) + 7) / 8 * 8];
    template <class... A>
    T& make(A&&... arguments) {
        std::memset(bytes, 0, sizeof bytes);
        return *new (bytes) T(std::forward<A>(arguments)...);
    }
    T& get() { return *std::launder(reinterpret_cast<T*>(bytes)); }
};

struct ActorState {
    std::shared_ptr<TopicFile>* topic_file = nullptr;  // never freed: a process that dies frees nothing
    Participant* participant = nullptr;
    Participant* waiting = nullptr;
    Storage<Writer> writer;
    Storage<BlockingWriter> blocking;  // never destroyed, as all that a dead process has
    Storage<Reader> reader;
    Storage<Worker> worker;
    View task;  // taken, not finished
    bool has_task = false;
    uint64_t first = 0, next = 0, received = 0, lost = 0;  // reader's account
};
ActorState actor_states[kMaxActors];

Ring ring_of(const TopicFile& s) {
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

void wait_for_topic(int actor) {
    auto waiting_file = new std::shared_ptr<TopicFile>(
        TopicFile::open(nullptr, std::to_string(actor), Access::write, FileKind::waiting));
    RosterLock lock(**waiting_file);
    actor_states[actor].waiting = new Participant(*waiting_file, Role::reader, "actor", false, lock);
}

// As join_or_wait does: takes the enrolled slot over, then leaves the waiting file.
void join_as_enrolled() {
    ActorState& me = actor_states[self()];
    me.topic_file =
        new std::shared_ptr<TopicFile>(TopicFile::open(nullptr, std::to_string(self()), Access::write));
    {
        RosterLock lock(**me.topic_file);
        me.participant = Participant::take_enrolled(*me.topic_file, *me.waiting, lock).release();
    }
    require(me.participant, "the slot of a living reader that waits was given to another");
    me.waiting->leave();
}

Writer& make_writer(int actor) {
    ActorState& me = actor_states[actor];
    Writer& writer = me.writer.make(ring_of(**me.topic_file), me.participant->slot());
    require(writer.attach() == Status::ok, "a new writer finds the words corrupt");
    BlockingWriter& blocking = me.blocking.make();
    blocking.participant.reset(me.participant);
    blocking.writer.reset(&writer);
    blocking.spin.set(1);
    return writer;
}

Reader& make_reader(int actor, const Reads& reads) {
    ActorState& me = actor_states[actor];
    Reader& reader =
        me.reader.make(ring_of(**me.topic_file), me.participant->slot(), reads.on_lap, reads.conflates);
    require(reader.attach(reads.start) == Status::ok, "a new reader finds the words corrupt");
    me.first = me.next = reader.sequence();
    me.received = 0;
    return reader;
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

bool commit_moved(uint64_t position, uint64_t) {
    uint64_t commit = latest(&reinterpret_cast<Header*>(control())->commit, 8);
    return (commit & kPositionMask) != position || (commit & kRetired);
}

void sleep_until_more(Reader& reader) {
    Bell bell = reader.bell();
    if (!bell.word) return;
    awaits(commit_moved, reader.position(), 0);
    sleep_on(bell, kSlice_ns);
}

// Reads and checks one message. False: there was none.
bool take_one(ActorState& me, Reader& reader, const Reads& reads) {
    View view{};
    Status status = reads.borrows ? reader.borrow(view) : reader.peek(view);
    require(status == Status::ok || status == Status::empty, "a reader finds the words corrupt");
    if (status == Status::empty) return false;
    uint64_t head = 0, foot = 0;
    require(view.size >= 8, "torn: a message of impossible size");
    copy_out(&head, view.payload(), 8);
    copy_out(&foot, view.payload() + view.size - 8, 8);
    if (reads.borrows) {
        uint64_t again = 0;
        copy_out(&again, view.payload(), 8);
        require(again == head, "a held message was overwritten");
        require(reader.still_whole(view), "a held message is called lapped");
    } else if (!reader.still_whole(view)) {
        return true;
    }
    uint64_t lost_before = reader.lost;
    uint64_t gap = reader.take(view);
    require(head == foot, "torn: the first and the last word are of different messages");
    note_delivered(view.seq, head);
    if (!reads.conflates)
        require(view.seq == me.next + gap, "lost is not exact: number, gap and expectation differ");
    require(view.seq >= me.next, "reordered: an older message after a newer one");
    if (reader.always_holds() && !reads.conflates)
        require(gap == 0, "a message was lost on a contract that waits");
    require(reader.lost >= lost_before, "lost went back");
    me.next = view.seq + 1;
    me.lost = reader.lost;
    ++me.received;
    require(reader.release(), "a living reader's slot was given to another");
    return true;
}

// A pipe has one reader's slot. If it is taken, there is nothing to do here.
bool try_to_join() {
    try {
        join(self(), Role::reader, false);
        return true;
    } catch (const Failure& failure) {
        require(failure.fault == Fault::busy,
                "a newcomer is refused for another reason than a living reader");
        return false;
    }
}

void settle_reader(const ActorState& me, const Storage<Reader>& storage, uint64_t more) {
    settle(storage.bytes, sizeof storage.bytes, mix(mix(me.next, me.received), more));
    forget_stale_looks();
}

void last_look(ActorState& me, Reader& reader, const Reads& reads) {
    refresh(self());
    while (take_one(me, reader, reads)) {
    }
    uint64_t end = committed_number();
    require(reader.sequence() == end, "a message was not delivered, though the reader looked to the end");
    if (!reads.conflates)
        require(me.received + reader.lost == end - me.first,
                "lost is not exact: received and lost are not all");
}

// As endpoint.cpp does, but for the file's name.
void remove_topic(TopicFile& topic_file) {
    RosterLock lock(topic_file);
    stop_writers(topic_file, lock);
    note_stopped();
    CRASH_POINT("remove: writers stopped, not retired");
    mark_retired(topic_file.header());
    CRASH_POINT("retire: unlinked, not announced");
    wake_for_retirement(topic_file.header());
}

// As the binding does: looks, then at `retired`, then sleeps.
void read_until_removed(ActorState& me, Reader& reader, const Reads& reads) {
    TopicFile& topic_file = **me.topic_file;
    bool ended = false;
    while (!ended && !closing()) {
        settle_reader(me, me.reader, 1002);
        if (take_one(me, reader, reads)) continue;
        if (topic_file.retired()) {
            ended = !reader.has_more();
        } else {
            sleep_until_more(reader);
        }
    }
    refresh(self());
    require(ended || !topic_file.retired(), "a reader sleeps on, though the topic was removed");
}

}  // namespace

void open_topic(const Topic& opened) {
    topic = opened;
    for (ActorState& me : actor_states) me.first = me.next = me.received = me.lost = 0, me.has_task = false;
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

void add_reader(int actor, const Reads& reads) {
    if (reads.waited) return wait_for_topic(actor);
    join(actor, Role::reader, false);
    make_reader(actor, reads);
}

void enrol(int creator) {
    std::string actor = std::to_string(creator);
    auto waiting_file = TopicFile::open(nullptr, actor, Access::write, FileKind::waiting);
    auto topic_file = TopicFile::open(nullptr, actor, Access::write);
    RosterLock of_waiting(*waiting_file), of_topic(*topic_file);
    enrol_waiting(*topic_file, *waiting_file, of_topic, of_waiting);
}

uint64_t account() {
    uint64_t hash = committed_number();
    for (int i = 0; i < actor_count(); ++i) {
        const ActorState& me = actor_states[i];
        hash = mix(hash, mix(me.received, mix(me.next, me.lost)));
    }
    return hash;
}

void write(const Sends& sends) {
    ActorState& me = actor_states[self()];
    if (sends.joins) {
        join(self(), Role::writer, sends.takeover);
        make_writer(self());
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
        ringmain::Outcome outcome = blocking.start(first, deadline, host);
        if (outcome == ringmain::Outcome::taken_over) break;
        require(outcome == ringmain::Outcome::ready, "a writer finds the words corrupt");
        bool gave_up = false;
        size_t batch_end = std::min(sent + sends.batch, sends.sizes.size());
        do {
            uint32_t size = sends.sizes[sent];
            step += 100;
            gave_up = sends.gives_up && writer.prepare(room(writer, size)) == Status::blocked;
            if (gave_up) break;
            outcome = blocking.extend(room(writer, size), deadline, host);
            require(outcome == ringmain::Outcome::ready, "a writer finds the ring corrupt");
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
    if (sends.leaves) me.participant->leave();
    if (sends.removes) remove_topic(**me.topic_file);
}

void read(const Reads& reads) {
    ActorState& me = actor_states[self()];
    if (reads.joins) {
        if (reads.when_free) {
            await_end(true);
            if (!try_to_join()) return;
        }
        if (!reads.when_free) join(self(), Role::reader, false);
        make_reader(self(), reads);
    }
    if (reads.waited) {
        join_as_enrolled();
        make_reader(self(), reads);
        require(me.first == 0, "an enrolled reader does not begin with the first message");
    }
    Reader& reader = me.reader.get();
    if (reads.only_at_the_end) await_end(), refresh(self());
    if (reads.kept) {
        find_kept_and_check(ring_of(**me.topic_file), reader);
        me.first = me.next = reader.sequence();
    }
    if (reads.until_removed) {
        read_until_removed(me, reader, reads);
    } else if (reads.looks) {
        for (int i = 0; i < reads.looks; ++i) {
            settle_reader(me, me.reader, static_cast<uint64_t>(i));
            take_one(me, reader, reads);
        }
        settle_reader(me, me.reader, 1000);
        if (!reads.leaves_after) await_end();
    } else if (!reads.only_at_the_end) {
        while (!closing()) {
            settle_reader(me, me.reader, 1001);
            if (reads.leaves_after && me.received >= static_cast<uint64_t>(reads.leaves_after)) break;
            if (take_one(me, reader, reads)) continue;
            if (reads.until && me.received >= reads.until)
                await_end();
            else
                sleep_until_more(reader);
        }
    }
    if (reads.leaves_after)
        me.participant->leave();
    else
        last_look(me, reader, reads);
}

// ------------------------------------------------------------------------------------------------- workers

namespace {

Worker& make_worker(int actor) {
    ActorState& me = actor_states[actor];
    me.received = 0;
    return me.worker.make(ring_of(**me.topic_file), me.participant->slot());
}

bool take_task(ActorState& me, int actor, const Works& works) {
    Worker& worker = me.worker.get();
    Status status = worker.take(me.task, [&](const View& v) { return !works.odd_only || v.seq % 2 == 1; });
    require(status == Status::ok || status == Status::empty, "a worker finds the words corrupt");
    if (status == Status::ok) note_taken(me.task.seq, actor);
    me.has_task = status == Status::ok;
    require(worker.release(me.has_task ? me.task.position : kNoHold),
            "a living worker's slot was given to another");
    worker.pass_on(me.has_task);
    return me.has_task;
}

// Reads and checks the message, and finishes it or gives it back.
void do_task(ActorState& me, const Works& works) {
    Worker& worker = me.worker.get();
    uint64_t head = 0, foot = 0, again = 0;
    require(me.task.size >= 8, "torn: a message of impossible size");
    copy_out(&head, me.task.payload(), 8);
    copy_out(&foot, me.task.payload() + me.task.size - 8, 8);
    require(head == foot, "torn: the first and the last word are of different messages");
    note_delivered(me.task.seq, head);
    uint32_t returns = worker.returns(me.task);
    copy_out(&again, me.task.payload(), 8);
    require(again == head, "a held message was overwritten");
    ++me.received;
    me.has_task = false;
    note_released(me.task.seq);
    bool ours;
    if (me.received <= static_cast<uint64_t>(works.gives_back)) {
        note_given_back(me.task.seq, returns);
        ours = worker.give_back(me.task, true);
    } else {
        note_worked(me.task.seq);
        ours = worker.finish(me.task);
    }
    require(ours, "a living worker's message was given to another");
    require(worker.release(kNoHold), "a living worker's slot was given to another");
}

void settle_worker(const ActorState& me, uint64_t more) {
    settle(me.worker.bytes, sizeof me.worker.bytes, mix(mix(me.received, me.has_task), more));
    forget_stale_looks();
}

// As the binding does: after a slice, looks whether another worker has died with a message.
void sleep_for_work(ActorState& me) {
    Bell bell = me.worker.get().bell();
    if (!bell.word) return;
    if (sleep_on(bell, kSlice_ns) == Woken::timed_out)
        reap_dead_workers(**me.topic_file);
    else
        me.worker.get().woken();
}

}  // namespace

void add_worker(int actor, const Works& works) {
    join(actor, Role::reader, false);
    make_worker(actor);
    if (works.has_first) require(take_task(actor_states[actor], actor, works), "there is no first message");
}

void work(const Works& works) {
    ActorState& me = actor_states[self()];
    if (works.joins) {
        join(self(), Role::reader, false);
        make_worker(self());
    }
    if (me.has_task) do_task(me, works);
    if (works.only_first) return;
    auto enough = [&] {
        return works.leaves_after && me.received >= static_cast<uint64_t>(works.leaves_after);
    };
    for (int i = 0; !enough() && !closing() && (works.looks == 0 || i < works.looks); ++i) {
        settle_worker(me, works.looks ? static_cast<uint64_t>(i) : 1001);
        if (take_task(me, self(), works))
            do_task(me, works);
        else if (works.until_removed && (*me.topic_file)->retired())
            return;
        else if (works.looks == 0)
            sleep_for_work(me);
    }
    if (works.leaves_after) return me.participant->leave();
    settle_worker(me, 1000);
    if (may_die(self())) return;  // others look to the end
    if (works.looks) await_end();
    refresh(self());
    require(!works.until_removed || !(*me.topic_file)->retired(),
            "a worker sleeps on, though the topic was removed");
    reap_dead_workers(**me.topic_file);
    while (take_task(me, self(), works)) do_task(me, works);
    if (!works.odd_only) require_all_worked();
}

}  // namespace ringmain::explore
