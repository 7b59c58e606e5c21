// Readers and workers. They wait by the loops that ship (waiting/blocking_reader.hpp), and check what they receive.
#include "explore/actor_state.hpp"
#include "explore/checks.hpp"
#include "explore/kept_check.hpp"
#include "topic/reaping.hpp"
#include "waiting/blocking_reader.hpp"

namespace ringmain {

namespace explore {

namespace {

struct ReaderState {
    Storage<BlockingReader> reading;
    uint64_t first, next, received, lost;  // its account
    bool has_task, odd_only;
    bool briefly, spins, follows;  // of the wait under way
} reader_states[kMaxActors];

}  // namespace

}  // namespace explore

// Which messages a worker does not want is told by their numbers alone: no text is read from memory that has a history.
bool BlockingReader::screened(const View& view) const {
    using namespace explore;
    return self() != kNoActor && reader_states[self()].odd_only && view.seq % 2 == 0;
}

namespace explore {

namespace {

bool commit_moved(uint64_t position, uint64_t) {
    uint64_t commit = latest(&reinterpret_cast<Header*>(control())->commit, 8);
    return (commit & kPositionMask) != position || (commit & kRetired);
}

// An operation is over: what the actor has is hashed, and what it saw on the way forgotten.
void settle_reading(ReaderState& me, uint64_t more) {
    BlockingReader& r = me.reading.get();
    more = mix(mix(me.next, me.received),
               mix(more, 8 * r.lost_before + 4u * me.follows + 2u * me.briefly + me.spins));
    if (!r.attached()) {
        settle(nullptr, 0, mix(more, 3000 + r.joined_before_topic));
    } else if (r.work) {
        const Unfinished& mine = *r.work;
        uint64_t has = mix(mine.keep(r.leases), 16 * mine.received.size() + mine.fresh.size());
        settle(&mine.worker, sizeof mine.worker, mix(more, mix(has, found_over() != mine.found_over)));
    } else {
        settle(r.reader.get(), sizeof(Reader), more);
    }
    forget_stale_looks();
}

// The explorer as the host of a reader's wait: between two steps, the actor's state is hashed.
class ReadingHost {
    ReaderState& me_;
    bool slept_ = false;

  public:
    explicit ReadingHost(ReaderState& me) : me_(me) {}

