// ringmain_subscriber: receives a topic's messages. All that waits is the core's BlockingReader.
#include "face/subscriber_host.hpp"

#include <algorithm>
#include <cstring>

#include "base/room.hpp"
#include "face/arguments.hpp"
#include "face/failing.hpp"
#include "face/schema.hpp"
#include "face/sentences.hpp"
#include "face/waits.hpp"

using namespace ringmain;
using namespace ringmain::face;

namespace ringmain::face {

namespace {

constexpr int kMaxLaps = 1000;  // while a writer keeps overwriting what we copy

ringmain_status nothing_came(const ringmain_subscriber& s, const Deadline& deadline) {
    if (deadline.timeout_ns() == 0) return RINGMAIN_EMPTY;
    std::string reason = s.end.attached() ? describe_writers(s.end.topic_file())
                         : s.end.roster_locked.empty()
                             ? "there is no such topic (no publisher has been opened)"
                             : s.end.roster_locked;
    uint64_t lost = s.end.reader ? s.end.reader->pending_lost : 0;
    if (lost)
        reason += "; " + std::to_string(lost) + (lost == 1 ? " message was" : " messages were") +
                  " lost since the last one received";
    return fail(RINGMAIN_TIMEOUT,
                "no message on topic '" + s.end.topic + "'" + within(deadline) + ": " + reason);
}

std::vector<std::string> names(const char* const* given, size_t count) {
    std::vector<std::string> all;
    for (size_t i = 0; i < count; ++i) all.emplace_back(text(given[i]));
    return all;
}

Screen screen_of(const ringmain_screen& given) {
    Screen screen{names(given.ignore, given.ignore_count), std::nullopt};
    if (given.only) screen.only = names(given.only, given.only_count);
    return screen;
}

Start start_of(ringmain_start given, const char* what, bool newest) {
    if (given == RINGMAIN_NEXT) return Start::next;
    if (given == RINGMAIN_OLDEST) return Start::oldest;
    if (given == RINGMAIN_NEWEST && newest) return Start::newest;
    throw Refusal{RINGMAIN_INVALID_ARGUMENT,
                  std::string(what) + " is RINGMAIN_NEXT" +
                      (newest ? ", RINGMAIN_OLDEST or RINGMAIN_NEWEST" : " or RINGMAIN_OLDEST") + ", not " +
                      std::to_string(given)};
}

// What the message says, without its bytes.
void describe(const View& view, std::string_view kind, ringmain_message* message) {
    *message = {};
    message->size = view.size;
    message->sequence = view.seq;
    message->time_ns = view.time_ns;
    message->sender_size = view.sender_size;
    message->kind_size = static_cast<uint8_t>(kind.size());
    message->position = view.position;
}

// `to` gets payload, sender and kind. False: they were overwritten meanwhile.
bool copy_message(const Reader& reader, const View& view, std::string_view kind, std::byte* to) {
    copy_out(to, view.payload(), view.size);
    to += view.size;
    if (view.sender_size) copy_out(to, view.sender(), view.sender_size);
    if (!kind.empty())
        copy_out(to + view.sender_size, reinterpret_cast<const std::byte*>(kind.data()), kind.size());
    return reader.still_whole(view);
}

// A receiving call. On work, what was received before is done, and what the caller does not get goes back.
class Receiving {
    ringmain_subscriber& s_;

