// The client's end of a service: its calls in flight, and the turn to receive their replies. Owns these invariants: at any moment at
// most one thread receives, and it does so for all; a reply is given to the call that it is for, or stays in the topic; who leaves
// the turn, or gives up waiting for it, wakes the next one.
//
// There is one model. Who waits for a reply has the turn, or sleeps until its call is finished or the turn is free. So a caller
// that is alone lists its call, takes the turn, and receives, with no other thread in between. The thread of futures and the
// tasks of an event loop are *waiters*: they receive only while calls of theirs are in flight and no caller has the turn. When the
// last of them is done, a caller is alone again.
//
// A call is listed before its request becomes visible, so no reply is there before its call. `Lock` keeps threads apart
// where nothing else does: in Python that is the interpreter, and no lock is needed. `Payload` is what a face keeps of a reply.
#pragma once

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "requests/calls.hpp"
#include "requests/sent.hpp"
#include "waiting/blocking_reader.hpp"
#include "waiting/blocking_writer.hpp"

namespace ringmain {

// Where the interpreter, or a single thread, is the lock.
struct NoLock {
    void lock() {}
    void unlock() {}
};

template <class H, class Payload>
concept ClientHost = ReaderHost<H> && requires(H& host, const View& view, Payload& payload) {
    // Copies the reply. False: stopped, and the reply stays where it is.
    { host.copy(view, payload) } -> std::same_as<bool>;
    // Calls it while no other thread is inside the reader: stopped, if it could not.
    {
        host.in_turn([] { return Outcome::ready; })
    } -> std::same_as<Outcome>;
};

template <class Payload, class Lock>
class ClientEnd {
  public:
    using Call = CallOf<Payload>;
    using Waiter = WaiterOf<Payload>;

    ClientEnd(BlockingWriter& requests, BlockingReader& replies) : requests_(requests), replies_(replies) {}

    size_t in_flight() const { return calls_.size(); }
    // How often a thread slept because another had the turn.
    uint64_t slept() const { return slept_; }

    // To be called before its request is started. Throws std::bad_alloc.
    void make_room() {
        std::lock_guard guard(lock_);
        calls_.make_room();
    }
    // Its request is written, and not yet visible.
    void add(Call& call, uint64_t number) {
        std::lock_guard guard(lock_);
        call.number = number;
        calls_.add(call);
        if (Waiter* waiter = call.waiter) {
            ++waiter->in_flight;
            waiter->late_ns = std::min(waiter->late_ns, call.terms.deadline_ns);
            wake(*waiter);
        }
    }
    // No one waits for it any more: its reply, if one comes, is ignored.
    void drop(Call& call) {
        std::lock_guard guard(lock_);
        if (call.listed) unlist(call);
        if (!receives_) wake_next();
    }

    // Until the call is finished. Otherwise it is still listed: timed_out, or what ended the wait.
    template <ClientHost<Payload> H>
    Outcome wait(Call& own, int64_t left_ns, H& host) {
        for (;;) {
            bool turn;
            uint32_t value = 0;
            {
                std::lock_guard guard(lock_);
                if (own.finished()) return Outcome::ready;
                turn = !std::exchange(receives_, true);
                if (!turn) value = fall_asleep(own);
            }
            if (turn) {
                LeavesTurn leaves(*this);
                return host.in_turn([&] { return receive_for(own, left_ns, host); });
            }
            sleep(own.word, value, std::min(kSlice_ns, left_ns), host);
            {
                std::lock_guard guard(lock_);
                awake(own);
                if (own.finished()) return Outcome::ready;
            }
            if (!host.goes_on()) return Outcome::stopped;
            left_ns = own.left_ns();
            if (left_ns == 0) return Outcome::timed_out;
        }
    }

    // Until calls of the waiter are finished: then take() gives them. Receives while no caller does.
    template <ClientHost<Payload> H>
    Outcome wait_for_any(Waiter& waiter, H& host) {
        for (;;) {
            bool turn;
            uint32_t value = 0;
            {
                std::lock_guard guard(lock_);
                if (waiter.first) return Outcome::ready;
                if (closed_) return Outcome::stopped;
                turn = waiter.in_flight && take_turn(waiter);
                if (!turn) value = fall_asleep(waiter);
            }
            if (turn) {
                LeavesTurn leaves(*this);
                Outcome how = host.in_turn([&] { return receive_for(waiter, host); });
                if (how != Outcome::ready) return how;
                continue;
            }
            sleep(waiter.word, value, waiter.in_flight ? patience_ns(waiter) : kLongestSleep_ns, host);
            {
                std::lock_guard guard(lock_);
                awake(waiter);
            }
            if (!host.goes_on()) return Outcome::stopped;
            give_up_late(waiter);
        }
    }
    // The same without waiting, for tasks. timed_out: another has the turn, or there is no more. `looks`: also for servers that
    // died.
    template <ClientHost<Payload> H>
    Outcome receive_now(Waiter& waiter, bool looks, H& host) {
        Outcome how = with_free_turn(waiter, host, [&] {
            Outcome received = receive_all(host);
            return received == Outcome::timed_out && looks ? look_for_lost(host) : received;
        });
        give_up_late(waiter);
        return how;
    }
    // What is called with the turn says how it went; timed_out: another has it.
    template <ClientHost<Payload> H, class Use>
    Outcome with_free_turn(Waiter& waiter, H& host, Use use) {
        {
            std::lock_guard guard(lock_);
            awake(waiter);
            if (!take_turn(waiter)) return Outcome::timed_out;
        }
        LeavesTurn leaves(*this);
        return host.in_turn(use);
    }
    // For a waiter that watches its word instead of sleeping on it. An empty bell: there is something to take.
    Bell arm(Waiter& waiter) {
        std::lock_guard guard(lock_);
        if (waiter.first || closed_) return {};
        return {&waiter.word, fall_asleep(waiter)};
    }
    Call* take(Waiter& waiter) {
        std::lock_guard guard(lock_);
        return waiter.take();
    }
    // It waits for no more: then take() gives also its calls that were in flight.
    void forget(Waiter& waiter) {
        std::lock_guard guard(lock_);
        awake(waiter);
        calls_.remove_if([&](const Call& call) { return call.waiter == &waiter; },
                         [&](Call& call) { waiter.give(call); });
        waiter.in_flight = 0;
    }

