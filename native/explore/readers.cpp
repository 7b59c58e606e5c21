// Readers and workers. They wait by the loops that ship (waiting/blocking_reader.hpp), and check what they receive.
#include "explore/actor_state.hpp"
#include "explore/checks.hpp"
#include "explore/kept_check.hpp"
#include "topic/reaping.hpp"
#include "waiting/wait_for_any.hpp"

namespace ringmain {

namespace explore {

namespace {

struct ReaderState {
    Storage<BlockingReader> reading;
    uint64_t first, next, received, lost;   // its account; the first and the next of this life
    uint64_t received_before, lost_before;  // in earlier lives
    int joined_file;                        // 1 + which; 0: none yet
    bool found_none;                        // when it looked for the topic first
    bool has_task, odd_only, stops;
    bool briefly, spins, follows;  // of the wait under way

    int file() { return file_of(reading.get().topic_file()); }
} reader_states[kMaxActors][kTopics];

}  // namespace

}  // namespace explore

// Which messages a worker does not want is told by their numbers alone: no text is read from memory that has a history.
bool BlockingReader::screened(const View& view) const {
    using namespace explore;
    return self() != kNoActor && reader_states[self()][0].odd_only && view.seq % 2 == 0;
}

namespace explore {

namespace {

bool commit_moved(const void* word, uint64_t position) {
    uint64_t commit = latest(word, 8);
    return (commit & kPositionMask) != position || (commit & kRetired);
}

void awaits_message(const BlockingReader& r) {
    if (r.attached() && !r.work)
        awaits({commit_moved, &r.topic_file().header().commit, r.reader->position()});
}

uint64_t hash_of(ReaderState& me) {
    BlockingReader& r = me.reading.get();
    uint64_t hash = mix(mix(me.next, me.received),
                        mix(me.first, 8 * r.lost_before + 4u * me.follows + 2u * me.briefly + me.spins));
    if (!r.attached()) {
        uint64_t waits = r.waiting ? 2 + r.waiting->slot() : 0;
        return mix(hash, 3000 + 2 * waits + r.joined_before_topic);
    }
    if (!r.work) return mix(hash, hash_bytes(r.reader.get(), sizeof(Reader)));
    const Unfinished& mine = *r.work;
    uint64_t has = mix(mine.keep(r.leases), 16 * mine.received.size() + mine.fresh.size());
    has = mix(has, hash_bytes(&mine.worker, sizeof mine.worker));
    return mix(hash, mix(has, found_over() != mine.found_over));
}

// An operation is over: what the actor has is hashed, and what it saw on the way forgotten.
void settle_reading(std::span<ReaderState> all, uint64_t more) {
    for (ReaderState& me : all) more = mix(more, hash_of(me));
    settle(nullptr, 0, more);
    forget_stale_looks();
}
void settle_reading(ReaderState& me, uint64_t more) { settle_reading({&me, 1}, more); }

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
        awaits_nothing();
        awaits_message(me_.reading.get());
        uint32_t found = found_over();
        Woken how = sleep();
        slept(how, found);
        return how;
    }
    void slept(Woken how, uint32_t found_before) {
        slept_ = true;
        // What the loop goes on with, where that makes a difference.
        me_.briefly = found_before != found_over() || (!deaths_allowed() && slices() == 0);
        me_.spins = how != Woken::timed_out || !me_.reading.get().spin.asked_for();
    }
    void looked() { me_.follows = !std::exchange(slept_, false); }
    bool goes_on() {
        bool stopped = me_.stops && slept_;
        count_look();
        looked();
        settle_reading(me_, 1001);
        return !closing() && !stopped;
    }
    bool joins_again(std::string&) { return true; }
    bool joined();
    Letter send_dead_letter(const View&, uint32_t) { return Letter::not_here; }
};
static_assert(ReaderHost<ReadingHost>);

// What a reader got and lost in the life of the topic that it has read to its end.
void require_exact_account(const ReaderState& me, int file, uint64_t lost) {
    require(me.received - me.received_before + lost - me.lost_before == committed_number(file) - me.first,
            "lost is not exact: received and lost are not all");
}

void begin_account(ReaderState& me) {
    const BlockingReader& r = me.reading.get();
    bool from_the_first = me.joined_file || me.found_none;
    me.first = me.next = from_the_first ? 0 : r.reader->sequence();
    me.received_before = me.received;
    me.lost_before = r.lost_before;
    me.joined_file = 1 + me.file();
}

// It leaves a life of its topic only when it has read it to its end.
bool ReadingHost::joined() {
    const BlockingReader& r = me_.reading.get();
    if (me_.joined_file && !r.work && !r.conflate)
        require_exact_account(me_, me_.joined_file - 1, r.lost_before);
    begin_account(me_);
    return true;
}

BlockingReader& begin(int actor, int topic, const Reads& reads) {
    BlockingReader& r = reader_states[actor][topic].reading.make();
    r.topic = topic_name(actor, topic);
    r.name = "actor";
    r.start = reads.start;
    r.on_lap = reads.on_lap;
    r.conflate = reads.conflates;
    if (reads.observes) r.observe = ObserveMode::always;
    r.spin.set(reads.spins);
    return r;
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
    note_delivered({me.file(), view.seq}, head);
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
    if (!r.attached()) {
        require(reads.looks || file_named(topic_named(r.topic)) == kNoFile,
                "a reader waits for a topic that is there");
        if (me.joined_file && !reads.conflates) require_exact_account(me, me.joined_file - 1, r.lost());
        return;
    }
    require(!reads.until_removed || !r.topic_file().retired(),
            "a reader sleeps on, though the topic was removed");
    View view{};
    while (r.another(view, host) == Outcome::ready) receive(me, view, reads);
    require(r.reader->sequence() == committed_number(me.file()),
            "a message was not delivered, though the reader looked to the end");
    if (!reads.conflates) require_exact_account(me, me.file(), r.lost());
}

// False: a pipe's one slot is taken, so that there is nothing to do here.
bool join_as(ReaderState& me, const Reads& reads, ReadingHost& host) {
    BlockingReader& r = me.reading.get();
    if (reads.when_free) await_end(true);
    try {
        me.found_none = r.attach(host) != Outcome::ready;
        if (me.found_none) return true;
    } catch (const Failure& failure) {
        require(reads.when_free && failure.fault == Fault::busy,
                "a newcomer is refused for another reason than a living reader");
        return false;
    }
    if (!reads.waited) return true;
    require(r.participant->enrolled(), "the slot of a living reader that waits was given to another");
    require(me.first == 0, "an enrolled reader does not begin with the first message");
    return true;
}

}  // namespace

