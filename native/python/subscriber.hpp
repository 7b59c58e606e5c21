// The state of the native half of ringmain.Subscriber, shared with leases and batches.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "endpoint.hpp"
#include "event.hpp"
#include "kept_messages.hpp"
#include "py.hpp"
#include "spin.hpp"
#include "work.hpp"

namespace ringmain::py {

// What is skipped by one of the two texts of an envelope.
struct Screen {
    std::vector<std::string> ignored;
    std::optional<std::vector<std::string>> only;  // none: all that is not ignored

    bool active() const { return !ignored.empty() || only; }
    bool skips(const std::byte* text, size_t size) const;
};

struct SubscriberState {
    std::shared_ptr<Directory> directory;
    std::unique_ptr<Participant> participant;
    std::unique_ptr<Participant> waiting;  // while there is no topic: our part in its waiting file
    std::unique_ptr<Reader> reader;
    // With start="last", while the last message of each kind is received: what `reader` reads, and the one that goes on.
    std::shared_ptr<KeptMessages> kept;
    std::unique_ptr<Reader> after_kept;
    std::unique_ptr<Work> work;   // on a shared contract: what is taken, and not finished
    uint32_t max_deliveries = 0;  // then a message goes to topic `NAME.dead`; 0: never
    std::string directory_path, topic, name;
    Start start = Start::latest, on_lap = Start::latest;
    bool conflate = false;
    ObserveMode observe = ObserveMode::never;
    Spin spin;
    Screen senders, kinds;
    bool screens = false;      // looks_closer(), for the hot path
    Ref decoder;               // buffer -> object, for typed topics
    uint64_t lost_before = 0;  // in earlier lives of the topic
    bool came_first = false;   // we were here before this life of the topic: read it from its beginning
    CallingThread caller;      // see OneAtATime
    bool closing = false, closed = true;
    Sleepers sleepers;             // threads in recv() and wait()
    std::vector<uint64_t> leases;  // positions of borrowed messages that are still in use
    std::shared_ptr<Event> event;  // behind fileno(), if it was called
    uint64_t event_token = 0;      // of the watch that rings it
    // Python strings: the topic, which all messages share, and the last sender and kind, which rarely change from one
    // message to the next.
    Ref topic_str;
    std::string last_sender, last_kind;
    Ref last_sender_str, last_kind_str;