    // The client closes: all calls are finished.
    void close() {
        std::lock_guard guard(lock_);
        closed_ = true;
        auto all = [](const Call&) { return true; };
        calls_.remove_if(all, [&](Call& call) { settle(call, Answer::closed); });
        for (Waiter* waiter : waiters_) change_and_wake(&waiter->word);
    }

  private:
    static constexpr int64_t kFirstSlice_ns = 10'000'000, kLongestWait_ns = 100'000'000;
    static constexpr int kAtOnce = 64;  // replies, before the hold moves and others may have the turn

    BlockingWriter& requests_;
    BlockingReader& replies_;
    Lock lock_;  // for all below
    Calls<Payload> calls_;
    bool receives_ = false;  // has a thread the turn?
    bool closed_ = false;
    int64_t looked_ns_ = 0;  // for servers that died
    uint64_t slept_ = 0;
    std::vector<Call*> sleepers_;   // whose threads wait for the turn
    std::vector<Waiter*> waiters_;  // that do

    struct LeavesTurn {
        ClientEnd& end;
        explicit LeavesTurn(ClientEnd& of) : end(of) {}
        ~LeavesTurn() {
            std::lock_guard guard(end.lock_);
            end.receives_ = false;
            end.wake_next();
        }
        LeavesTurn(const LeavesTurn&) = delete;
        LeavesTurn& operator=(const LeavesTurn&) = delete;
    };

    // ------------------------------------------------------------------------------------ with the lock

    bool take_turn(Waiter& waiter) {
        waiter.wants_turn = receives_;
        return !std::exchange(receives_, true);
    }
    // A caller before the waiters: it receives for itself.
    void wake_next() {
        if (!sleepers_.empty()) {
            change_and_wake(&sleepers_.front()->word);
            return;
        }
        for (Waiter* waiter : waiters_)
            if (std::exchange(waiter->wants_turn, false)) change_and_wake(&waiter->word);
    }
    void wake(Waiter& waiter) {
        if (waiter.asleep) change_and_wake(&waiter.word);
    }
    // The word's value, to sleep on.
    uint32_t fall_asleep(Call& call) {
        ++slept_;
        sleepers_.push_back(&call);
        return __atomic_load_n(
            &call.word, __ATOMIC_RELAXED);  // relaxed: changed with the lock, or by a host that stops us
    }
    uint32_t fall_asleep(Waiter& waiter) {
        if (!waiter.asleep) waiters_.push_back(&waiter);
        waiter.asleep = true;
        return __atomic_load_n(&waiter.word, __ATOMIC_RELAXED);  // relaxed: as above
    }
    void awake(Call& call) { std::erase(sleepers_, &call); }
    void awake(Waiter& waiter) {
        if (std::exchange(waiter.asleep, false)) std::erase(waiters_, &waiter);
    }
    void unlist(Call& call) {
        calls_.remove(call);
        if (call.waiter) --call.waiter->in_flight;
    }
    void finish(Call& call, Answer answer) {
        calls_.remove(call);
        settle(call, answer);
    }
    // Its thread may go on at once, and the call be gone.
    void settle(Call& call, Answer answer) {
        call.answer = answer;
        if (Waiter* waiter = call.waiter) {
            --waiter->in_flight;
            waiter->give(call);
            wake(*waiter);
        } else if (std::ranges::find(sleepers_, &call) != sleepers_.end()) {
            change_and_wake(&call.word);
        }
    }

    // ------------------------------------------------------------------------------------ with the turn