void forget_readers() {
    for (auto& all : reader_states)
        for (ReaderState& me : all) me = {};
}

uint64_t account() {
    uint64_t hash = 0;
    for (int i = 0; i < actor_count(); ++i)
        for (const ReaderState& me : reader_states[i])
            hash = mix(hash, mix(me.received, mix(me.next, me.lost)));
    for (int file = 0; file < kFiles; ++file) hash = mix(hash, committed_number(file));
    return hash;
}

void add_reader(int actor, const Reads& reads) {
    if (reads.waited) {
        BlockingReader& r = begin(actor, 0, reads);
        auto waiting_file = TopicFile::open(nullptr, topic_name(actor, 0), Access::write, FileKind::waiting);
        RosterLock lock(*waiting_file);
        r.waiting = std::make_unique<Participant>(waiting_file, Role::reader, "actor", false, lock);
        return;
    }
    for (int topic = 0; topic < reads.topics; ++topic) {
        BlockingReader& r = begin(actor, topic, reads);
        if (file_named(topic) == kNoFile) continue;
        r.participant.reset(join(actor, topic, Role::reader, false));
        r.reader = std::make_unique<Reader>(ring_of_topic(r.topic_file()), r.participant->slot(),
                                            reads.on_lap, reads.conflates);
        require(r.reader->attach(reads.start) == Status::ok, "a new reader finds the words corrupt");
        begin_account(reader_states[actor][topic]);
    }
}