    bool attached() const {
        return participant && !participant->topic_file().forked.load(std::memory_order_relaxed);
    }
    // May a message be skipped, or do the messages come from another source than the ring?
    bool looks_closer() const { return work || kept || senders.active() || kinds.active(); }
    // Is there nothing to do but to copy? Then no thread is inside, either.
    bool receives_plainly() const {
        return !(closed | closing | screens) && !decoder && !event && !caller.thread && leases.empty() &&
               attached();
    }
    uint64_t lost() const { return lost_before + (reader ? reader->lost : 0); }
    // The position from which bytes are still needed.
    uint64_t keep() const { return leases.empty() ? kNoHold : *std::ranges::min_element(leases); }
    // What a lease of the message keeps, and what must stay mapped for it: of a kept message, nothing of the ring.
    uint64_t position_to_keep(const View& view) const { return kept ? kNoHold : view.position; }
    std::shared_ptr<TopicFile> mapping() const {
        return kept ? std::shared_ptr<TopicFile>(kept, &participant->topic_file()) : participant->shared();
    }
};

struct SubscriberObject {
    PyObject_HEAD SubscriberState* state;
};

// The state, if the subscriber is open; otherwise raises. It may not be attached yet. Call inside OneAtATime.
SubscriberState* usable_subscriber(PyObject* self);

// Joins the topic. 1: attached; 0: there is no such topic yet; -1: raised.
int attach(PyObject* self, SubscriberState& s);

// Leaves the topic for good. Call inside OneAtATime.
void leave_topic(SubscriberState& s);

// Rings the event at the next message. Returns its token; 0: a message is there already; -1: raised.
int64_t watch_for_message(PyObject* self, SubscriberState& s, const std::shared_ptr<Event>& event);

// Waits for a message that is not screened out. 1: it is in `view`, not yet taken; 0: timed out, nothing raised; -1: raised.
int wait_for_message(PyObject* self, SubscriberState& s, Deadline& deadline, View& view,
                     bool borrowing = false);

// The same. Inlined for the most common case: attached, nothing screened, a message there.
[[gnu::always_inline]] inline int next_message(PyObject* self, SubscriberState& s, Deadline& deadline,
                                               View& view) {
    if (s.attached() && !s.screens && s.reader->peek(view) == Status::ok) [[likely]]
        return 1;
    View other;  // so that `view` can stay in registers
    int found = wait_for_message(self, s, deadline, other);
    view = other;
    return found;
}

// The same, without waiting.
// On a shared contract, 1 says that there may be one, and `view` is not set; with `taking`, it is taken.
int message_now(PyObject* self, SubscriberState& s, View& view, bool borrowing = false, bool taking = false);

// The same, for messages after the first of a call: stays in this life of the topic, so it runs no Python code, and moves
// no hold, so the call can still go back to its first message.
int another_message(SubscriberState& s, View& view);
[[gnu::always_inline]] inline int next_of_many(SubscriberState& s, View& view) {
    if (!s.screens && s.reader->peek(view) == Status::ok) [[likely]]
        return 1;
    View other;
    int found = another_message(s, other);
    view = other;
    return found;
}

// What a subscriber without a topic listens to: read before it looks for the topic, so that none is missed.
struct Listening {
    bool listens = false;
    Bell bell;
};
Listening listen_to_directory(SubscriberState& s);
inline Listening listen(SubscriberState& s) { return s.attached() ? Listening{} : listen_to_directory(s); }

// What a subscriber that has found no message sleeps on. An empty bell: nothing will ring, look again after a slice.
struct Awaited {
    Bell bell;
    bool at_once;                             // something has changed meanwhile: look again
    std::shared_ptr<const void> mapped = {};  // what the bell lies in
};
Awaited awaited(SubscriberState& s, const Listening& listening);

// After a slice without a message: leaves a topic whose file was deleted by hand, once its writers are gone.
void leave_if_deleted(SubscriberState& s);

// If the subscriber has a descriptor, makes it readable exactly while a message is there. Call whenever a message may
// have been taken.
void update_descriptor(PyObject* self, SubscriberState& s);

// A receiving call: one at a time, and the descriptor is updated afterwards.
class Receiving {
    PyObject* self_;
    SubscriberState& s_;
    OneAtATime turn_;

  public:
    Receiving(PyObject* self, SubscriberState& s) : self_(self), s_(s), turn_(s.caller) {
        if (s.work && turn_.entered && s.attached()) [[unlikely]]
            finish_received(s);
    }
    ~Receiving() {
        if (s_.work && turn_.entered && s_.attached()) [[unlikely]]
            end_of_call(s_);
        if (s_.event && turn_.entered) [[unlikely]]
            update_descriptor(self_, s_);
    }
    bool entered() const { return turn_.entered; }
};

// A Lease of a message that is lent already: it ends nothing but the reading. nullptr: raised.
PyObject* lease_of_lent(PyObject* self, const View& view);

// A message was overwritten while it was copied: shall we try the next? A writer that is always faster must neither outlast
// the timeout nor block Ctrl-C. False: timed out, or raised.
bool try_again(Deadline& deadline, int& laps);

PyObject* raise_timeout(const SubscriberState& s, const Deadline& deadline);
PyObject* raise_evicted(const SubscriberState& s);
// Closed while it waited: that is not an error of a loop over messages, but its end.
void clear_if_closed();
// Is an exception raised that is no error, such as KeyboardInterrupt? It passes as it is, and no message is taken.
inline bool interrupted() { return PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception); }
// Turns the exception of a decoder into a DecodeError with that cause; not one that is no error.
PyObject* raise_decode_error(const SubscriberState& s, uint64_t seq);
// Is it ignored? Read from shared memory: check still_whole() afterwards.
bool screened(const SubscriberState& s, const View& view);
// Sender and kind, as new references. Read from shared memory: check still_whole() afterwards.
PyObject* sender_of(SubscriberState& s, const View& view);
PyObject* kind_of(SubscriberState& s, const View& view);

}  // namespace ringmain::py
