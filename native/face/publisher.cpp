// ringmain_publisher: opens a topic to write, and sends what finds room.
#include "face/publisher.hpp"

#include <cstring>
#include <mutex>

#include "face/arguments.hpp"
#include "face/failing.hpp"
#include "face/schema.hpp"
#include "face/sentences.hpp"
#include "face/waits.hpp"
#include "topic/inspection.hpp"
#include "topic/reaping.hpp"
#include "topic/writing.hpp"

namespace ringmain::face {

namespace {

// If the last participant of a topic is killed, its file stays. So a process that opens its first publisher removes the topics
// whose participants have all died. After them: a frame topic's buffers stay as long as the topic.
void clean_once(const std::shared_ptr<Directory>& directory) {
    static std::once_flag done;
    std::call_once(done, [&] {
        for (FileKind kind : {FileKind::ring, FileKind::waiting, FileKind::pool}) {
            for (const std::string& name : names_in(*directory, kind)) {
                try {
                    unlink_if_dead(directory, name, kind);
                } catch (const Failure&) {
                    // Not a topic, or not one that this process may change.
                }
            }
        }
    });
}

// The topic's schema becomes this writer's, if readers of the old one can read the new one.
void agree_on_schema(TopicFile& file, const std::string& own) {
    std::string there = file.schema();
    if (there == own) return;
    if (!there.empty()) check_compatible(file.topic, own, there);
    RosterLock lock(file);
    file.set_schema(own);
}

ringmain_status too_large(const ringmain_publisher& p, uint64_t size, uint64_t envelope) {
    const TopicFile& file = p.file();
    bool keeps = file.kept_kinds != 0;
    std::string text = "a message of " + std::to_string(size) + " bytes is too large for topic '" + p.topic +
                       "': with its " + std::to_string(file.capacity_bytes) + " bytes it takes up to " +
                       std::to_string(p.largest_bytes - envelope) + "; ";
    if (size <= UINT32_MAX)
        text += "ask for capacity=" + std::to_string(capacity_for(file, size, envelope)) + " or more" +
                (keeps ? ", since a topic with keep_last_per_kind has a 1024th of it for each kind" : "");
    else
        text += "no topic takes more than 4 GiB in one message";
    return fail(RINGMAIN_TOO_LARGE, text);
}

ringmain_status refused(const ringmain_publisher& p, Outcome how, const Deadline& deadline) {
    switch (how) {
        case Outcome::timed_out:
            return fail(RINGMAIN_FULL, "topic '" + p.topic + "' had no room" + within(deadline) +
                                           ": waiting for " + p.end.describe_obstacle());
        case Outcome::too_few:
            return fail(RINGMAIN_FULL, "topic '" + p.topic + "' had " + std::to_string(p.end.readers_seen) +
                                           " of " + std::to_string(p.end.min_readers) + " readers" +
                                           within(deadline) + ": nothing was sent");
        case Outcome::stopped:
            return fail(RINGMAIN_STOPPED, "the wait for room in topic '" + p.topic + "' was stopped");
        case Outcome::taken_over:
            if (finish_removal(p.file()) || p.file().retired())
                return fail(RINGMAIN_NOT_FOUND, "topic '" + p.topic + "' was removed; open it again to go on",
                            ENOENT);
            return fail(
                RINGMAIN_TAKEN_OVER,
                "another writer has taken over topic '" + p.topic + "'; this one cannot send any more",
                ECONNABORTED);
        default:
            return fail(RINGMAIN_CORRUPT, corrupt_text(p.topic));
    }
}

ringmain_status check_usable(const ringmain_publisher& p) {
    if (p.forked())
        return fail(RINGMAIN_CLOSED, "the publisher of topic '" + p.topic +
                                         "' was inherited through fork: open another in this process");
    if (p.reserved)
        return fail(RINGMAIN_IN_USE,
                    "a reservation of topic '" + p.topic + "' is still open: commit or discard it first");
    return RINGMAIN_OK;
}

constexpr size_t kLargeBytes = 64 * 1024;  // from here on seal_run() is not the fastest copy

// noinline: rare, and must not weigh on what is done for every message.
[[gnu::noinline]] ringmain_status send_slow_path(ringmain_publisher& p, std::string_view data,
                                                 std::string_view kind, const ringmain_wait* wait,
                                                 uint64_t* sequence) {
    return guarded([&] {
        check_kind(kind);
        if (ringmain_status status = p.start(data.size(), kind, wait); status != RINGMAIN_OK) return status;
        Writer& w = *p.end.writer;
        if (sequence) *sequence = w.seq();
        copy_in(w.payload(p.sender.size(), kind.size()), data.data(), data.size());
        w.seal(w.seq(), p.clock.now_ns(), data.size(), p.sender, kind);
        w.commit();
        return RINGMAIN_OK;
    });
}

}  // namespace

}  // namespace ringmain::face