namespace {

// Waits for several readers at once, and takes from each that has something.
class ManyHost {
    std::span<ReaderState> all_;
    std::vector<ReadingHost> hosts_;
    bool slice_is_over_ = false, stopped_ = false;

  public:
    explicit ManyHost(std::span<ReaderState> all) : all_(all) {
        for (ReaderState& me : all) hosts_.emplace_back(me);
    }
    ReadingHost& of(size_t i) { return hosts_[i]; }

    template <class Look>
    Outcome look(size_t reader, Look look) {
        return look(all_[reader].reading.get(), hosts_[reader]);
    }
    template <class Sleep>
    Woken sleep(std::span<const SleepsFor>, Sleep sleep) {
        awaits_nothing();
        for (ReaderState& me : all_) awaits_message(me.reading.get());
        uint32_t found = found_over();
        Woken how = sleep();
        for (ReadingHost& host : hosts_) host.slept(how, found);
        slice_is_over_ = how == Woken::timed_out;
        stopped_ = all_[0].stops;
        return how;
    }
    bool goes_on() {
        count_look();
        for (ReadingHost& host : hosts_) host.looked();
        settle(1002);
        return !closing() && !stopped_;
    }
    void settle(uint64_t more) { settle_reading(all_, 2 * more + slice_is_over_); }
    // A wait begins. Its end; `ready`: those that have something.
    Outcome wait(std::vector<size_t>& ready, std::optional<uint32_t> directory_seen = {}) {
        slice_is_over_ = stopped_ = false;
        for (ReaderState& me : all_) me.briefly = me.spins = true, me.follows = false;
        settle(1003);
        Deadline deadline(kForever);
        return wait_for_any(all_.size(), deadline, ready, *this, directory_seen);
    }
};
static_assert(ManyReadersHost<ManyHost>);

void read_several(std::span<ReaderState> all, const Reads& reads) {
    ManyHost host(all);
    auto directory = Directory::at("", false);
    for (ReaderState& me : all) me.reading.get().directory = directory;
    std::vector<size_t> ready;
    std::optional<uint32_t> seen;
    if (reads.until_directory) seen = 0;  // as it was when the case began
    while (!closing()) {
        Outcome found = host.wait(ready, seen);
        if (found == Outcome::stopped) break;
        require(found == Outcome::ready, "a reader finds the words corrupt");
        for (size_t i : ready)
            require(read_one(all[i], reads, host.of(i)), "a wait ends for a message that is not there");
        if (reads.until_directory && ready.empty()) return await_end();
    }
    require(!reads.until_directory, "a wait for the directory goes on, though it has changed");
    for (size_t i = 0; i < all.size(); ++i) last_look(all[i], reads, host.of(i));
}

}  // namespace

