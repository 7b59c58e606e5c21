// ringmain._ring.Lease: a message read where it lies. Owns this invariant: on the contracts that hold, the hold stays as
// long as the block or any view made from it; the mapping stays as long as the lease.
#include "subscriber.hpp"

namespace ringmain::py {

namespace {

struct LeaseState {
    PyObject* subscriber = nullptr;         // kept alive
    std::shared_ptr<TopicFile> topic_file;  // keeps the mapping
    View view{};
    PyObject *sender = nullptr, *kind = nullptr;
    PyObject* data_ref =
        nullptr;  // weak, to the view that was given out: it keeps us, so we must not keep it
    uint64_t lost = 0;
    Py_ssize_t exports = 0;
    bool open = true;
    bool held = true;  // counted among the subscriber's leases
};

struct LeaseObject {
    PyObject_HEAD LeaseState* state;
};

LeaseState& state_of(PyObject* self) { return *reinterpret_cast<LeaseObject*>(self)->state; }
SubscriberState& subscriber_of(const LeaseState& l) {
    return *reinterpret_cast<SubscriberObject*>(l.subscriber)->state;
}

// Is the subscriber still where it was when this was borrowed?
bool still_there(const LeaseState& l) {
    const SubscriberState& s = subscriber_of(l);
    return s.attached() && s.participant->shared() == l.topic_file;
}

// The bytes go back when the block has ended and the last view is gone.
void settle(LeaseState& l) {
    if (l.open || l.exports > 0 || !l.held) return;
    l.held = false;
    if (!still_there(l)) return;
    SubscriberState& s = subscriber_of(l);
    auto at = std::find(s.leases.begin(), s.leases.end(), l.view.position);
    if (at != s.leases.end()) s.leases.erase(at);
    s.reader->release(s.keep());
}

// The view that was given out, if it lives. A new reference.
PyObject* given_out(const LeaseState& l) {
    PyObject* view = l.data_ref ? PyWeakref_GetObject(l.data_ref) : nullptr;
    return view && view != Py_None ? Py_NewRef(view) : nullptr;
}

// Takes back the view that was given out, if nobody made another of it.
void drop_data(LeaseState& l) {
    if (PyObject* view = given_out(l)) {
        PyObject* done = PyObject_CallMethod(view, "release", nullptr);
        if (!done) PyErr_Clear();
        Py_XDECREF(done);
        Py_DECREF(view);
    }
    Py_CLEAR(l.data_ref);
}

void end(LeaseState& l) {
    drop_data(l);
    l.open = false;
    settle(l);
}

PyObject* enter(PyObject* self, PyObject*) {
    if (state_of(self).open) return Py_NewRef(self);
    PyErr_SetString(PyExc_ValueError, "the borrowed message was given back");
    return nullptr;
}

PyObject* leave(PyObject* self, PyObject* args) {
    LeaseState& l = state_of(self);
    if (!l.open) Py_RETURN_FALSE;
    bool failed = PyTuple_Size(args) > 0 && PyTuple_GetItem(args, 0) != Py_None;
    bool whole = !still_there(l) || subscriber_of(l).reader->keeps_borrowed() ||
                 subscriber_of(l).reader->still_whole(l.view);
    end(l);
    if (!whole && !failed)
        return raise(
            "Lapped",
            "message " + std::to_string(l.view.seq) + " of topic '" + l.topic_file->topic +
                "' was overwritten while it was borrowed: what was read of it is worthless. Copy with "
                "recv(), ask for a larger capacity, or use the contract 'bus', where a borrowed "
                "message stays");
    Py_RETURN_FALSE;
}

PyObject* release(PyObject* self, PyObject*) {
    PyObject* nothing = PyTuple_New(0);
    if (!nothing) return nullptr;
    PyObject* done = leave(self, nothing);
    Py_DECREF(nothing);
    if (!done) return nullptr;
    Py_DECREF(done);
    Py_RETURN_NONE;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    LeaseState& l = state_of(self);
    if (!l.open) {
        PyErr_SetString(PyExc_ValueError, "the borrowed message was given back");
        return -1;
    }
    void* at = const_cast<std::byte*>(l.view.payload());
    if (PyBuffer_FillInfo(view, self, at, static_cast<Py_ssize_t>(l.view.size), 1, flags) != 0) return -1;
    ++l.exports;
    return 0;
}

void release_buffer(PyObject* self, Py_buffer*) {
    LeaseState& l = state_of(self);
    --l.exports;
    settle(l);
}

PyObject* get_data(PyObject* self, void*) {
    LeaseState& l = state_of(self);
    if (PyObject* view = given_out(l)) return view;
    PyObject* view = PyMemoryView_FromObject(self);
    if (!view) return nullptr;
    if (PyObject* decoder = subscriber_of(l).decoder) {
        PyObject* object = PyObject_CallFunctionObjArgs(decoder, view, nullptr);
        Py_DECREF(view);
        return object ? object : raise_decode_error(subscriber_of(l), l.view.seq);
    }
    Py_XDECREF(l.data_ref);
    l.data_ref = PyWeakref_NewRef(view, nullptr);
    if (!l.data_ref) Py_CLEAR(view);
    return view;
}

PyObject* get_seq(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(state_of(self).view.seq); }
PyObject* get_time(PyObject* self, void*) { return PyLong_FromLongLong(state_of(self).view.time_ns); }
PyObject* get_lost(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(state_of(self).lost); }
PyObject* get_sender(PyObject* self, void*) { return Py_NewRef(state_of(self).sender); }
PyObject* get_kind(PyObject* self, void*) { return Py_NewRef(state_of(self).kind); }

Py_ssize_t length(PyObject* self) { return static_cast<Py_ssize_t>(state_of(self).view.size); }

void destroy(PyObject* self) {
    LeaseState* l = reinterpret_cast<LeaseObject*>(self)->state;
    if (l) {
        end(*l);
        Py_XDECREF(l->sender);
        Py_XDECREF(l->kind);
        Py_XDECREF(l->subscriber);
        delete l;
    }
    deallocate(self);
}

PyMethodDef methods[] = {{"__enter__", enter, METH_NOARGS, nullptr},
                         {"__exit__", leave, METH_VARARGS, nullptr},
                         {"release", release, METH_NOARGS, "release()\n--\n\nGive the message back."},
                         {nullptr, nullptr, 0, nullptr}};

PyGetSetDef attributes[] = {{"data", get_data, nullptr, "The message where it lies, read-only.", nullptr},
                            {"seq", get_seq, nullptr, "Its sequence number.", nullptr},
                            {"time_ns", get_time, nullptr, "When it was published.", nullptr},
                            {"sender", get_sender, nullptr, "Who sent it.", nullptr},
                            {"kind", get_kind, nullptr, "What kind it is.", nullptr},
                            {"lost", get_lost, nullptr, "Messages lost just before it.", nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, attributes},
                       {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                       {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                       {Py_sq_length, reinterpret_cast<void*>(length)},
                       {Py_tp_doc, const_cast<char*>("A message read where it lies.")},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.Lease", sizeof(LeaseObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

// borrow(subscriber, timeout): the module's function behind Subscriber.borrow.
PyObject* borrow(PyObject*, PyObject* args) {
    PyObject *self, *timeout = nullptr;
    int64_t timeout_ns;
    if (!PyArg_ParseTuple(args, "O!|O", subscriber_type, &self, &timeout) ||
        !parse_timeout(timeout, timeout_ns))
        return nullptr;
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    Receiving turn(self, *s);
    if (!turn.entered() || !usable_subscriber(self)) return nullptr;
    Deadline deadline(timeout_ns);
    for (int laps = 0;;) {
        View view;
        int found = next_message(self, *s, deadline, view, true);
        if (found == 0) return raise_timeout(*s, deadline);
        if (found < 0) return nullptr;
        PyObject* lease = allocate(lease_type);
        if (!lease) {
            s->reader->release(s->keep());
            return nullptr;
        }
        auto* l = new LeaseState;
        reinterpret_cast<LeaseObject*>(lease)->state = l;
        l->held = false;
        l->subscriber = Py_NewRef(self);
        l->topic_file = s->participant->shared();
        l->view = view;
        l->sender = sender_of(*s, view);
        l->kind = kind_of(*s, view);
        bool whole = s->reader->still_whole(view);
        if (!l->sender || !l->kind || !whole) {
            Py_DECREF(lease);
            s->reader->release(s->keep());
            if (PyErr_Occurred()) return nullptr;
            if (look_again(deadline, laps)) continue;
            return PyErr_Occurred() ? nullptr : raise_timeout(*s, deadline);
        }
        l->lost = s->reader->take(view);
        l->held = true;
        s->leases.push_back(view.position);
        if (s->reader->release(s->keep())) return lease;
        Py_DECREF(lease);
        return raise_evicted(*s);
    }
}

PyMethodDef functions[] = {{"borrow", borrow, METH_VARARGS, "The next message, where it lies."},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_lease(PyObject* module) {
    lease_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return lease_type && PyModule_AddFunctions(module, functions) == 0 &&
           PyModule_AddObjectRef(module, "Lease", reinterpret_cast<PyObject*>(lease_type)) == 0;
}

}  // namespace ringmain::py
