// ringmain._ring.wait: those of several subscribers that have a message; waiting/wait_for_any.hpp waits.
#include "waiting/wait_for_any.hpp"

#include "python/frame_subscriber.hpp"

namespace ringmain::py {

namespace {

// Subscribers, as the host of a wait for all of them.
class SubscribersHost {
    std::vector<Ref> subscribers_;
    Deadline& deadline_;
    std::optional<SavedError> raised_;  // by a signal, until the host is gone: looks go on without it

    SubscriberState& state(size_t index) const {
        return *reinterpret_cast<SubscriberObject*>(subscribers_[index].get())->state;
    }

  public:
    explicit SubscribersHost(Deadline& deadline) : deadline_(deadline) {}

    // False: raised.
    bool add(PyObject* object) {
        PyObject* subscriber = subscriber_in(object);
        if (subscriber)
            subscribers_.push_back(Ref::to(subscriber));
        else
            PyErr_Format(PyExc_TypeError, "wait() takes subscribers, not %R", object);
        return subscriber;
    }

    // stopped: raised.
    template <class Look>
    Outcome look(size_t index, Look look) {
        SubscriberState& s = state(index);
        OneAtATime turn(s.caller, &deadline_);
        if (turn.late) return Outcome::not_there;  // another thread receives, and the time is up
        if (!turn.entered || !usable_subscriber(subscribers_[index].get())) return Outcome::stopped;
        SubscriberHost host(subscribers_[index].get(), s);
        int found = in_python(s, [&] { return look(s, host); });
        return found < 0 ? Outcome::stopped : found == 0 ? Outcome::not_there : Outcome::ready;
    }
    // close() of any of them ends the sleep.
    template <class Sleep>
    Woken sleep(std::span<const SleepsFor> all, Sleep sleep) {
        for (const SleepsFor& each : all)
            if (state(each.reader).closing || state(each.reader).closed) return Woken::interrupted;
        for (const SleepsFor& each : all) state(each.reader).sleepers.enter(each.word, each.mapped);
        Woken how;
        {
            WithoutGil unlocked;
            how = sleep();
        }
        for (const SleepsFor& each : all) state(each.reader).sleepers.leave();
        return how;
    }
    bool goes_on() {
        if (PyErr_CheckSignals() == 0) return true;
        raised_.emplace();
        return false;
    }
};
static_assert(ManyReadersHost<SubscribersHost>);

// wait(subscribers, timeout, directory_seen): those that have a message. If a `_directory_count()` is given, also returns,
// perhaps with none, when topics were created or removed since.
PyObject* wait(PyObject*, PyObject* args) {
    PyObject *sequence, *timeout = nullptr;
    int64_t timeout_ns;
    long long directory_seen = -1;
    if (!PyArg_ParseTuple(args, "O|OL", &sequence, &timeout, &directory_seen) ||
        !parse_timeout(timeout, timeout_ns))
        return nullptr;
    Ref list(PySequence_List(sequence)), found(PyList_New(0));
    if (!list || !found) return nullptr;
    Deadline deadline(timeout_ns);
    SubscribersHost host(deadline);
    Py_ssize_t count = PyList_Size(list.get());
    for (Py_ssize_t i = 0; i < count; ++i)
        if (!host.add(PyList_GetItem(list.get(), i))) return nullptr;
    std::vector<size_t> ready;
    std::optional<uint32_t> seen;
    if (directory_seen >= 0) seen = static_cast<uint32_t>(directory_seen);
    Outcome outcome = wait_for_any(static_cast<size_t>(count), deadline, ready, host, seen);
    if (outcome == Outcome::stopped) return nullptr;
    for (size_t index : ready) {
        PyObject* subscriber = PyList_GetItem(list.get(), static_cast<Py_ssize_t>(index));
        if (PyList_Append(found.get(), subscriber) != 0) return nullptr;
    }
    return found.release();
}

PyMethodDef functions[] = {{"wait", entry<wait>, METH_VARARGS, "The subscribers that have a message."},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_wait(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace ringmain::py
