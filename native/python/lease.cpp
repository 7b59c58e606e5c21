// ringmain._ring.Lease: a message read in place. Owns this invariant: on the contracts that hold, the hold stays as long
// as the block or any view made from it; the mapping stays as long as the lease.
#include "subscriber.hpp"

namespace ringmain::py {

namespace {

struct LeaseState {
    Ref subscriber;
    std::shared_ptr<TopicFile> topic_file;  // keeps the mapping
    View view{};
    Ref sender, kind;
    Ref data_ref;  // a weak reference to the view that was given out: it owns us, so we must not own it
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
    return *reinterpret_cast<SubscriberObject*>(l.subscriber.get())->state;
}

// Is the subscriber still in the topic file it borrowed from?
bool still_there(const LeaseState& l) {
    const SubscriberState& s = subscriber_of(l);
    return s.attached() && s.participant->shared() == l.topic_file;
}

// Gives the bytes back once the block has ended and the last view is gone.
void settle(LeaseState& l) {
    if (l.open || l.exports > 0 || !l.held) return;
    l.held = false;
    if (!still_there(l)) return;
    SubscriberState& s = subscriber_of(l);
    auto at = std::find(s.leases.begin(), s.leases.end(), l.view.position);
    if (at != s.leases.end()) s.leases.erase(at);
    s.reader->release(s.keep());
}

void end(LeaseState& l) {
    if (Ref view = live_target(l.data_ref)) release_view(view);
    l.data_ref = Ref();
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
    Ref no_error(PyTuple_New(0));
    Ref done(no_error ? leave(self, no_error.get()) : nullptr);
    if (!done) return nullptr;
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
    if (Ref view = live_target(l.data_ref)) return view.release();
    Ref view(PyMemoryView_FromObject(self));
    if (!view) return nullptr;
    if (const Ref& decoder = subscriber_of(l).decoder) {
        PyObject* object = PyObject_CallFunctionObjArgs(decoder.get(), view.get(), nullptr);
        return object ? object : raise_decode_error(subscriber_of(l), l.view.seq);
    }
    l.data_ref = Ref(PyWeakref_NewRef(view.get(), nullptr));
    return l.data_ref ? view.release() : nullptr;
}

PyObject* get_seq(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(state_of(self).view.seq); }
PyObject* get_time(PyObject* self, void*) { return PyLong_FromLongLong(state_of(self).view.time_ns); }
PyObject* get_lost(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(state_of(self).lost); }
PyObject* get_sender(PyObject* self, void*) { return state_of(self).sender.new_ref(); }
PyObject* get_kind(PyObject* self, void*) { return state_of(self).kind.new_ref(); }

Py_ssize_t length(PyObject* self) { return static_cast<Py_ssize_t>(state_of(self).view.size); }

void destroy(PyObject* self) {
    LeaseState* l = reinterpret_cast<LeaseObject*>(self)->state;
    if (l) {
        end(*l);
        delete l;
    }
    deallocate(self);
}

PyMethodDef methods[] = {{"__enter__", enter, METH_NOARGS, nullptr},
                         {"__exit__", leave, METH_VARARGS, nullptr},
                         {"release", release, METH_NOARGS, "release()\n--\n\nGive the message back."},
                         {nullptr, nullptr, 0, nullptr}};

PyGetSetDef attributes[] = {{"data", get_data, nullptr, "The message in place, read-only.", nullptr},
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
                       {Py_tp_doc, const_cast<char*>("A message read in place.")},
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
        int found = wait_for_message(self, *s, deadline, view, true);
        if (found == 0) return raise_timeout(*s, deadline);
        if (found < 0) return nullptr;
        Ref lease(allocate(lease_type));
        if (!lease) {
            s->reader->release(s->keep());
            return nullptr;
        }
        auto* l = new LeaseState;
        reinterpret_cast<LeaseObject*>(lease.get())->state = l;
        l->held = false;
        l->subscriber = Ref::to(self);
        l->topic_file = s->participant->shared();
        l->view = view;
        l->sender = Ref(sender_of(*s, view));
        l->kind = Ref(kind_of(*s, view));
        bool whole = s->reader->still_whole(view);
        if (!l->sender || !l->kind || !whole) {
            s->reader->release(s->keep());
            if (PyErr_Occurred()) return nullptr;
            if (try_again(deadline, laps)) continue;
            return PyErr_Occurred() ? nullptr : raise_timeout(*s, deadline);
        }
        l->lost = s->reader->take(view);
        l->held = true;
        s->leases.push_back(view.position);
        if (s->reader->release(s->keep())) return lease.release();
        return raise_evicted(*s);
    }
}

PyMethodDef functions[] = {{"borrow", borrow, METH_VARARGS, "The next message, in place."},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_lease(PyObject* module) {
    return (lease_type = add_type(module, spec)) && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace ringmain::py
