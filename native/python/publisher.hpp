// The native half of ringmain.Publisher, as its reservation needs to see it too.
#pragma once

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
    CopyChoice copying;           // how large messages are copied in
    PyObject* encoder = nullptr;  // object -> buffer, for typed topics
    PyObject* accepts = nullptr;  // the classes it is meant for, or nullptr for any object
    Occupant occupant;            // see OneAtATime
    bool reserved = false;        // a reservation is open: the turn is its own
    bool closing = false;

    bool open() const {
        return participant && !participant->topic_file().forked.load(std::memory_order_relaxed);
    }
    const Ring& ring() const { return writer->ring(); }
};

struct PublisherObject {
    PyObject_HEAD PublisherState* state;
};

// Raises unless the publisher can send now; nullptr then. To be asked inside OneAtATime.
PublisherState* usable_slowly(PyObject* self);
inline PublisherState* usable(PyObject* self) {
    PublisherState* p = reinterpret_cast<PublisherObject*>(self)->state;
    if (p->open() && !p->reserved && !p->closing) [[likely]]
        return p;
    return usable_slowly(self);
}
PyObject* raise_too_large(const PublisherState& p, uint64_t size, uint64_t envelope_bytes);
PyObject* raise_status(const PublisherState& p, Status status);
bool check_kind(std::string_view kind);

// Gives the participant back. Only inside OneAtATime.
void leave_topic(PublisherState& p);

// Waits until what stopped the writer is gone. 1: try again; 0: time is up, Full is raised; -1: another exception.
int wait_for_way(PublisherState& p, Deadline& deadline);

// begin() and prepare(), waiting as long as it takes. While it waits the turn is somebody else's. False: raised.
bool start_message_slowly(PublisherState& p, uint64_t room, Deadline& deadline);
inline bool start_message(PublisherState& p, uint64_t room, Deadline& deadline) {
    Writer& w = *p.writer;
    if (w.begin() == Status::ok) [[likely]] {
        if (w.prepare(room) == Status::ok) [[likely]]
            return true;
        w.end();
    }
    return start_message_slowly(p, room, deadline);
}

}  // namespace ringmain::py
