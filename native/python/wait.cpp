// ringmain._ring.wait: sleeps until one of several subscribers has a message.
#include "frame_subscriber.hpp"

namespace ringmain::py {

namespace {

// wait(subscribers, timeout, directory_seen): those that have a message. If a `_directory_count()` is given, also returns,
// perhaps with none, when topics were created or removed since.
PyObject* wait(PyObject*, PyObject* args) {
    PyObject *sequence, *timeout = nullptr;
    int64_t timeout_ns;
    long long directory_seen = -1;
    if (!PyArg_ParseTuple(args, "O|OL", &sequence, &timeout, &directory_seen) ||
        !parse_timeout(timeout, timeout_ns))
        return nullptr;
    Ref list(PySequence_List(sequence)), ready(PyList_New(0));
    if (!list || !ready) return nullptr;
    Py_ssize_t count = PyList_Size(list.get());
    Deadline deadline(timeout_ns);
    for (bool slice_is_over = false;;) {
        std::vector<Bell> bells;
        bool look_again = false, directory_changed = false;
        for (Py_ssize_t i = 0; i < count; ++i) {
            PyObject* item = PyList_GetItem(list.get(), i);
            PyObject* subscriber = subscriber_in(item);
            if (!subscriber) {
                PyErr_Format(PyExc_TypeError, "wait() takes subscribers, not %R", item);
                return nullptr;
            }
            SubscriberState* s = reinterpret_cast<SubscriberObject*>(subscriber)->state;
            OneAtATime turn(s->caller);
            if (!turn.entered || !usable_subscriber(subscriber)) return nullptr;
            if (slice_is_over) leave_if_deleted(*s);
            Listening listening = listen(*s);
            if (directory_seen >= 0 && i == 0 && s->directory) {
                if (Bell bell = s->directory->bell(); bell.word) bells.push_back(bell);
                directory_changed = s->directory->changes() != directory_seen;
            }
            View view;
            int found = message_now(subscriber, *s, view);
            if (found < 0 || (found == 1 && PyList_Append(ready.get(), item) != 0)) return nullptr;
            if (found == 1) continue;
            Awaited next = awaited(*s, listening);
            look_again |= next.at_once;
            if (next.bell.word && bells.size() < kMaxBells) bells.push_back(next.bell);
        }
        if (PyList_Size(ready.get()) > 0 || directory_changed) return Py_NewRef(ready.get());
        int64_t left = deadline.left_ns();
        if (left == 0) return Py_NewRef(ready.get());
        if (!look_again) {
            // The kernel limits the number of bells; the other subscribers are polled every millisecond.
            bool all = static_cast<size_t>(count) <= kMaxBells;
            int64_t sleep_ns = std::min(all ? kSlice_ns : int64_t{1'000'000}, left);
            WithoutGil unlocked;
            Woken how = Woken::timed_out;
            if (bells.empty())
                usleep(static_cast<useconds_t>(sleep_ns / 1000));
            else
                how = sleep_on_any(bells.data(), bells.size(), sleep_ns);
            slice_is_over = how == Woken::timed_out;
        }
        if (PyErr_CheckSignals() != 0) return nullptr;
    }
}

PyMethodDef functions[] = {{"wait", wait, METH_VARARGS, "The subscribers that have a message."},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_wait(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace ringmain::py