void read(const Reads& reads) {
    if (reads.topics > 1) return read_several(reader_states[self()], reads);
    ReaderState& me = reader_states[self()][0];
    ReadingHost host(me);
    if (reads.joins) begin(self(), 0, reads);
    if ((reads.joins || reads.waited) && !join_as(me, reads, host)) return;
    BlockingReader& r = me.reading.get();
    if (reads.only_at_the_end) await_end(), refresh(self());
    if (reads.kept) {
        find_kept_and_check(ring_of_topic(r.topic_file()), *r.reader, me.file());
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
        note_released({me.file(), taken.view.seq});
        note_worked({me.file(), taken.view.seq});
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
    note_delivered({me.file(), view.seq}, head);
    copy_out(&again, view.payload(), 8);
    require(again == head, "a held message was overwritten");
    require(is_ours(r, view), "a living worker's message was given to another");
    ++me.received;
    me.has_task = false;
    bool fails = me.received <= static_cast<uint64_t>(works.gives_back);
    if (fails) {
        note_released({me.file(), view.seq});
        note_given_back({me.file(), view.seq}, r.work->fresh.back().returns);
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
        note_taken({me.file(), view.seq}, self());
        do_task(me, view, works);
    }
}

// The same, of several topics at once.
void work_at_several(std::span<ReaderState> all, const Works& works) {
    ManyHost host(all);
    std::vector<size_t> ready;
    uint64_t received = 0;
    while (!closing() && (!works.leaves_after || received < static_cast<uint64_t>(works.leaves_after))) {
        Outcome found = host.wait(ready);
        if (found == Outcome::stopped) break;
        require(found == Outcome::ready, "a worker finds the words corrupt");
        for (size_t i : ready) {
            View view{};
            begin_call(all[i]);
            // Another may have been faster.
            if (all[i].reading.get().now(view, false, true, host.of(i)) != Outcome::ready) continue;
            note_taken({all[i].file(), view.seq}, self());
            do_task(all[i], view, works);
            ++received;
        }
    }
}

// Looks to the end of the topic, when all others have done all that they will.
void last_work(ReaderState& me, const Works& works, ReadingHost& host) {
    BlockingReader& r = me.reading.get();
    if (!r.attached()) {
        require(file_named(topic_named(r.topic)) == kNoFile, "a worker waits for a topic that is there");
        return;
    }
    require(!works.until_removed || !r.topic_file().retired(),
            "a worker sleeps on, though the topic was removed");
    // One that waits, or is never idle, has found by itself what dead workers had.
    if (works.looks && !works.never_idle) reap_dead_workers(r.topic_file());
    for (View view{};;) {
        begin_call(me);
        if (r.another(view, host) != Outcome::ready) break;
        note_taken({me.file(), view.seq}, self());
        do_task(me, view, works);
    }
    if (!works.odd_only) require_all_worked(me.file());
}

}  // namespace

void add_worker(int actor, const Works& works) {
    for (int topic = 0; topic < works.topics; ++topic) {
        ReaderState& me = reader_states[actor][topic];
        BlockingReader& r = begin(actor, topic, {.start = Start::oldest, .spins = works.spins});
        r.participant.reset(join(actor, topic, Role::reader, false));
        Ring ring = ring_of_topic(r.topic_file());
        uint32_t slot = r.participant->slot();
        r.reader = std::make_unique<Reader>(ring, slot, Start::oldest, true, true);
        r.reader->hold_nothing();
        r.work = std::make_unique<Unfinished>(ring, slot);
        if (!works.never_idle) r.work->looked_for_dead_ns = monotonic_ns();  // time stands still
        r.slow_path = true;
        me.odd_only = works.odd_only;
        me.stops = works.stops;
        if (!works.has_first) continue;
        View view{};
        ReadingHost host(me);
        require(r.now(view, false, true, host) == Outcome::ready, "there is no first message");
        note_taken({topic, view.seq}, actor);
        me.has_task = true;
    }
}

void work(const Works& works) {
    std::span all = std::span(reader_states[self()]).first(static_cast<size_t>(works.topics));
    ReaderState& me = all[0];
    ReadingHost host(me);
    if (works.joins) {
        begin(self(), 0, {.start = Start::oldest, .spins = works.spins});
        require(me.reading.get().attach(host) == Outcome::ready, "a worker cannot join");
    }
    if (works.never_idle) await_end(true);
    BlockingReader& r = me.reading.get();
    if (me.has_task) do_task(me, View(r.work->fresh.back().view), works);
    if (works.only_first) return finish(me);
    works.topics > 1 ? work_at_several(all, works) : work_while_it_waits(me, works, host);
    if (works.leaves_after) {
        for (ReaderState& each : all) {
            begin_call(each);
            each.reading.get().leave(host);
        }
        return;
    }
    settle_reading(all, 1000);
    for (ReaderState& each : all) finish(each);
    if (works.stops && !closing()) return await_end();  // it has stopped, and looks no more
    if (may_die(self())) return;                        // others look to the end
    if (works.looks && !closing()) await_end();
    refresh(self());
    for (ReaderState& each : all) last_work(each, works, host);
}

}  // namespace explore

}  // namespace ringmain