  public:
    explicit Receiving(ringmain_subscriber& s) : s_(s) {
        if (s.end.work && s.end.attached()) s.end.work->finish_received();
    }
    ~Receiving() {
        if (s_.end.work && s_.end.attached())
            s_.end.work->end_of_call(s_.end.reader->messages(), false, s_.end.leases);
    }
};

}  // namespace

ringmain_status check_ours(const ringmain_subscriber& s) {
    if (!s.end.participant || s.end.attached()) [[likely]]
        return RINGMAIN_OK;
    return fail(RINGMAIN_CLOSED, "the subscriber of topic '" + s.end.topic +
                                     "' was inherited through fork: open another in this process");
}

ringmain_status lost_slot(const ringmain_subscriber& s) {
    return fail(RINGMAIN_TAKEN_OVER,
                "this subscriber's slot in topic '" + s.end.topic +
                    "' was given to another participant: its lock was lost, which happens when a process "
                    "closes all of its descriptors",
                ECONNABORTED);
}

ringmain_status refused(const ringmain_subscriber& s, Outcome how, const Deadline& deadline) {
    switch (how) {
        case Outcome::stopped:
            return fail(RINGMAIN_STOPPED,
                        "the wait for a message on topic '" + s.end.topic + "' was stopped");
        case Outcome::taken_over:
            return lost_slot(s);
        case Outcome::corrupt:
            return fail(RINGMAIN_CORRUPT, corrupt_text(s.end.topic));
        default:
            return nothing_came(s, deadline);
    }
}

Outcome find_next(ringmain_subscriber& s, const ringmain_wait* wait, Deadline& deadline, View& view,
                  bool borrowing) {
    if (s.end.attached() && !s.end.slow_path && !borrowing && s.end.reader->peek(view) == Status::ok)
        [[likely]]
        return Outcome::ready;
    return with_reader_host(s, wait, [&](auto& host) { return s.end.wait(deadline, view, borrowing, host); });
}

namespace {

ringmain_status receive(ringmain_subscriber& s, const ringmain_wait* wait, void* given, size_t room,
                        ringmain_message* message) {
    if (ringmain_status status = check_ours(s); status != RINGMAIN_OK) return status;
    Receiving call(s);
    Deadline deadline = deadline_of(wait);
    for (int laps = 0; laps < kMaxLaps || deadline.left_ns() > 0; ++laps) {
        View view;
        if (Outcome how = find_next(s, wait, deadline, view, false); how != Outcome::ready)
            return refused(s, how, deadline);
        std::string_view kind = view.said().kind;
        describe(view, kind, message);
        size_t bytes = size_t{view.size} + view.sender_size + kind.size();
        if (given && bytes > room)
            return fail(RINGMAIN_TOO_LARGE, "the next message of topic '" + s.end.topic + "' has " +
                                                std::to_string(view.size) + " bytes and the buffer " +
                                                std::to_string(room) + "; it was not taken");
        if (!given) s.buffer.resize(std::max(s.buffer.size(), bytes));
        std::byte* to = given ? static_cast<std::byte*>(given) : s.buffer.data();
        if (!copy_message(*s.end.reader, view, kind, to)) continue;
        message->lost = s.end.reader->take(view);
        if (s.end.work) message->redelivered = static_cast<uint8_t>(s.end.work->fresh.back().returns);
        message->data = to;
        message->sender = reinterpret_cast<const char*>(to + view.size);
        message->kind = message->sender + message->sender_size;
        return s.release() ? RINGMAIN_OK : lost_slot(s);
    }
    return nothing_came(s, deadline);
}

ringmain_status borrow(ringmain_subscriber& s, const ringmain_wait* wait, ringmain_message* message) {
    if (ringmain_status status = check_ours(s); status != RINGMAIN_OK) return status;
    Receiving call(s);
    Deadline deadline = deadline_of(wait);
    View view;
    if (Outcome how = find_next(s, wait, deadline, view, true); how != Outcome::ready)
        return refused(s, how, deadline);
    std::string_view kind = view.said().kind;
    describe(view, kind, message);
    message->data = view.payload();
    message->sender = reinterpret_cast<const char*>(view.sender());
    message->kind = kind.empty() ? message->sender : kind.data();
    make_room(s.borrowed);  // first: from here on nothing fails
    make_room(s.end.leases);
    if (s.end.work) s.end.work->lent.make_room();
    s.borrowed.push_back({view.position, s.end.mapping(), s.end.kept != nullptr});
    s.end.leases.push_back(s.end.position_to_keep(view));
    message->lost = s.end.reader->take(view);
    if (s.end.work) message->redelivered = static_cast<uint8_t>(s.end.work->lend());
    return s.release() ? RINGMAIN_OK : lost_slot(s);
}

}  // namespace

}  // namespace ringmain::face

ringmain_subscriber::ringmain_subscriber(const char* topic, const ringmain_subscriber_options& options) {
    end.directory_path = runtime_directory(options.directory);
    end.topic = checked_topic(topic);
    end.name = participant_name(text(options.name), {});
    end.start = start_of(options.start, "start", true);
    if (options.on_lap_given) end.on_lap = start_of(options.on_lap, "on_lap", false);
    end.conflate = options.conflate;
    end.senders = screen_of(options.senders);
    end.kinds = screen_of(options.kinds);
    end.slow_path = end.needs_slow_path();
    end.spin.set(options.spins ? options.spin_ns : -1);
    if (options.observe < RINGMAIN_OBSERVE_NEVER || options.observe > RINGMAIN_OBSERVE_ALWAYS)
        throw Refusal{
            RINGMAIN_INVALID_ARGUMENT,
            "observe is RINGMAIN_OBSERVE_NEVER, _PIPES or _ALWAYS, not " + std::to_string(options.observe)};
    end.observe = static_cast<ObserveMode>(options.observe);
    if (options.struct_layout) schema = struct_schema(text(options.struct_name), options.struct_layout);
    int64_t end_ns = monotonic_ns() + RosterLock::kPatience_ns;
    do with_reader_host(*this, nullptr, [this](auto& host) { return end.attach(host); });
    while (!end.roster_locked.empty() && monotonic_ns() < end_ns);
    if (!end.roster_locked.empty()) throw Failure{Fault::roster_locked, end.roster_locked};
}

