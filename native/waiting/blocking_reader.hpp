// A reader that waits: for the topic, for its next message, for a message that a dead worker gives back. It follows the topic
// into its next life. Owns these invariants: it sleeps only after it has looked with its bell armed; a wait that no bell ends
// looks again after a slice, or when a process has died; what it has received is not lost when its topic's life ends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rule/kept_messages.hpp"
#include "topic/endpoint.hpp"
#include "topic/reaping.hpp"
#include "waiting/death_watch.hpp"
#include "waiting/host.hpp"
#include "waiting/screen.hpp"
#include "waiting/sleep.hpp"
#include "waiting/spin.hpp"
#include "waiting/unfinished.hpp"

namespace ringmain {

class Event;

// What becomes of a message that was given back too often.
enum class Letter { sent, not_here, stopped };

// What a reader leaves to its face besides: each may end the wait.
template <class H>
concept ReaderHost = Host<H> && requires(H& host, std::string& name, const View& view, uint32_t returns) {
    // Inherited through a fork: it joins again, under this name or another. False: stopped.
    { host.joins_again(name) } -> std::same_as<bool>;
    // It has joined. False: this topic is not what was asked for.
    { host.joined() } -> std::same_as<bool>;
    // A message of which so many deliveries failed. not_here: in a call that cannot send it on.
    { host.send_dead_letter(view, returns) } -> std::same_as<Letter>;
};

// The host of a face that does nothing of the kind.
template <class H>
struct PlainReaderHost : H {
    using H::H;
    bool joins_again(std::string&) { return true; }
    bool joined() { return true; }
    Letter send_dead_letter(const View&, uint32_t) { return Letter::not_here; }
};
static_assert(ReaderHost<PlainReaderHost<PlainHost>>);

// What a reader without a topic listens to: read before it looks for the topic, so that none is missed.
struct Listening {
    bool listens = false;
    Bell bell;
};

// What a reader that has found no message sleeps on. An empty bell: nothing will ring, look again after a slice.
struct Awaited {
    Bell bell;
    bool at_once;                             // something has changed meanwhile: look again
    std::shared_ptr<const void> mapped = {};  // what the bell lies in
};

// One thread at a time, and while it waits others change nothing of it. Where a member returns an Outcome, `ready` says that
// there is a message, and `not_there` that there is none.
struct BlockingReader {
    std::shared_ptr<Directory> directory;
    std::unique_ptr<Participant> participant;
    std::unique_ptr<Participant> waiting;  // while there is no topic: our part in its waiting file
    std::unique_ptr<Reader> reader;
    // With start="newest", while the last message of each kind is received: what `reader` reads, and the one that goes on.
    std::shared_ptr<KeptMessages> kept;
    std::unique_ptr<Reader> after_kept;
    std::unique_ptr<Unfinished> work;  // on a shared contract: what is taken, and not finished
    uint32_t max_deliveries = 0;       // then a message is a dead letter; 0: never
    std::string directory_path, topic, name;
    Start start = Start::next, on_lap = Start::oldest;
    bool conflate = false;
    ObserveMode observe = ObserveMode::never;
    Spin spin;
    Screen senders, kinds;
    bool slow_path = false;            // needs_slow_path(), for the hot path
    uint64_t lost_before = 0;          // in earlier lives of the topic
    bool joined_before_topic = false;  // then this life of it is read from its beginning
    bool watched =
        false;  // on a shared contract: an event was to ring for a message, and none was taken since
    std::vector<uint64_t> leases;  // positions of borrowed messages that are still in use
    std::string roster_locked;     // why we could not join when we last tried: a process that has stopped

