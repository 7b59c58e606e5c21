// The state of the native half of ringmain.Publisher, shared with its reservations.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include "clock.hpp"
#include "endpoint.hpp"
#include "measured_copy.hpp"
#include "py.hpp"
#include "spin.hpp"

namespace ringmain::py {

struct PublisherState {
    std::shared_ptr<Directory> directory;
    std::unique_ptr<Participant> participant;
    std::unique_ptr<Writer> writer;
    std::string topic, sender;
    Clock clock;
    uint64_t largest_bytes = 0;  // of a payload without sender and kind
    Spin spin;
    CopyChoice copying;                 // how large messages are copied in
    Ref encoder;                        // object -> buffer, for typed topics
    Ref accepts;                        // the classes it is meant for; none: any object
    CallingThread caller;               // see OneAtATime
    bool reserved = false;              // a reservation is open and has the turn
    bool closing = false;               // next to `reserved`: see usable()
    Sleepers sleepers;                  // threads that wait for readers
    uint32_t min_readers = 0;           // send waits while fewer take part
    uint64_t enough_at = kNeverEnough;  // `membership` when there were enough readers: no need to count again
    bool lacks_readers = false;         // what the last send waited for in vain
    uint32_t membership_seen = 0;       // `membership` then
    static constexpr uint64_t kNeverEnough = UINT64_MAX;

    bool open() const {
        return participant && !participant->topic_file().forked.load(std::memory_order_relaxed);
    }
    const Ring& ring() const { return writer->ring(); }
    // Is there nothing to do but to write? Then no thread is inside, either.
    bool sends_plainly() const {
        return !encoder && !caller.thread && open() && !(reserved | closing) && min_readers == 0;
    }
};

struct PublisherObject {
    PyObject_HEAD PublisherState* state;
};

// The state, if the publisher can send now; otherwise raises. Call inside OneAtATime.
PublisherState* usable_slowly(PyObject* self);
inline PublisherState* usable(PyObject* self) {
    PublisherState* p = reinterpret_cast<PublisherObject*>(self)->state;
    static_assert(offsetof(PublisherState, closing) == offsetof(PublisherState, reserved) + 1);
    uint16_t reserved_or_closing;  // one comparison for both, since every send comes by here
    std::memcpy(&reserved_or_closing, &p->reserved, sizeof reserved_or_closing);
    if (p->open() && reserved_or_closing == 0) [[likely]]
        return p;
    return usable_slowly(self);
}
// Encodes the object and sends it; its sequence number, or nullptr: raised.
PyObject* send_object(PyObject* self, PyObject* object, std::string_view kind, int64_t timeout_ns);
PyObject* raise_too_large(const PublisherState& p, uint64_t size, uint64_t envelope_bytes);
PyObject* raise_status(const PublisherState& p, Status status);
bool check_kind(std::string_view kind);

// Leaves the topic. Call inside OneAtATime.
void leave_topic(PublisherState& p);

// Waits until `min_readers` take part. False: Full or another exception is raised.
bool wait_for_min_readers(PublisherState& p, Deadline& deadline);

// Waits until what blocked the writer may be gone. 1: try again; 0: timed out, Full is raised; -1: another exception.
int wait_for_room(PublisherState& p, Deadline& deadline);

// Around all tries of one wait: the slot says which one the writer waits for, from its first sleep to the end of the wait.
// A writer that awakes and tries again is still seen to wait.
struct SeenWaiting {
    PublisherState& p;
    ~SeenWaiting();
};

// begin() and prepare(), waiting until the deadline. While it waits, it does not have the turn. False: raised.
bool start_message_slowly(PublisherState& p, uint64_t room, Deadline& deadline);
// always_inline: the compiler leaves it to a call otherwise, which costs a send 25 instructions.
[[gnu::always_inline]] inline bool start_message(PublisherState& p, uint64_t room, Deadline& deadline) {
    Writer& w = *p.writer;
    if (p.min_readers != 0 && !wait_for_min_readers(p, deadline)) [[unlikely]]
        return false;
    if (w.begin() == Status::ok) [[likely]] {
        if (w.prepare(room) == Status::ok) [[likely]]
            return true;
        w.end();
    }
    return start_message_slowly(p, room, deadline);
}

}  // namespace ringmain::py