    // Gives replies to their calls: those that are there, or the next one that comes; up to that to `own`.
    template <class H>
    Outcome receive(Deadline& deadline, const Call* own, H& host) {
        View view;
        if (!replies_.attached() || replies_.slow_path || replies_.reader->peek(view) != Status::ok)
            [[unlikely]] {
            View other;  // so that `view` can stay in registers
            Outcome found = replies_.wait(deadline, other, false, host);
            if (found != Outcome::ready) return found;
            view = other;
        }
        for (int count = 1;; ++count) {
            auto answer = answer_of(view.said().extension);
            Payload payload{};
            if (answer && !host.copy(view, payload)) return Outcome::stopped;
            CRASH_POINT("call: reply read, not taken");
            replies_.reader->take(view);
            if (answer) {
                std::lock_guard guard(lock_);
                if (Call* call = calls_.find(answer->number)) {  // otherwise no call waits for it
                    call->payload = std::move(payload);
                    finish(*call, answer->answer);
                }
            }
            if ((own && own->finished()) || count == kAtOnce) break;
            if (replies_.another(view, host) != Outcome::ready)
                break;  // if it is an error, the next call meets it
        }
        bool ours = replies_.reader->release(replies_.keep());
        CRASH_POINT("call: reply taken, not returned");
        return ours ? Outcome::ready : Outcome::taken_over;
    }

    template <class H>
    Outcome receive_all(H& host) {
        for (;;) {
            Deadline at_once(0);
            if (Outcome how = receive(at_once, nullptr, host); how != Outcome::ready) return how;
        }
    }

    template <class H>
    Outcome receive_for(Call& own, int64_t left_ns, H& host) {
        for (int64_t slice_ns = kFirstSlice_ns;; left_ns = own.left_ns()) {
            Deadline deadline(std::min(slice_ns, left_ns));
            Outcome how = receive(deadline, &own, host);
            if (own.finished()) return Outcome::ready;
            if (how == Outcome::timed_out && left_ns <= slice_ns) return how;
            if (how == Outcome::timed_out) slice_ns = std::min(2 * slice_ns, kLongestWait_ns);
            if (how = look_if_due(how, host); how != Outcome::ready)
                return own.finished() ? Outcome::ready : how;
            if (own.finished()) return Outcome::ready;
        }
    }
    // Once. ready: go on.
    template <class H>
    Outcome receive_for(Waiter& waiter, H& host) {
        Deadline deadline(patience_ns(waiter));
        Outcome how = look_if_due(receive(deadline, nullptr, host), host);
        give_up_late(waiter);
        return how;
    }

    // Also while replies to other calls keep coming. ready: go on.
    template <class H>
    Outcome look_if_due(Outcome how, H& host) {
        if (how == Outcome::ready && monotonic_ns() - looked_ns_ < kLongestWait_ns) return how;
        if (how == Outcome::ready || how == Outcome::timed_out) how = look_for_lost(host);
        return how == Outcome::timed_out ? Outcome::ready : how;
    }

    // Gives up calls whose server died with them: no other will run them. timed_out: go on.
    template <class H>
    Outcome look_for_lost(H& host) {
        looked_ns_ = monotonic_ns();
        if (!requests_.participant) return Outcome::timed_out;
        const TopicFile& file = requests_.topic_file();
        std::vector<uint64_t> lost;
        for_each_lost(file, [&](uint64_t number) {
            std::lock_guard guard(lock_);
            Call* call = calls_.find(number);
            if (call && !call->terms.retry) lost.push_back(number);
        });
        if (lost.empty()) return Outcome::timed_out;
        Outcome how = receive_all(host);  // it may have replied before it died
        if (how != Outcome::timed_out || !requests_.participant) return how;
        for (uint64_t number : lost) {
            // Once more: what we looked at may have been overwritten just then.
            RequestState state = request_state(file, number);
            std::lock_guard guard(lock_);
            Call* call = calls_.find(number);
            if (call && (state == RequestState::orphaned || state == RequestState::returned))
                finish(*call, Answer::lost);
        }
        return how;
    }

    // ------------------------------------------------------------------------------------------ waiters

    int64_t patience_ns(const Waiter& waiter) {
        std::lock_guard guard(lock_);
        if (waiter.late_ns == kForever) return kLongestWait_ns;
        return std::clamp<int64_t>(waiter.late_ns - monotonic_ns(), 0, kLongestWait_ns);
    }

    void give_up_late(Waiter& waiter) {
        std::lock_guard guard(lock_);
        if (waiter.late_ns == kForever) return;
        int64_t now_ns = monotonic_ns();
        if (now_ns < waiter.late_ns) return;
        waiter.late_ns = kForever;
        auto is_late = [&](const Call& call) {
            if (call.waiter != &waiter) return false;
            if (call.terms.deadline_ns <= now_ns) return true;
            waiter.late_ns = std::min(waiter.late_ns, call.terms.deadline_ns);
            return false;
        };
        calls_.remove_if(is_late, [&](Call& call) { settle(call, Answer::late); });
    }

    template <class H>
    void sleep(const uint32_t& word, uint32_t value, int64_t for_ns, H& host) {
        host.sleep(&word, nullptr, [&] { return sleep_on({&word, value}, for_ns); });
    }
};

}  // namespace ringmain