using namespace ringmain;
using namespace ringmain::face;

ringmain_publisher::ringmain_publisher(const char* name, const ringmain_publisher_options& options,
                                       bool of_frames) {
    topic = checked_topic(name);
    sender = checked_envelope("sender", text(options.sender));
    WriterRequest request = checked_request(options);
    request.frames = of_frames;
    if (options.struct_layout)
        request.schema = struct_schema(text(options.struct_name), options.struct_layout);
    end.min_readers = options.min_readers;
    end.spin.set(options.spins ? options.spin_ns : -1);
    end.participant = join_as_writer_in(runtime_directory(options.directory), directory, topic, request);
    end.writer = std::make_unique<Writer>(ring_of(file()), end.participant->slot());
    if (traits(file().contract).one_writer && end.writer->attach() != Status::ok)
        throw Failure{Fault::corrupt, corrupt_text(topic)};
    largest_bytes = largest_payload(file());
    if (!request.schema.empty()) agree_on_schema(file(), request.schema);
    clean_once(directory);
}

ringmain_publisher::~ringmain_publisher() {
    if (!end.participant) return;
    if (forked())
        end.participant->abandon();
    else if (reserved)
        end.writer->end();
}

ringmain_status ringmain_publisher::start(uint64_t size, std::string_view of_kind,
                                          const ringmain_wait* wait) {
    if (ringmain_status status = check_usable(*this); status != RINGMAIN_OK) return status;
    uint64_t envelope = envelope_bytes(of_kind);
    if (size > largest_bytes || size + envelope > largest_bytes) return too_large(*this, size, envelope);
    Deadline deadline = deadline_of(wait);
    Outcome how = with_host(wait, [&](auto& host) {
        return end.start(room_for(footprint(size, sender.size(), of_kind.size())), deadline, host);
    });
    return how == Outcome::ready ? RINGMAIN_OK : refused(*this, how, deadline);
}

