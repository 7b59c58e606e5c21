// The state of the native half of ringmain.Subscriber, shared with leases and batches.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python/event.hpp"
#include "python/host.hpp"
#include "python/py.hpp"
#include "waiting/blocking_reader.hpp"

namespace ringmain::py {

struct SubscriberState : BlockingReader {
    Ref decoder;           // buffer -> object, for typed topics
    CallingThread caller;  // see OneAtATime
    bool closing = false, closed = true;
    Sleepers sleepers;             // threads in recv() and wait()
    std::shared_ptr<Event> event;  // behind fileno(), if it was called
    uint64_t event_token = 0;      // of the watch that rings it
    // Python strings: the topic, which all messages share, and the last sender and kind, which rarely change from one
    // message to the next.
    Ref topic_str;
    std::string last_sender, last_kind;
    Ref last_sender_str, last_kind_str;

    // Is there nothing to do but to look? Then no thread is inside, either.
    bool may_look() const {
        return !(closed | closing | slow_path) && !event && !caller.thread && leases.empty() && attached();
    }
    // And then but to copy?
    bool fast_path_ok() const { return !decoder && may_look(); }
};

struct SubscriberObject {
    PyObject_HEAD SubscriberState* state;
};

// The state, if the subscriber is open; otherwise raises. It may not be attached yet. Call inside OneAtATime.
SubscriberState* usable_subscriber(PyObject* self);

// The host of a subscriber's waits.
class SubscriberHost : public PythonHost {
    PyObject* self_;  // nullptr where no Python code may run

  public:
    SubscriberHost(PyObject* self, SubscriberState& s) : PythonHost(s.sleepers, s.closing), self_(self) {}

    bool joins_again(std::string& name);
    bool joined();
    Letter send_dead_letter(const View& view, uint32_t returns);
};
static_assert(ReaderHost<SubscriberHost>);

// How a wait ended. 1: a message; 0: none; -1: raised.
int result_of(SubscriberState& s, Outcome outcome);
// The same of a call that returns an Outcome, or throws a Failure.
template <class Call>
[[gnu::always_inline]] inline int in_python(SubscriberState& s, Call call) {
    try {
        Outcome outcome = call();
        if (outcome == Outcome::ready) [[likely]]
            return 1;
        return outcome == Outcome::not_there ? 0 : result_of(s, outcome);
    } catch (const Failure& failure) {
        raise(failure, s.topic);
    } catch (const std::exception&) {
        raise_caught();
    }
    return -1;
}

// Joins the topic. 1: attached; 0: there is no such topic yet, or its roster is locked; -1: raised.
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
    if (s.attached() && !s.slow_path && s.reader->peek(view) == Status::ok) [[likely]]
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
    if (!s.slow_path && s.reader->peek(view) == Status::ok) [[likely]]
        return 1;
    View other;
    int found = another_message(s, other);
    view = other;
    return found;
}

// The bytes of a large message, copied without the GIL; nullptr: raised.
PyObject* copy_large(const std::byte* from, size_t size);

// If the subscriber has a descriptor, makes it readable exactly while a message is there. Call whenever a message may
// have been taken.
void update_descriptor(PyObject* self, SubscriberState& s);

// On a shared contract: a receiving call ends.
void end_of_call(SubscriberState& s);
// What the caller gets for the newest messages of this call, for reject().
void note_object(SubscriberState& s, PyObject* object);
void note_objects(SubscriberState& s, PyObject* list);
// False: it is not one of ours, and nothing was raised.
bool reject(SubscriberState& s, PyObject* object);

// The methods of the type that do not receive.
namespace subscriber_options {
PyObject* open(PyObject* self, PyObject* args);
PyObject* close(PyObject* self, PyObject*);
PyObject* screen(PyObject* self, PyObject* args);
PyObject* set_max_deliveries(PyObject* self, PyObject* count);
PyObject* reject_received(PyObject* self, PyObject* object);
PyObject* give_back_all(PyObject* self, PyObject*);
PyObject* set_decoder(PyObject* self, PyObject* decoder);
PyObject* describe(PyObject* self, PyObject*);
PyObject* get_schema(PyObject* self, PyObject*);
PyObject* fileno(PyObject* self, PyObject*);
PyObject* directory_count(PyObject* self, PyObject*);
PyObject* timed_out(PyObject* self, PyObject* timeout);
PyObject* arm(PyObject* self, PyObject* event);
PyObject* pass_on(PyObject* self, PyObject*);
}  // namespace subscriber_options

// A receiving call: one at a time, and the descriptor is updated afterwards.
class Receiving {
    PyObject* self_;
    SubscriberState& s_;
    OneAtATime turn_;

  public:
    // Without a deadline it waits for as long as another thread is inside.
    Receiving(PyObject* self, SubscriberState& s, Deadline* deadline = nullptr)
        : self_(self), s_(s), turn_(s.caller, deadline) {
        if (s.work && turn_.entered && s.attached()) [[unlikely]]
            s.work->finish_received();
    }
    ~Receiving() {
        if (s_.work && turn_.entered && s_.attached()) [[unlikely]]
            end_of_call(s_);
        if (s_.event && turn_.entered) [[unlikely]]
            update_descriptor(self_, s_);
    }
    bool entered() const { return turn_.entered; }
    bool late() const { return turn_.late; }
};

// A Lease of a message that is lent already: it ends nothing but the reading. nullptr: raised.
PyObject* lease_of_lent(PyObject* self, const View& view);

// A message was overwritten while it was copied: shall we try the next? A writer that is always faster must neither outlast
// the timeout nor block Ctrl-C. False: timed out, or raised.
bool try_again(Deadline& deadline, int& laps);

PyObject* raise_timeout(const SubscriberState& s, const Deadline& deadline);
// The time was up while another thread was in a call.
PyObject* raise_late(const SubscriberState& s, const Deadline& deadline);
PyObject* raise_evicted(const SubscriberState& s);
// Closed while it waited: that is not an error of a loop over messages, but its end.
void clear_if_closed();
// Turns the exception of a decoder into a DecodeError with that cause; not one that is no error.
PyObject* raise_decode_error(const SubscriberState& s, uint64_t seq);
// Sender and kind, as new references. Read from shared memory: check still_whole() afterwards.
PyObject* sender_of(SubscriberState& s, const View& view);
PyObject* kind_of(SubscriberState& s, const View& view);
PyObject* extension_of(const View& view);  // bytes, empty if there is none

}  // namespace ringmain::py