    bool attached() const {
        return participant && !participant->topic_file().forked.load(std::memory_order_relaxed);
    }
    const TopicFile& topic_file() const { return participant->topic_file(); }
    // May a message be skipped, or do the messages come from another source than the ring?
    bool needs_slow_path() const { return work || kept || senders.active() || kinds.active(); }
    uint64_t lost() const { return lost_before + (reader ? reader->lost : 0); }
    // The position from which bytes are still needed.
    uint64_t keep() const { return leases.empty() ? kNoHold : *std::ranges::min_element(leases); }
    // What a lease of the message keeps, and what must stay mapped for it: of a kept message, nothing of the ring.
    uint64_t position_to_keep(const View& view) const { return kept ? kNoHold : view.position; }
    std::shared_ptr<TopicFile> mapping() const {
        return kept ? std::shared_ptr<TopicFile>(kept, &participant->topic_file()) : participant->shared();
    }
    // After a sleep that something ended: a message wakes one worker, which sees to it that the next is woken for the next.
    void woken() {
        if (work && attached()) work->worker.woken();
    }
    // A wait that something has woken, or that an event was to end, was given up: the message is for another worker.
    void pass_on() {
        if (!work || !attached()) return;
        if (std::exchange(watched, false)) work->worker.woken();
        work->worker.pass_on(true);
    }
    bool has_more() const { return kept || (work ? work->worker.has_more() : reader->has_more()); }
    // Is it ignored? Read from shared memory: check still_whole() afterwards.
    bool screened(const View& view) const;

    // Joins the topic. not_there: there is no such topic yet, or its roster is locked. Throws a Failure.
    template <ReaderHost H>
    Outcome attach(H& host);
    // Leaves the topic for good; what was received is done.
    template <ReaderHost H>
    void leave(H& host);

    // Waits for a message that is not screened out, and does not take it.
    template <ReaderHost H>
    Outcome wait(Deadline& deadline, View& view, bool borrowing, H& host);
    // The same, without waiting. On a shared contract, `ready` says that there may be one, and `view` is not set; with `taking`,
    // it is taken.
    template <ReaderHost H>
    Outcome now(View& view, bool borrowing, bool taking, H& host);
    // The same, for messages after the first of a call: stays in this life of the topic, and moves no hold, so the call can
    // still go back to its first message.
    template <ReaderHost H>
    Outcome another(View& view, H& host) {
        return work ? take_work(view, host, false) : look(view, false, false);
    }

    Listening listen() { return attached() ? Listening{} : listen_to_directory(); }
    // `barrier_follows`: it is one of several that are armed for one sleep. The caller makes the process-wide barrier for all,
    // and sleeps only if each may_sleep() after it.
    Awaited awaited(const Listening& listening, bool barrier_follows = false);
    // A life that has ended is left at once, unless its messages are still borrowed.
    bool may_sleep() const {
        bool stays = attached() && !leases.empty() && topic_file().retired();
        return !attached() || work || stays || reader->may_sleep();
    }
    // Only a look finds what it waits for: there is no bell, or one that may be missed; or the roster is locked, and none rings
    // when it is free again.
    bool must_poll(const Bell& bell) const {
        return !bell.word || !bell.always_wakes || !roster_locked.empty();
    }
    // What a sleep on that bell awaits, for those who watch: a copy, which outlives the reader.
    Awaiting awaiting(const uint32_t* word) const;
    // After a slice without a message: leaves a topic whose file was deleted by hand, once its writers are gone.
    template <ReaderHost H>
    void leave_if_deleted(H& host);
    // Rings the event at the next message. Returns its token; 0: a message is there already, or the wait was stopped.
    template <ReaderHost H>
    Outcome watch(const std::shared_ptr<Event>& event, uint64_t& token, H& host);

  private:
    static constexpr int kLooksForOne = 8;  // in vain: then messages do not come in a stream
    static constexpr int64_t kLookForDead_ns =
        100'000'000;  // how often a worker that is never idle looks for workers that died

    void forget_readers() {
        reader.reset();
        after_kept.reset();
        kept.reset();
        work.reset();
    }
    void join(int64_t patience_ns);
    Status begin_reading();
    void go_on_after_kept();
    Listening listen_to_directory();
    bool deleted() const;
    void look_for_dead(int64_t now_ns);
    bool give_back_of_dead();
    uint64_t watch_bell(const Bell& bell, const std::shared_ptr<Event>& event);

