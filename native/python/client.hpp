// The core's end of a client, as Python sees it: shared by the hot call and by calls that are objects.
#pragma once

#include "python/publisher.hpp"
#include "python/subscriber.hpp"
#include "requests/client_end.hpp"

namespace ringmain::py {

using PyCall = CallOf<Ref>;      // its reply: bytes
using PyWaiter = WaiterOf<Ref>;  // its calls are CallObjects, and it owns a reference to each

// Threads are kept apart by the interpreter.
struct PyClientEnd : ClientEnd<Ref, NoLock> {
    Ref publisher, subscriber;

    PyClientEnd(PyObject* of_publisher, PyObject* of_subscriber)
        : ClientEnd(*reinterpret_cast<PublisherObject*>(of_publisher)->state,
                    *reinterpret_cast<SubscriberObject*>(of_subscriber)->state),
          publisher(Ref::to(of_publisher)),
          subscriber(Ref::to(of_subscriber)) {}
    PublisherState& sending() const { return *reinterpret_cast<PublisherObject*>(publisher.get())->state; }
    SubscriberState& receiving() const {
        return *reinterpret_cast<SubscriberObject*>(subscriber.get())->state;
    }
};

class PyClientHost : public SubscriberHost {
    PyObject* subscriber_;
    SubscriberState& s_;

  public:
    explicit PyClientHost(const PyClientEnd& end)
        : SubscriberHost(end.subscriber.get(), end.receiving()),
          subscriber_(end.subscriber.get()),
          s_(end.receiving()) {}

    bool copy(const View& view, Ref& payload) {
        payload =
            Ref(view.size < kLargeCopyBytes
                    ? PyBytes_FromStringAndSize(reinterpret_cast<const char*>(view.payload()), view.size)
                    : copy_large(view.payload(), view.size));
        return bool(payload);
    }
    template <class Use>
    Outcome in_turn(Use use) {
        Receiving turn(subscriber_, s_);
        if (!turn.entered() || !usable_subscriber(subscriber_)) return Outcome::stopped;
        Outcome how = use();
        if (how == Outcome::stopped && !PyErr_Occurred())
            (void)result_of(s_, how);  // leaves, if it is being closed
        return how;
    }
    // A word of this process, which close() changes: no sleep on the topic.
    template <class Sleep>
    Woken sleep(const uint32_t* word, std::shared_ptr<const void> mapped, Sleep sleep) {
        return mapped ? SubscriberHost::sleep(word, std::move(mapped), sleep) : outside(sleep);
    }
};
static_assert(ClientHost<PyClientHost, Ref>);

// Lists a call when its number is known.
class Lists : public BeforeCommit {
    PyClientEnd& end_;
    PyCall& call_;

  public:
    Lists(PyClientEnd& end, PyCall& call) : end_(end), call_(call) {}
    void numbered(uint64_t seq) override { end_.add(call_, seq); }
};

// When a call that is made now is late.
inline int64_t deadline_in(int64_t timeout_ns) {
    if (timeout_ns == kForever) return kForever;
    int64_t now_ns = monotonic_ns();
    return timeout_ns > kForever - now_ns ? kForever : now_ns + timeout_ns;
}

// A wait did not end well; raises, unless it did already.
void raise_stopped(PyClientEnd& end, Outcome how);
// Waits for its reply. False: raised; then, and if it is late, the call may still be listed.
bool wait_for_reply(PyClientEnd& end, PyCall& call, int64_t left_ns);

const char* name_of(Answer answer);
// Of a ClientEnd object; nullptr: it is none.
std::shared_ptr<PyClientEnd> client_end_of(PyObject* object);
bool add_calls(PyObject* module);

}  // namespace ringmain::py
