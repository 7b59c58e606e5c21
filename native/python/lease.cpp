// ringmain._ring.Lease: a message read in place. Owns this invariant: on the contracts that hold, the hold stays as long
// as the block, or anything made from the message; the mapping stays as long as the lease or that.
#include "python/keeper.hpp"
#include "python/subscriber.hpp"

namespace ringmain::py {

namespace {

// A borrowed message. Its destructor gives it back.
struct Borrowed {
    Ref subscriber;                         // none: only the mapping is kept
    std::shared_ptr<TopicFile> topic_file;  // keeps the mapping
    uint64_t position = 0;

    SubscriberState& reading() const { return *reinterpret_cast<SubscriberObject*>(subscriber.get())->state; }
    // Is the subscriber still in the topic file it borrowed from?
    bool still_there() const {
        return subscriber && reading().attached() && reading().participant->shared() == topic_file;
    }
    ~Borrowed() {
        if (!still_there()) return;
        SubscriberState& s = reading();
        auto at = std::find(s.leases.begin(), s.leases.end(), position);
        if (at != s.leases.end()) s.leases.erase(at);
        s.reader->release(s.keep());
        if (s.work) s.work->worker.release(s.work->keep(s.leases));
    }
};

struct LeaseState {
    Keeper<Borrowed> keeper;  // none once the block has ended, unless `is_base`
    Ref subscriber;
    std::shared_ptr<TopicFile> topic_file;
    View view{};
    Ref sender, kind;
    Ref extension;  // none: there is none
    Ref data_ref;   // a weak reference to the view that was given out: to release it, not to keep it
    uint64_t lost = 0;
    uint32_t redelivered = 0;
    bool open = true;
    bool is_task = true;   // on a shared contract: does the message end with the block?
    bool is_base = false;  // something may show the message and refer only to this object: see keeps_object()
};

struct LeaseObject {
    PyObject_HEAD LeaseState* state;
};

LeaseState& state_of(PyObject* self) { return *reinterpret_cast<LeaseObject*>(self)->state; }
SubscriberState& subscriber_of(const LeaseState& l) {
    return *reinterpret_cast<SubscriberObject*>(l.subscriber.get())->state;
}

// On a shared contract: the message is done, or another worker shall have it.
void end_task(const LeaseState& l, bool failed) {
    if (l.is_task && l.keeper && l.keeper.hold().still_there() && subscriber_of(l).work)
        subscriber_of(l).work->end_loan(l.view.position, failed, subscriber_of(l).leases);
}

// Ends the block. The message goes back once nothing shows it any more.
void end(LeaseState& l, bool failed) {
    l.open = false;
    end_task(l, failed);
    Ref view = live_target(l.data_ref);
    l.data_ref = Ref();
    if (Keeper<Borrowed> mapping; view && !torch_may_use_views() && mapping.make()) {
        mapping.hold().topic_file = l.topic_file;
        mapping.release(view);
    }
    if (!l.is_base) l.keeper.drop();
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
    const SubscriberState& s = subscriber_of(l);
    bool whole =
        !l.keeper.hold().still_there() || s.reader->keeps_borrowed() || s.reader->still_whole(l.view);
    end(l, failed);
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

PyObject* reject_lease(PyObject* self, PyObject*) {
    LeaseState& l = state_of(self);
    if (l.open) end(l, true);
    Py_RETURN_NONE;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    LeaseState& l = state_of(self);
    if (!l.open) {
        PyErr_SetString(PyExc_ValueError, "the borrowed message was given back");
        return -1;
    }
    if (keeps_object(flags)) l.is_base = true;
    return l.keeper.fill(view, l.view.payload(), l.view.size, true, flags);
}

// The keeper does what is to be done. It is here because numpy.frombuffer holds only buffers of objects that have it.
void release_buffer(PyObject*, Py_buffer*) {}

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
PyObject* get_redelivered(PyObject* self, void*) {
    return PyLong_FromUnsignedLong(state_of(self).redelivered);
}
PyObject* get_sender(PyObject* self, void*) { return state_of(self).sender.new_ref(); }
PyObject* get_kind(PyObject* self, void*) { return state_of(self).kind.new_ref(); }
PyObject* get_extension(PyObject* self, void*) {
    const Ref& extension = state_of(self).extension;
    return extension ? extension.new_ref() : PyBytes_FromStringAndSize("", 0);
}
PyObject* get_trace(PyObject* self, void*) {
    const Ref& extension = state_of(self).extension;
    auto trace = extension ? item_of<TraceItem>(view_of_bytes(extension.get())) : std::nullopt;
    return trace ? PyUnicode_FromString(traceparent_of(*trace).c_str()) : Py_NewRef(empty_str);
}

Py_ssize_t length(PyObject* self) { return static_cast<Py_ssize_t>(state_of(self).view.size); }

void destroy(PyObject* self) {
    LeaseState* l = reinterpret_cast<LeaseObject*>(self)->state;
    if (l && l->open) end_task(*l, true);  // dropped, and no block has ended
    delete l;
    deallocate(self);
}

PyMethodDef methods[] = {{"__enter__", entry<enter>, METH_NOARGS, nullptr},
                         {"__exit__", entry<leave>, METH_VARARGS, nullptr},
                         {"release", entry<release>, METH_NOARGS, "release()\n--\n\nGive the message back."},
                         {"_reject", entry<reject_lease>, METH_NOARGS, "Give the message back to the queue."},
                         {nullptr, nullptr, 0, nullptr}};

PyGetSetDef attributes[] = {
    {"data", entry<get_data>, nullptr, "The message in place, read-only.", nullptr},
    {"seq", entry<get_seq>, nullptr, "Its sequence number.", nullptr},
    {"time_ns", entry<get_time>, nullptr, "When it was published.", nullptr},
    {"sender", entry<get_sender>, nullptr, "Who sent it.", nullptr},
    {"kind", entry<get_kind>, nullptr, "What kind it is.", nullptr},
    {"extension", entry<get_extension>, nullptr, "What ringmain's own parts say of it.", nullptr},
    {"trace", entry<get_trace>, nullptr, "The `traceparent` of the span it was sent in, or ''.", nullptr},
    {"lost", entry<get_lost>, nullptr, "Messages lost just before it.", nullptr},
    {"redelivered", entry<get_redelivered>, nullptr, "How often another worker had it before.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, attributes},
                       {Py_bf_getbuffer, reinterpret_cast<void*>(entry<get_buffer>)},
                       {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                       {Py_sq_length, reinterpret_cast<void*>(entry<length>)},
                       {Py_tp_doc, const_cast<char*>("A message read in place.")},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.Lease", sizeof(LeaseObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

// nullptr without an exception: it was overwritten meanwhile.
PyObject* new_lease(PyObject* self, SubscriberState& s, const View& view, bool is_task) {
    Ref lease(create<LeaseObject>(lease_type, nullptr, nullptr));
    if (!lease) return nullptr;
    LeaseState* l = &state_of(lease.get());
    l->subscriber = Ref::to(self);
    l->topic_file = s.mapping();
    l->view = view;
    l->sender = Ref(sender_of(s, view));
    l->kind = Ref(kind_of(s, view));
    if (view.kind_size != 0 && !view.said().extension.empty()) {
        l->extension = Ref(extension_of(view));
        if (!l->extension) return nullptr;
    }
    l->is_task = is_task;
    if (!l->sender || !l->kind || !l->keeper.make()) return nullptr;
    uint64_t position = s.position_to_keep(view);
    make_room(s.leases);  // first: from here on nothing fails
    if (is_task && s.work) s.work->lent.make_room();
    if (!s.reader->still_whole(view)) return nullptr;
    if (is_task) l->lost = s.reader->take(view);
    if (is_task && s.work) l->redelivered = s.work->lend();
    s.leases.push_back(position);
    Borrowed& borrowed = l->keeper.hold();
    borrowed.subscriber = Ref::to(self);
    borrowed.topic_file = l->topic_file;
    borrowed.position = position;
    return lease.release();
}

// A lease of the message that was found. nullptr without an exception: it was overwritten meanwhile.
PyObject* lease_of(PyObject* self, SubscriberState& s, const View& view) {
    Ref lease(new_lease(self, s, view, true));
    bool ours = s.reader->release(s.keep());
    return !lease || ours ? lease.release() : raise_evicted(s);
}

// borrow(subscriber, timeout): the module's function behind Subscriber.borrow.
PyObject* borrow(PyObject*, PyObject* args) {
    PyObject *self, *timeout = nullptr;
    int64_t timeout_ns;
    if (!PyArg_ParseTuple(args, "O!|O", subscriber_type, &self, &timeout) ||
        !parse_timeout(timeout, timeout_ns))
        return nullptr;
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    Deadline deadline(timeout_ns);
    Receiving turn(self, *s, &deadline);
    if (turn.late()) return raise_late(*s, deadline);
    if (!turn.entered() || !usable_subscriber(self)) return nullptr;
    for (int laps = 0;;) {
        View view;
        int found = wait_for_message(self, *s, deadline, view, true);
        if (found == 0) return raise_timeout(*s, deadline);
        if (found < 0) return nullptr;
        PyObject* lease = lease_of(self, *s, view);
        if (lease || PyErr_Occurred()) return lease;
        if (!try_again(deadline, laps)) return PyErr_Occurred() ? nullptr : raise_timeout(*s, deadline);
    }
}

// borrow_many(subscriber, max_messages, timeout): leases of the messages that are there. Waits, if at all, only for the
// first; if none comes in time the list is empty.
PyObject* borrow_many(PyObject*, PyObject* args) {
    PyObject *self, *timeout;
    Py_ssize_t max_messages;
    int64_t timeout_ns;
    if (!PyArg_ParseTuple(args, "O!nO", subscriber_type, &self, &max_messages, &timeout) ||
        !parse_timeout(timeout, timeout_ns))
        return nullptr;
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    Deadline deadline(timeout_ns);
    Receiving turn(self, *s, &deadline);
    Ref list(PyList_New(0));
    if (turn.late() || !list) return list.release();
    if (!turn.entered() || !usable_subscriber(self)) return nullptr;
    View view;
    int found = max_messages > 0 ? wait_for_message(self, *s, deadline, view, true) : 0;
    while (found == 1) {
        // Room for it in the list first: what was taken is not discarded for want of that.
        Py_ssize_t last = PyList_Size(list.get());
        if (PyList_Append(list.get(), Py_None) != 0) {
            found = -1;
            break;
        }
        Ref lease(guarded([&] { return lease_of(self, *s, view); }));
        if (!lease) {
            PyList_SetSlice(list.get(), last, last + 1, nullptr);
            if (PyErr_Occurred()) found = -1;
            break;  // or overwritten: the next call finds the ones after it
        }
        PyList_SetItem(list.get(), last, lease.release());
        if (PyList_Size(list.get()) == max_messages) break;
        found = message_now(self, *s, view, true, true);
    }
    if (found < 0 && (PyList_Size(list.get()) == 0 || interrupted())) return nullptr;
    PyErr_Clear();  // what was taken is not discarded: the next call meets the same error first
    return list.release();
}

PyMethodDef functions[] = {
    {"borrow", entry<borrow>, METH_VARARGS, "The next message, in place."},
    {"borrow_many", entry<borrow_many>, METH_VARARGS, "The messages that are there, in place."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyObject* lease_of_lent(PyObject* self, const View& view) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    return s->attached() ? new_lease(self, *s, view, false) : raise_evicted(*s);
}

bool add_lease(PyObject* module) {
    return Keeper<Borrowed>::add_type("ringmain._ring.Borrowed") && (lease_type = add_type(module, spec)) &&
           PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace ringmain::py
