// The state of the native half of ringmain.Publisher, shared with its reservations.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "python/host.hpp"
#include "python/measured_copy.hpp"
#include "python/py.hpp"
#include "topic/endpoint.hpp"
#include "waiting/blocking_writer.hpp"
#include "waiting/watcher.hpp"

namespace ringmain::py {

struct PublisherState : BlockingWriter {
    std::shared_ptr<Directory> directory;
    std::string topic, sender;
    Clock<CLOCK_REALTIME> clock;
    uint64_t largest_bytes = 0;  // of a payload without sender and kind
    CopyChoice copying;          // how large messages are copied in
    Ref encoder;                 // object -> buffer, for typed topics
    Ref accepts;                 // the classes it is meant for; none: any object
    CallingThread caller;        // see OneAtATime
    bool reserved = false;       // a reservation is open and has the turn
    bool closing = false;        // next to `reserved`: see usable()
    Sleepers sleepers;           // threads that wait for readers

    bool open() const {
        return participant && !participant->topic_file().forked.load(std::memory_order_relaxed);
    }
    PythonHost host() { return {sleepers, closing}; }
    // Is there nothing to do but to write? Then no thread is inside, either.
    bool fast_path_ok() const {
        return !encoder && !caller.thread && open() && !(reserved | closing) && min_readers == 0;
    }
};

struct PublisherObject {
    PyObject_HEAD PublisherState* state;
};

// The state, if the publisher can send now; otherwise raises. Call inside OneAtATime.
PublisherState* usable_slow_path(PyObject* self);
inline PublisherState* usable(PyObject* self) {
    PublisherState* p = reinterpret_cast<PublisherObject*>(self)->state;
    static_assert(offsetof(PublisherState, closing) == offsetof(PublisherState, reserved) + 1);
    uint16_t reserved_or_closing;  // one comparison for both, since every send comes by here
    std::memcpy(&reserved_or_closing, &p->reserved, sizeof reserved_or_closing);
    if (p->open() && reserved_or_closing == 0) [[likely]]
        return p;
    return usable_slow_path(self);
}

// The methods of the type that do not send.
namespace publisher_options {
PyObject* set_sender(PyObject* self, PyObject* name);
PyObject* arm(PyObject* self, PyObject* event);
PyObject* open(PyObject* self, PyObject* args, PyObject* named);
PyObject* close(PyObject* self, PyObject*);
PyObject* wait_for_readers(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names);
PyObject* describe(PyObject* self, PyObject*);
PyObject* get_schema(PyObject* self, PyObject*);
PyObject* set_schema(PyObject* self, PyObject* schema);
PyObject* set_encoder(PyObject* self, PyObject* args);
}  // namespace publisher_options

// Is called with the number of a message that is written, and not yet visible.
class BeforeCommit {
  public:
    virtual void numbered(uint64_t seq) = 0;

  protected:
    ~BeforeCommit() = default;
};
// Encodes the object and sends it; its sequence number, or nullptr: raised.
PyObject* send_object(PyObject* self, PyObject* object, std::string_view kind, int64_t timeout_ns,
                      BeforeCommit* before = nullptr);
PyObject* raise_too_large(const PublisherState& p, uint64_t size, uint64_t envelope_bytes);
// Says why a message cannot be started: always raises. Where the publisher was closed meanwhile, leaves the topic first.
PyObject* raise_outcome(PublisherState& p, Outcome outcome, const Deadline& deadline);

inline void copy_payload(CopyChoice& choice, std::byte* to, const char* from, size_t size) {
    if (size < kLargeCopyBytes) [[likely]] {
        copy_in(to, from, size);
    } else if (size < kBulkBytes) {
        WithoutGil unlocked;
        copy_in(to, from, size);
    } else {
        copy_measured(choice, to, from, size);
    }
}

// The time was up while another thread was in a call. Raises; always null.
PyObject* raise_late(const PublisherState& p, const Deadline& deadline);
// Leaves the topic. Call inside OneAtATime.
void leave_topic(PublisherState& p);

// The turn, and room for a message, waiting until the deadline. False: raised.
bool start_message_slow_path(PublisherState& p, uint64_t room, Deadline& deadline);
// always_inline: the compiler leaves it to a call otherwise, which costs a send 25 instructions.
[[gnu::always_inline]] inline bool start_message(PublisherState& p, uint64_t room, Deadline& deadline) {
    if (p.has_enough_readers() && p.start_at_once(room)) [[likely]]
        return true;
    return start_message_slow_path(p, room, deadline);
}

}  // namespace ringmain::py