ringmain_subscriber::~ringmain_subscriber() {
    if (end.participant && !end.attached()) {
        end.participant->abandon();
        return;
    }
    if (end.work)
        while (!end.work->lent.empty())
            end.work->end_loan(end.work->lent.begin()->view.position, true, end.leases);
    SubscriberHost<PlainHost> host(*this);
    end.leave(host);
}

bool ringmain_subscriber::release() {
    bool ours = end.reader->release(end.keep());
    if (end.work) end.work->worker.release(end.work->keep(end.leases));
    return ours;
}

void ringmain_subscriber::joined() {
    frames.joined(end);
    if (schema.empty()) return;
    if (std::string written = end.topic_file().schema(); !written.empty())
        check_compatible(end.topic, written, schema);
}

extern "C" {

RINGMAIN_API ringmain_status ringmain_subscriber_open(const char* topic,
                                                      const ringmain_subscriber_options* options,
                                                      ringmain_subscriber** subscriber) {
    *subscriber = nullptr;
    return guarded([&] {
        *subscriber = new ringmain_subscriber(topic, options_of(options));
        return RINGMAIN_OK;
    });
}

RINGMAIN_API void ringmain_subscriber_close(ringmain_subscriber* subscriber) { delete subscriber; }

RINGMAIN_API ringmain_status ringmain_receive(ringmain_subscriber* subscriber, const ringmain_wait* wait,
                                              void* buffer, size_t buffer_size, ringmain_message* message) {
    return guarded([&] { return receive(*subscriber, wait, buffer, buffer_size, message); });
}

RINGMAIN_API ringmain_status ringmain_borrow(ringmain_subscriber* subscriber, const ringmain_wait* wait,
                                             ringmain_message* message) {
    return guarded([&] { return borrow(*subscriber, wait, message); });
}

RINGMAIN_API int ringmain_still_whole(const ringmain_subscriber* subscriber,
                                      const ringmain_message* message) {
    const BlockingReader& end = subscriber->end;
    if (!end.attached()) return false;
    if (message->position >= KeptMessages::kOrigin) return true;
    View view{};
    view.position = message->position;
    return (end.after_kept ? end.after_kept : end.reader)->still_whole(view);
}

RINGMAIN_API ringmain_status ringmain_return(ringmain_subscriber* subscriber, const ringmain_message* message,
                                             int failed) {
    return guarded([&] {
        ringmain_subscriber& s = *subscriber;
        auto lent = std::ranges::find(s.borrowed, message->position, &Lease::position);
        if (!s.end.attached() || lent == s.borrowed.end())
            return fail(RINGMAIN_CLOSED, "message " + std::to_string(message->sequence) + " of topic '" +
                                             s.end.topic + "' is not borrowed any more");
        bool whole = ringmain_still_whole(subscriber, message) != 0;
        uint64_t position = lent->kept ? kNoHold : lent->position;
        s.borrowed.erase(lent);
        s.end.leases.erase(std::ranges::find(s.end.leases, position));
        if (s.end.work) s.end.work->end_loan(message->position, failed != 0, s.end.leases);
        if (!s.release()) return lost_slot(s);
        if (whole) return RINGMAIN_OK;
        return fail(RINGMAIN_LAPPED,
                    "message " + std::to_string(message->sequence) + " of topic '" + s.end.topic +
                        "' was overwritten while it was borrowed: what was read of it is "
                        "worthless. Copy it, ask for a larger capacity, or use the contract bus, "
                        "where a borrowed message stays");
    });
}

RINGMAIN_API ringmain_status ringmain_reject(ringmain_subscriber* subscriber) {
    return guarded([&] {
        BlockingReader& end = subscriber->end;
        if (!end.work || !end.attached() || end.work->received.empty())
            return invalid("topic '" + end.topic +
                           "' has no message to reject: only one that was received on work, and last");
        end.work->reject(&end.work->received.back(), end.leases);
        return RINGMAIN_OK;
    });
}

RINGMAIN_API uint64_t ringmain_lost(const ringmain_subscriber* subscriber) { return subscriber->end.lost(); }

RINGMAIN_API ringmain_status ringmain_subscriber_endpoint(const ringmain_subscriber* subscriber,
                                                          ringmain_endpoint* endpoint) {
    *endpoint = {};
    if (!subscriber->end.attached()) return RINGMAIN_OK;
    const TopicFile& file = subscriber->end.topic_file();
    Ring ring = ring_of(file);
    uint64_t commit = ring.header.commit.load(std::memory_order_acquire) & kPositionMask;
    *endpoint = {static_cast<ringmain_contract>(file.contract),       0, file.capacity_bytes, file.epoch, 0,
                 ring.word_at(commit).load(std::memory_order_relaxed)};
    return RINGMAIN_OK;
}
}
