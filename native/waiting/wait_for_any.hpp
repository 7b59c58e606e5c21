// Waits for many readers at once: until one of them has a message. Owns these invariants: it sleeps only after it has looked at
// each of them with its bell armed; each bell is slept on once, however many readers share it.
//
// Most waits of a busy program find a message, so the first look arms nothing. For a sleep, all bells are armed, then one
// process-wide barrier is made for all of them, then each is looked at once more: a barrier for each would be most of the cost.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "waiting/blocking_reader.hpp"

namespace ringmain {

// One of the readers that has nothing to receive, and what it sleeps on.
struct SleepsFor {
    size_t reader;  // the how-manieth
    const uint32_t* word;
    std::shared_ptr<const void> mapped;  // what the word lies in
};

// A look at one reader: any callable. What it returns is returned.
struct AnyLook {
    template <ReaderHost H>
    Outcome operator()(BlockingReader& reader, H& host) const;
};

template <class H>
concept ManyReadersHost = requires(H& host, size_t reader, std::span<const SleepsFor> all) {
    // Lets it look at one of the readers, whose host it gives. What is neither `ready` nor `not_there` ends the wait.
    { host.look(reader, AnyLook()) } -> std::same_as<Outcome>;
    // Runs a sleep. The host may end it by change_and_wake() of any of the words.
    { host.sleep(all, AnySleep()) } -> std::same_as<Woken>;
    // Between two steps. False: the wait ends with Outcome::stopped, after a last look at each.
    { host.goes_on() } -> std::same_as<bool>;
};

// Readers of one thread, with one host for all.
template <ReaderHost H>
class OwnReaders {
    std::span<BlockingReader* const> readers_;
    H& host_;

  public:
    OwnReaders(std::span<BlockingReader* const> readers, H& host) : readers_(readers), host_(host) {}

    template <class Look>
    Outcome look(size_t reader, Look look) {
        return look(*readers_[reader], host_);
    }
    template <class Sleep>
    Woken sleep(std::span<const SleepsFor> all, Sleep sleep) {
        return all.empty() ? host_.sleep(nullptr, nullptr, sleep)
                           : host_.sleep(all[0].word, all[0].mapped, sleep);
    }
    bool goes_on() { return host_.goes_on(); }
};
static_assert(ManyReadersHost<OwnReaders<PlainReaderHost<PlainHost>>>);

// What a wait has slept for so far, which its next sleep depends on.
struct SleepsSoFar {
    bool briefly = true;  // see sleep_watched
    int polls = 0;        // of more bells than the kernel takes at once
};

// One sleep of the wait: the readers that have nothing, and their bells.
class SleepForAny {
    using Life = std::tuple<uint64_t, uint64_t, bool>;
    // Topics that readers wait for: all share the directory's bell.
    using Missing = std::vector<std::pair<std::shared_ptr<const Directory>, std::string>>;

    std::vector<Bell> bells_;
    std::vector<Awaiting> awaiting_;  // on each of them
    std::set<Life> lives_;            // whose bells we have
    std::shared_ptr<Missing> missing_ = std::make_shared<Missing>();
    std::vector<SleepsFor> readers_;
    bool polls_ = false;  // one of the readers must
    bool watched_;        // deaths are, so `awaiting_` is filled

    template <class Make>
    void add(Bell bell, Make awaiting);
    Woken sleep_on_all(int64_t timeout_ns) const;
    std::shared_ptr<Event> watched() const;
    Woken watched_by_threads(Deadline& deadline, int& polls) const;

  public:
    // A wait is brief at first: then deaths are not watched, and what each bell awaits is not written down.
    SleepForAny(size_t count, const SleepsSoFar& before) : watched_(!before.briefly || count > kMaxBells) {}

    void add(size_t index, const BlockingReader& reader, const Awaited& awaited);
    void add(const std::shared_ptr<Directory>& directory, Bell bell);

    // After all are armed, before each is asked whether it may sleep.
    void make_barrier();

    std::span<const SleepsFor> readers() const { return readers_; }
    Woken once(Deadline& deadline, SleepsSoFar& before) const;
};

// Waits until one of `count` readers has a message, which stays where it is: `ready` gets the indexes of those that have one. With
// `directory_seen`, a count of Directory::changes() of the first reader's directory, it ends also, perhaps with none, when
// topics were created or removed since. An Outcome of a look that is neither ready nor not_there is returned as it is.
template <ManyReadersHost H>
Outcome wait_for_any(size_t count, Deadline& deadline, std::vector<size_t>& ready, H& host,
                     std::optional<uint32_t> directory_seen = {}) {
    // An Outcome that ends the wait, or `ready`, or `not_there`: none of them is.
    auto look_at_each = [&](auto look) {
        ready.clear();
        for (size_t i = 0; i < count; ++i) {
            Outcome found = host.look(
                i, [&](BlockingReader& reader, auto& of_reader) { return look(i, reader, of_reader); });
            if (found == Outcome::ready)
                ready.push_back(i);
            else if (found != Outcome::not_there)
                return found;
        }
        return ready.empty() ? Outcome::not_there : Outcome::ready;
    };
    bool sleeps = deadline.timeout_ns() != 0 || directory_seen;
    SleepsSoFar before;
    for (bool slice_is_over = false;;) {
        Outcome found = look_at_each([&](size_t, BlockingReader& reader, auto& of_reader) {
            View view;
            bool looks =
                reader.attached() || !sleeps;  // who listens for a topic does so before he looks for it
            return looks ? reader.now(view, false, false, of_reader) : Outcome::not_there;
        });
        if (found != Outcome::not_there) return found;
        if (!sleeps) return Outcome::timed_out;

        SleepForAny sleep(count, before);
        bool look_again = false, directory_changed = false;
        found = look_at_each([&](size_t i, BlockingReader& reader, auto& of_reader) {
            if (slice_is_over) reader.leave_if_deleted(of_reader);
            Listening listening = reader.listen();
            if (directory_seen && i == 0 && reader.directory) {
                sleep.add(reader.directory, reader.directory->bell());
                directory_changed = reader.directory->changes() != *directory_seen;
            }
            View view;
            Outcome now = reader.now(view, false, false, of_reader);
            if (now != Outcome::not_there) return now;
            Awaited next = reader.awaited(listening, true);
            look_again |= next.at_once;
            sleep.add(i, reader, next);
            return now;
        });
        if (found == Outcome::not_there && directory_changed) return Outcome::ready;
        if (found != Outcome::not_there) return found;
        if (deadline.left_ns() == 0) return Outcome::timed_out;

        sleep.make_barrier();
        found = look_at_each([&](size_t, BlockingReader& reader, auto&) {
            look_again |= !reader.may_sleep();
            return Outcome::not_there;
        });
        if (found != Outcome::not_there) return found;
        if (!look_again) {
            auto once = [&] { return sleep.once(deadline, before); };
            slice_is_over = host.sleep(sleep.readers(), once) == Woken::timed_out;
            auto wake = [](size_t, BlockingReader& reader, auto&) {
                return reader.woken(), Outcome::not_there;
            };
            found = slice_is_over ? Outcome::not_there : look_at_each(wake);
            if (found != Outcome::not_there) return found;
        }
        if (!host.goes_on()) {
            look_at_each(
                [](size_t, BlockingReader& reader, auto&) { return reader.pass_on(), Outcome::not_there; });
            return Outcome::stopped;
        }
    }
}

}  // namespace ringmain
