// The native half of ringmain.Subscriber, as leases and batches need to see it too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "endpoint.hpp"
#include "event.hpp"
#include "py.hpp"
#include "spin.hpp"

namespace ringmain::py {

struct SubscriberState {
    std::shared_ptr<Directory> directory;
    std::unique_ptr<Participant> participant;
    std::unique_ptr<Reader> reader;
    std::string directory_path, topic, name;
    Start start = Start::latest, on_lap = Start::latest;
    bool conflate = false;
    Observe observe = Observe::never;
    Spin spin;
    std::vector<std::string> ignored_senders, ignored_kinds;
    bool screens = false;         // is anything ignored?
    PyObject* decoder = nullptr;  // buffer -> object, for typed topics
    uint64_t lost_before = 0;     // on lives of the topic that are over
    bool came_first = false;      // we were here before this life of the topic: read it from its beginning
    Occupant occupant;            // see OneAtATime
    bool closing = false, closed = true;
    std::vector<uint64_t> leases;  // positions of borrowed messages that are still in use
    std::shared_ptr<Event> event;  // behind fileno(), if it was asked for
    uint64_t event_token = 0;      // what watches for it
    // The last sender and kind as Python strings: they rarely change from one message to the next.
    std::string last_sender, last_kind;
    PyObject *last_sender_str = nullptr, *last_kind_str = nullptr;

    bool attached() const {
        return participant && !participant->topic_file().forked.load(std::memory_order_relaxed);
    }
    uint64_t lost() const { return lost_before + (reader ? reader->lost : 0); }
    // From which position on bytes are still needed.
    uint64_t keep() const {
        uint64_t first = kNoHold;
        for (uint64_t position : leases) first = std::min(first, position);
        return first;
    }
};

struct SubscriberObject {
    PyObject_HEAD SubscriberState* state;
};

// Raises unless the subscriber can be used; nullptr then. It may not be attached yet. To be asked inside OneAtATime.
SubscriberState* usable_subscriber(PyObject* self);

// Takes a participant. 1: attached; 0: there is no such topic yet; -1: raised.
int attach(PyObject* self, SubscriberState& s);

// Gives the participant back for good. Only inside OneAtATime.
void leave_topic(SubscriberState& s);

// Has the event rung at the next message. 0: one is there already, or nothing can be watched; -1: raised.
int64_t watch_for_message(PyObject* self, SubscriberState& s, const std::shared_ptr<Event>& event);

// Waits for a message that is not screened. 1: `view` is it, not yet taken; 0: time is up, nothing raised; -1: raised.
int next_message(PyObject* self, SubscriberState& s, Deadline& deadline, View& view, bool borrowing = false);

// The same for the most common case, without a call: attached, nothing screened, something there.
[[gnu::always_inline]] inline int next_message_quickly(PyObject* self, SubscriberState& s, Deadline& deadline,
                                                       View& view) {
    if (s.attached() && !s.screens && s.reader->peek(view) == Status::ok) [[likely]]
        return 1;
    return next_message(self, s, deadline, view);
}

// What is there now, without waiting. 1, 0 or -1 as above.
int message_now(PyObject* self, SubscriberState& s, View& view, bool borrowing = false);

// If the subscriber has a descriptor: makes it readable exactly while a message is there. To be called whenever
// something may have been taken.
void settle_descriptor(PyObject* self, SubscriberState& s);

// A receiving call: one at a time, and the descriptor is right afterwards.
class Receiving {
    PyObject* self_;
    SubscriberState& s_;
    OneAtATime turn_;

  public:
    Receiving(PyObject* self, SubscriberState& s) : self_(self), s_(s), turn_(s.occupant) {}
    ~Receiving() {
        if (s_.event && turn_.entered) [[unlikely]]
            settle_descriptor(self_, s_);
    }
    bool entered() const { return turn_.entered; }
};

// A message was overwritten while it was copied. Shall we look again? A writer that is always faster must neither outlast
// the timeout nor shut out Ctrl-C. False: time is up, or raised.
bool look_again(Deadline& deadline, int& laps);

PyObject* raise_timeout(const SubscriberState& s, const Deadline& deadline);
PyObject* raise_evicted(const SubscriberState& s);
// Turns the exception of a decoder into a DecodeError that it is the cause of.
PyObject* raise_decode_error(const SubscriberState& s, uint64_t seq);
// Sender and kind, as new references. Read from shared memory: check still_whole() afterwards.
PyObject* sender_of(SubscriberState& s, const View& view);
PyObject* kind_of(SubscriberState& s, const View& view);

}  // namespace ringmain::py