    template <class Step>
    auto outside(Step step) {
        return step();
    }
    template <class Sleep>
    Woken sleep(const uint32_t*, const std::shared_ptr<const void>&, Sleep sleep) {
        const BlockingReader& r = me_.reading.get();
        bool for_message = r.attached() && !r.work;
        awaits(for_message ? commit_moved : nullptr, for_message ? r.reader->position() : 0, 0);
        uint32_t found = found_over();
        Woken how = sleep();
        slept_ = true;
        // What the loop goes on with, where that makes a difference.
        me_.briefly = found != found_over() || (!deaths_allowed() && slices() == 0);
        me_.spins = how != Woken::timed_out || !r.spin.asked_for();
        return how;
    }
    bool goes_on() {
        count_look();
        me_.follows = !std::exchange(slept_, false);
        settle_reading(me_, 1001);
        return !closing();
    }
    bool joins_again(std::string&) { return true; }
    bool joined() { return true; }
    Letter send_dead_letter(const View&, uint32_t) { return Letter::not_here; }
};
static_assert(ReaderHost<ReadingHost>);

BlockingReader& begin(int actor, const Reads& reads) {
    BlockingReader& r = reader_states[actor].reading.make();
    r.topic = std::to_string(actor);
    r.name = "actor";
    r.start = reads.start;
    r.on_lap = reads.on_lap;
    r.conflate = reads.conflates;
    r.spin.set(reads.spins);
    return r;
}

void begin_account(ReaderState& me) {
    me.first = me.next = me.reading.get().reader->sequence();
    me.received = 0;
}

// Checks what was found, and takes it.
void receive(ReaderState& me, const View& view, const Reads& reads) {
    BlockingReader& r = me.reading.get();
    Reader& reader = *r.reader;
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
        return;
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
    require(reader.release(r.keep()), "a living reader's slot was given to another");
}

// False: there was none.
bool read_one(ReaderState& me, const Reads& reads, ReadingHost& host) {
    View view{};
    Outcome found = me.reading.get().now(view, reads.borrows, true, host);
    require(found == Outcome::ready || found == Outcome::not_there, "a reader finds the words corrupt");
    if (found == Outcome::ready) receive(me, view, reads);
    return found == Outcome::ready;
}

// A wait begins.
void settle_before_wait(ReaderState& me) {
    me.briefly = me.spins = true;
    me.follows = false;
    settle_reading(me, 1001);
}

void read_while_it_waits(ReaderState& me, const Reads& reads, ReadingHost& host) {
    while (!closing()) {
        settle_before_wait(me);
        if (reads.leaves_after && me.received >= static_cast<uint64_t>(reads.leaves_after)) break;
        if (reads.until && me.received >= reads.until) return await_end();
        View view{};
        Deadline deadline(kForever);
        Outcome found = me.reading.get().wait(deadline, view, reads.borrows, host);
        if (found == Outcome::stopped) break;
        require(found == Outcome::ready, "a reader finds the words corrupt");
        receive(me, view, reads);
    }
}

void last_look(ReaderState& me, const Reads& reads, ReadingHost& host) {
    BlockingReader& r = me.reading.get();
    refresh(self());
    uint64_t end = committed_number();
    if (r.attached()) {
        require(!reads.until_removed || !r.topic_file().retired(),
                "a reader sleeps on, though the topic was removed");
        View view{};
        while (r.another(view, host) == Outcome::ready) receive(me, view, reads);
        require(r.reader->sequence() == end,
                "a message was not delivered, though the reader looked to the end");
    }
    if (!reads.conflates)
        require(me.received + r.lost() == end - me.first, "lost is not exact: received and lost are not all");
}

// False: a pipe's one slot is taken, so that there is nothing to do here.
bool join_as(ReaderState& me, const Reads& reads, ReadingHost& host) {
    BlockingReader& r = me.reading.get();
    if (reads.when_free) await_end(true);
    try {
        while (r.attach(host) != Outcome::ready) {
            // The topic has no name yet.
            View view{};
            Deadline deadline(kForever);
            Outcome found = r.wait(deadline, view, reads.borrows, host);
            require(found == Outcome::ready, "a reader waits for a topic that is there");
            me.first = me.next = 0;
            receive(me, view, reads);
            return true;
        }
    } catch (const Failure& failure) {
        require(reads.when_free && failure.fault == Fault::busy,
                "a newcomer is refused for another reason than a living reader");
        return false;
    }
    begin_account(me);
    if (!reads.waited) return true;
    require(r.participant->enrolled(), "the slot of a living reader that waits was given to another");
    require(me.first == 0, "an enrolled reader does not begin with the first message");
    return true;
}

}  // namespace

void forget_readers() {
    for (ReaderState& me : reader_states) me = {};
}

uint64_t account() {
    uint64_t hash = committed_number();
    for (int i = 0; i < actor_count(); ++i) {
        const ReaderState& me = reader_states[i];
        hash = mix(hash, mix(me.received, mix(me.next, me.lost)));
    }
    return hash;
}

void add_reader(int actor, const Reads& reads) {
    BlockingReader& r = begin(actor, reads);
    if (reads.waited) {
        auto waiting_file = TopicFile::open(nullptr, std::to_string(actor), Access::write, FileKind::waiting);
        RosterLock lock(*waiting_file);
        r.waiting = std::make_unique<Participant>(waiting_file, Role::reader, "actor", false, lock);
        return;
    }
    ReaderState& me = reader_states[actor];
    join(actor, Role::reader, false);
    r.participant.reset(actor_states[actor].participant);
    r.reader = std::make_unique<Reader>(ring_of_topic(r.topic_file()), r.participant->slot(), reads.on_lap,
                                        reads.conflates);
    require(r.reader->attach(reads.start) == Status::ok, "a new reader finds the words corrupt");
    begin_account(me);
}

void read(const Reads& reads) {
    ReaderState& me = reader_states[self()];
    ReadingHost host(me);
    if (reads.joins) begin(self(), reads);
    if ((reads.joins || reads.waited) && !join_as(me, reads, host)) return;
    BlockingReader& r = me.reading.get();
    if (reads.only_at_the_end) await_end(), refresh(self());
    if (reads.kept) {
        find_kept_and_check(ring_of_topic(r.topic_file()), *r.reader);
        me.first = me.next = r.reader->sequence();
    }
    if (reads.looks) {
        for (int i = 0; i < reads.looks; ++i) {
            settle_reading(me, static_cast<uint64_t>(i));
            read_one(me, reads, host);
        }
        settle_reading(me, 1000);
        if (!reads.leaves_after) await_end();
    } else if (!reads.only_at_the_end) {
        read_while_it_waits(me, reads, host);
    }
    if (reads.leaves_after)
        r.leave(host);
    else
        last_look(me, reads, host);
}

// ------------------------------------------------------------------------------------------------- workers

namespace {

bool is_ours(const BlockingReader& r, const View& view) {
    const Ring ring = ring_of_topic(r.topic_file());
    return TaskMark::of(latest(&ring.word_at(view.position) + 2, 8)).owner == r.participant->slot() + 1;
}

// What was received before is done.
void begin_call(ReaderState& me) {
    BlockingReader& r = me.reading.get();
    for (const Taken& taken : r.work->received) {
        require(is_ours(r, taken.view), "a living worker's message was given to another");
        dies_here();  // whether or not another looks at the mark
        note_released(taken.view.seq);
        note_worked(taken.view.seq);
    }
    r.work->finish_received();
}

// A call that finds nothing.
void finish(ReaderState& me) {
    BlockingReader& r = me.reading.get();
    if (!r.attached() || r.work->received.empty()) return;
    begin_call(me);
    require(r.work->worker.release(kNoHold), "a living worker's slot was given to another");
}

// Reads and checks the message, which was taken in this call; it is received, or given back by a call that fails.
void do_task(ReaderState& me, const View& view, const Works& works) {
    BlockingReader& r = me.reading.get();
    uint64_t head = 0, foot = 0, again = 0;
    require(view.size >= 8, "torn: a message of impossible size");
    copy_out(&head, view.payload(), 8);
    copy_out(&foot, view.payload() + view.size - 8, 8);
    require(head == foot, "torn: the first and the last word are of different messages");
    note_delivered(view.seq, head);
    copy_out(&again, view.payload(), 8);
    require(again == head, "a held message was overwritten");
    require(is_ours(r, view), "a living worker's message was given to another");
    ++me.received;
    me.has_task = false;
    bool fails = me.received <= static_cast<uint64_t>(works.gives_back);
    if (fails) {
        note_released(view.seq);
        note_given_back(view.seq, r.work->fresh.back().returns);
    }
    r.work->end_of_call(r.work->consumed_before + 1, fails, r.leases);
}

// Until the program stops it, or the case ends.
void work_while_it_waits(ReaderState& me, const Works& works, ReadingHost& host) {
    BlockingReader& r = me.reading.get();
    auto enough = [&] {
        return works.leaves_after && me.received >= static_cast<uint64_t>(works.leaves_after);
    };
    for (int i = 0; !enough() && !closing() && (works.looks == 0 || i < works.looks); ++i) {
        works.looks ? settle_reading(me, static_cast<uint64_t>(i)) : settle_before_wait(me);
        if (r.attached()) begin_call(me);
        View view{};
        Deadline deadline(kForever);
        Outcome found = works.looks ? r.now(view, false, true, host) : r.wait(deadline, view, false, host);
        if (found == Outcome::stopped) return;
        require(found == Outcome::ready || (found == Outcome::not_there && works.looks),
                "a worker finds the words corrupt");
        if (found != Outcome::ready) continue;
        note_taken(view.seq, self());
        do_task(me, view, works);
    }
}

}  // namespace

void add_worker(int actor, const Works& works) {
    ReaderState& me = reader_states[actor];
    BlockingReader& r = begin(actor, {.start = Start::oldest, .spins = works.spins});
    join(actor, Role::reader, false);
    r.participant.reset(actor_states[actor].participant);
    Ring ring = ring_of_topic(r.topic_file());
    uint32_t slot = r.participant->slot();
    r.reader = std::make_unique<Reader>(ring, slot, Start::oldest, true, true);
    r.reader->hold_nothing();
    r.work = std::make_unique<Unfinished>(ring, slot);
    if (!works.never_idle) r.work->looked_for_dead_ns = monotonic_ns();  // time stands still
    r.slow_path = true;
    me.received = 0;
    me.odd_only = works.odd_only;
    if (!works.has_first) return;
    View view{};
    ReadingHost host(me);
    require(r.now(view, false, true, host) == Outcome::ready, "there is no first message");
    note_taken(view.seq, actor);
    me.has_task = true;
}

void work(const Works& works) {
    ReaderState& me = reader_states[self()];
    ReadingHost host(me);
    if (works.joins) {
        begin(self(), {.start = Start::oldest, .spins = works.spins});
        me.received = 0;
        require(me.reading.get().attach(host) == Outcome::ready, "a worker cannot join");
    }
    if (works.never_idle) await_end(true);
    BlockingReader& r = me.reading.get();
    if (me.has_task) do_task(me, View(r.work->fresh.back().view), works);
    if (works.only_first) return finish(me);
    work_while_it_waits(me, works, host);
    if (works.leaves_after) {
        begin_call(me);
        return r.leave(host);
    }
    settle_reading(me, 1000);
    finish(me);
    if (may_die(self())) return;  // others look to the end
    if (works.looks && !closing()) await_end();
    if (!r.attached()) return;  // the topic was removed
    refresh(self());
    require(!works.until_removed || !r.topic_file().retired(),
            "a worker sleeps on, though the topic was removed");
    // One that waits, or is never idle, has found by itself what dead workers had.
    if (works.looks && !works.never_idle) reap_dead_workers(r.topic_file());
    for (View view{};;) {
        begin_call(me);
        if (r.another(view, host) != Outcome::ready) break;
        note_taken(view.seq, self());
        do_task(me, view, works);
    }
    if (!works.odd_only) require_all_worked();
}

}  // namespace explore

}  // namespace ringmain