extern "C" {

RINGMAIN_API ringmain_stop* ringmain_stop_new(void) { return new (std::nothrow) ringmain_stop; }
RINGMAIN_API void ringmain_stop_request(ringmain_stop* stop) { stop->source.request_stop(); }
RINGMAIN_API void ringmain_stop_free(ringmain_stop* stop) { delete stop; }

RINGMAIN_API ringmain_status ringmain_publisher_open(const char* topic,
                                                     const ringmain_publisher_options* options,
                                                     ringmain_publisher** publisher) {
    *publisher = nullptr;
    return guarded([&] {
        *publisher = new ringmain_publisher(topic, options_of(options));
        return RINGMAIN_OK;
    });
}

RINGMAIN_API void ringmain_publisher_close(ringmain_publisher* publisher) { delete publisher; }

RINGMAIN_API ringmain_status ringmain_send(ringmain_publisher* publisher, const void* data, size_t size,
                                           const char* kind, size_t kind_size, const ringmain_wait* wait,
                                           uint64_t* sequence) {
    ringmain_publisher& p = *publisher;
    std::string_view message(static_cast<const char*>(data), size), name(kind, kind_size), sender = p.sender;
    if (p.fast_path_ok() && size < kLargeBytes && kind_size <= kMaxEnvelopeNameBytes && may_be_kind(name) &&
        size + p.envelope_bytes(name) <= p.largest_bytes) [[likely]] {
        Writer& w = *p.end.writer;
        if (w.begin() == Status::ok) [[likely]] {
            if (w.prepare(room_for(footprint(size, sender.size(), kind_size))) == Status::ok) [[likely]] {
                if (sequence) *sequence = w.seq();
                w.seal_run(&message, 1, UINT64_MAX, p.clock.now_ns(), sender, name);
                w.commit();
                return RINGMAIN_OK;
            }
            w.end();
        }
    }
    return send_slow_path(p, message, name, wait, sequence);
}

RINGMAIN_API ringmain_status ringmain_reserve(ringmain_publisher* publisher, size_t size, const char* kind,
                                              size_t kind_size, const ringmain_wait* wait, void** data) {
    *data = nullptr;
    return guarded([&] {
        ringmain_publisher& p = *publisher;
        std::string_view name(kind, kind_size);
        check_kind(name);
        p.kind = name;
        if (ringmain_status status = p.start(size, p.kind, wait); status != RINGMAIN_OK) return status;
        p.reserved = true;
        p.room = size;
        *data = p.end.writer->payload(p.sender.size(), p.kind.size());
        return RINGMAIN_OK;
    });
}

RINGMAIN_API ringmain_status ringmain_commit(ringmain_publisher* publisher, size_t used, uint64_t* sequence) {
    return guarded([&] {
        if (!publisher) return fail(RINGMAIN_CLOSED, "the message was sent, or discarded");
        ringmain_publisher& p = *publisher;
        if (!p.reserved || p.forked())
            return fail(RINGMAIN_CLOSED, "there is no reservation on topic '" + p.topic + "' to commit");
        if (used > p.room)
            return invalid("commit(" + std::to_string(used) + "): only " + std::to_string(p.room) +
                           " bytes are reserved");
        Writer& w = *p.end.writer;
        if (sequence) *sequence = w.seq();
        w.seal(w.seq(), p.clock.now_ns(), used, p.sender, p.kind);
        w.commit();
        p.reserved = false;
        return RINGMAIN_OK;
    });
}

RINGMAIN_API void ringmain_discard(ringmain_publisher* publisher) {
    if (!std::exchange(publisher->reserved, false) || publisher->forked()) return;
    publisher->end.writer->end();
}

RINGMAIN_API ringmain_status ringmain_all_read(ringmain_publisher* publisher, int* yes) {
    return guarded([&] {
        if (ringmain_status status = check_usable(*publisher); status != RINGMAIN_OK) return status;
        *yes = all_read(publisher->file());
        return RINGMAIN_OK;
    });
}

RINGMAIN_API ringmain_status ringmain_wait_for_readers(ringmain_publisher* publisher, uint32_t count,
                                                       const ringmain_wait* wait, uint32_t* readers) {
    return guarded([&] {
        ringmain_publisher& p = *publisher;
        if (ringmain_status status = check_usable(p); status != RINGMAIN_OK) return status;
        Deadline deadline = deadline_of(wait);
        uint32_t there = 0;
        Outcome how = with_host(wait, [&](auto& host) {
            return wait_for_readers(p.end.participant->shared(), count, there, deadline, host);
        });
        if (readers) *readers = there;
        if (how == Outcome::ready) return RINGMAIN_OK;
        if (how == Outcome::stopped)
            return fail(RINGMAIN_STOPPED, "the wait for readers of topic '" + p.topic + "' was stopped");
        return fail(RINGMAIN_TIMEOUT, "topic '" + p.topic + "' had " + std::to_string(there) + " of " +
                                          std::to_string(count) + " readers" + within(deadline));
    });
}

RINGMAIN_API ringmain_status ringmain_publisher_endpoint(const ringmain_publisher* publisher,
                                                         ringmain_endpoint* endpoint) {
    const TopicFile& file = publisher->file();
    const Ring& ring = publisher->end.writer->ring();
    uint64_t commit = ring.header.commit.load(std::memory_order_acquire) & kPositionMask;
    *endpoint = {static_cast<ringmain_contract>(file.contract),
                 0,
                 file.capacity_bytes,
                 file.epoch,
                 publisher->largest_bytes,
                 ring.word_at(commit).load(std::memory_order_relaxed)};
    return RINGMAIN_OK;
}
}