    template <ReaderHost H>
    void detach(H& host);
    [[gnu::always_inline]] Outcome look(View& view, bool borrowing, bool releasing);
    template <ReaderHost H>
    Outcome take_work(View& view, H& host, bool may_send);
    template <ReaderHost H>
    Outcome work_now(View& view, bool taking, H& host);
    template <ReaderHost H>
    Outcome in_this_life(View& view, bool borrowing, bool taking, H& host);
    template <ReaderHost H>
    Woken sleep_on_bell(const Awaited& next, Deadline& deadline, bool& briefly, H& host);
};

inline Outcome BlockingReader::look(View& view, bool borrowing, bool releasing) {
    for (;;) {
        Status status = borrowing ? reader->borrow(view) : reader->peek(view);
        if (status == Status::empty && kept && releasing) {
            go_on_after_kept();
            continue;
        }
        if (status == Status::empty) return Outcome::not_there;
        if (status == Status::corrupt || status == Status::taken_over)
            return status == Status::corrupt ? Outcome::corrupt : Outcome::taken_over;
        if (!slow_path) [[likely]]
            return Outcome::ready;
        bool unwanted = screened(view);
        if (!reader->still_whole(view)) continue;
        if (!unwanted) return Outcome::ready;
        reader->skip(view);
        if (releasing) reader->release(keep());
    }
}

template <ReaderHost H>
void BlockingReader::detach(H& host) {
    lost_before = lost();
    forget_readers();
    slow_path = needs_slow_path();
    leases.clear();
    if (participant && participant->topic_file().forked) participant->abandon();
    std::unique_ptr<Participant> leaving = std::move(participant);
    host.outside([&] { leaving.reset(); });
}

template <ReaderHost H>
void BlockingReader::leave(H& host) {
    pass_on();
    if (work && attached()) work->finish_received();
    lost_before = lost();
    std::unique_ptr<Participant> leaving = std::move(participant);
    forget_readers();
    host.outside([&] {
        leaving.reset();
        stop_waiting(waiting);
    });
}

template <ReaderHost H>
Outcome BlockingReader::attach(H& host) {
    if (participant) {  // inherited through fork: the slot is the parent's, so join again
        detach(host);
        if (!host.joins_again(name)) return Outcome::stopped;
    }
    roster_locked.clear();
    try {
        host.outside([&] { join(RosterLock::kSlice_ns); });
    } catch (const Failure& failure) {
        forget_readers();
        participant.reset();
        if (failure.fault != Fault::roster_locked) throw;
        roster_locked = failure.text;
        return Outcome::not_there;
    } catch (const std::exception&) {  // no memory
        forget_readers();
        participant.reset();
        throw;
    }
    if (!participant) {
        joined_before_topic = true;
        return Outcome::not_there;
    }
    bool wanted = host.joined();
    if (!wanted) detach(host);
    joined_before_topic &=
        !wanted;  // a forked child joins this same life once more: it was not here before it
    return wanted ? Outcome::ready : Outcome::stopped;
}

template <ReaderHost H>
Outcome BlockingReader::take_work(View& view, H& host, bool may_send) {
    Unfinished& mine = *work;
    Slot& own = participant->own();
    if (std::exchange(watched, false)) mine.worker.woken();
    for (int64_t now_ns = 0;;) {
        if (mine.fresh.empty()) {  // once for the messages of a call
            now_ns = monotonic_ns();
            look_for_dead(now_ns);
        }
        mine.fresh.make_room();
        Status status = mine.worker.take(view, [this](const View& v) { return !screened(v); });
        if (status == Status::ok) {
            uint32_t returns = mine.worker.returns(view);
            if (mine.fresh.empty()) mine.consumed_before = reader->messages();
            if (mine.received.empty() && mine.fresh.empty() && mine.lent.empty())
                own.taken_ns.store(static_cast<uint64_t>(now_ns),
                                   std::memory_order_relaxed);  // relaxed: statistics
            mine.fresh.add({view, returns});
        }
        bool ours = mine.worker.release(mine.keep(leases));
        mine.worker.pass_on(status == Status::ok);
        if (!ours) return Outcome::taken_over;
        if (status == Status::corrupt) return Outcome::corrupt;
        if (status == Status::empty) return Outcome::not_there;
        uint32_t returns = mine.fresh.back().returns;
        if (max_deliveries == 0 || returns < max_deliveries) {
            if (returns != 0) own.redelivered.fetch_add(1, std::memory_order_relaxed);  // relaxed: statistics
            return Outcome::ready;
        }
        // Where it cannot be sent on, end_of_call() gives it back, uncounted.
        Letter letter = may_send ? host.send_dead_letter(view, returns) : Letter::not_here;
        if (letter != Letter::sent) return letter == Letter::stopped ? Outcome::stopped : Outcome::not_there;
        mine.worker.finish(view);
        mine.fresh.remove_last();
    }
}

template <ReaderHost H>
Outcome BlockingReader::work_now(View& view, bool taking, H& host) {
    for (;;) {
        Outcome found = taking       ? take_work(view, host, true)
                        : has_more() ? Outcome::ready
                                     : Outcome::not_there;
        if (found != Outcome::not_there || !give_back_of_dead()) return found;
    }
}

template <ReaderHost H>
inline Outcome BlockingReader::in_this_life(View& view, bool borrowing, bool taking, H& host) {
    return work ? work_now(view, taking, host) : look(view, borrowing, true);
}

template <ReaderHost H>
Outcome BlockingReader::now(View& view, bool borrowing, bool taking, H& host) {
    for (;;) {
        if (!attached()) [[unlikely]] {
            if (Outcome joined = attach(host); joined != Outcome::ready) return joined;
        }
        Outcome found = in_this_life(view, borrowing, taking, host);
        if (found != Outcome::not_there) [[likely]]
            return found;
        // Empty. If the file has lost its name, the topic's next life is another file.
        if (!topic_file().retired() || has_more()) return Outcome::not_there;
        if (!leases.empty()) return Outcome::not_there;
        detach(host);
        joined_before_topic = true;
    }
}

template <ReaderHost H>
void BlockingReader::leave_if_deleted(H& host) {
    if (!attached() || !leases.empty() || has_more() || !deleted()) return;
    detach(host);
    joined_before_topic = true;
}

template <ReaderHost H>
Woken BlockingReader::sleep_on_bell(const Awaited& next, Deadline& deadline, bool& briefly, H& host) {
    return host.sleep(next.bell.word, next.mapped, [&] {
        auto one_sleep = [&](int64_t timeout_ns) { return ringmain::sleep(next.bell, timeout_ns); };
        if (must_poll(next.bell)) return one_sleep(std::min(kSlice_ns, deadline.left_ns()));
        auto watch = [&] { return DeathWatch(awaiting(next.bell.word)); };
        return sleep_watched(deadline, briefly, watch, one_sleep);
    });
}

template <ReaderHost H>
Outcome BlockingReader::wait(Deadline& deadline, View& view, bool borrowing, H& host) {
    bool briefly = true;
    // That the topic was removed is seen as its bell is armed: only then is there a look for its next life, or if none is armed.
    for (bool spins = true, follows = deadline.timeout_ns() == 0;;) {
        Listening listening = listen();
        Outcome found = follows || !attached() ? now(view, borrowing, true, host)
                                               : in_this_life(view, borrowing, true, host);
        if (found != Outcome::not_there) [[likely]]
            return found;
        int64_t left = deadline.left_ns();
        if (left == 0) return Outcome::timed_out;
        if (spins && attached()) {
            bool stopped = false;
            auto comes = [&, looks = 0]() mutable {
                if (++looks > kLooksForOne) work ? work->worker.expect_one() : reader->expect_one();
                return has_more();
            };
            auto stop = [&] { return (stopped = !host.goes_on()) || topic_file().retired(); };
            if (spin.until(left, comes, stop, host)) continue;
            if (stopped) return Outcome::stopped;
        }
        Awaited next = awaited(listening);
        follows = next.at_once;
        // Nothing came in a whole sleep: do not spin again.
        if (!follows) {
            spins = sleep_on_bell(next, deadline, briefly, host) != Woken::timed_out;
            if (work && spins) work->worker.woken();
        }
        if (!host.goes_on()) {
            pass_on();
            return Outcome::stopped;
        }
        if (!spins && !follows) leave_if_deleted(host);
    }
}

template <ReaderHost H>
Outcome BlockingReader::watch(const std::shared_ptr<Event>& event, uint64_t& token, H& host) {
    for (token = 0;;) {
        leave_if_deleted(host);
        Listening listening = listen();
        View view;
        Outcome found = now(view, false, false, host);
        if (found != Outcome::not_there) return found;
        Awaited next = awaited(listening);
        if (next.at_once) continue;
        token = watch_bell(next.bell, event);
        watched = work != nullptr;
        return Outcome::not_there;
    }
}

}  // namespace ringmain
