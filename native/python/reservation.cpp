// ringmain._ring.Reservation: a message being written in place. `reserve` gives one of a fixed size, `stream` one that
// grows. Owns this invariant: while a view of it can be written, no other message is written there.
#include <utility>
#include <vector>

#include "publisher.hpp"

namespace ringmain::py {

namespace {

struct ReservationState {
    Ref publisher;
    PublisherState* p = nullptr;
    std::shared_ptr<TopicFile> topic_file;  // keeps the mapping while views live
    std::string kind;
    uint64_t size = 0;  // what will be sent
    uint64_t room = 0;  // what may be written
    // Weak references to the views that indexing gave out: they own us, so we must not own them.
    std::vector<Ref> slices;
    Py_ssize_t exports = 0;  // views that exist
    bool open = true;        // inside its block
    bool has_turn = true;    // until it is settled: afterwards the next reservation may have it
};

struct ReservationObject {
    PyObject_HEAD ReservationState* state;
};

ReservationState& state_of(PyObject* self) { return *reinterpret_cast<ReservationObject*>(self)->state; }

std::byte* payload(const ReservationState& r) {
    return r.p->writer->payload(r.p->sender.size(), r.kind.size());
}

// Is the publisher still in the topic file it reserved in? In a forked child it is not.
bool still_there(const ReservationState& r) {
    return r.p->open() && r.p->participant->shared() == r.topic_file;
}

// Gives the turn back once the block has ended and the last view is gone.
void settle(ReservationState& r) {
    if (r.open || r.exports > 0 || !r.has_turn) return;
    r.has_turn = false;
    if (!still_there(r)) return;
    r.p->writer->end();
    r.p->reserved = false;
}

// Releases the views that indexing gave out. One that has views of its own stays, and is counted in `exports`.
void drop_slices(ReservationState& r) {
    for (const Ref& weak : std::exchange(r.slices, {}))
        if (Ref slice = live_target(weak)) release_view(slice);
}

bool check_open(const ReservationState& r) {
    if (!r.open) {
        PyErr_SetString(PyExc_ValueError, "the reservation has ended: its block was left");
        return false;
    }
    if (still_there(r)) return true;
    raise("Closed",
          "the reservation on topic '" + r.p->topic + "' is the parent's: it does not outlive a fork");
    return false;
}

PyObject* enter(PyObject* self, PyObject*) { return check_open(state_of(self)) ? Py_NewRef(self) : nullptr; }

PyObject* discard(PyObject* self, PyObject*) {
    ReservationState& r = state_of(self);
    OneAtATime turn(r.p->caller);
    if (!turn.entered) return nullptr;
    if (r.open) {
        drop_slices(r);
        r.open = false;
        settle(r);
    }
    Py_RETURN_NONE;
}

PyObject* commit(PyObject* self, PyObject*) {
    ReservationState& r = state_of(self);
    OneAtATime turn(r.p->caller);
    if (!turn.entered || !check_open(r)) return nullptr;
    drop_slices(r);
    r.open = false;
    if (r.exports > 0) {
        settle(r);
        return raise("InUse",
                     "an array or view of the reservation on topic '" + r.p->topic +
                         "' is still alive, so the message was not sent: delete it before the block ends "
                         "(nothing can be sent until it is gone)");
    }
    Writer& w = *r.p->writer;
    uint64_t seq = w.seq();
    w.seal(seq, r.p->clock.now_ns(), r.size, r.p->sender, r.kind);
    w.commit();
    r.has_turn = r.p->reserved = false;
    return PyLong_FromUnsignedLongLong(seq);
}

PyObject* leave(PyObject* self, PyObject* args) {
    PyObject* type;
    if (!PyArg_ParseTuple(args, "OOO", &type, &type, &type)) return nullptr;
    bool failed = PyTuple_GetItem(args, 0) != Py_None;
    if (!state_of(self).open) Py_RETURN_FALSE;
    Ref done(failed ? discard(self, nullptr) : commit(self, nullptr));
    if (!done) return nullptr;
    Py_RETURN_FALSE;
}

PyObject* truncate(PyObject* self, PyObject* argument) {
    ReservationState& r = state_of(self);
    if (!check_open(r)) return nullptr;
    uint64_t size = 0;
    if (!parse_count("size", argument, size)) return nullptr;
    if (size > r.room) {
        PyErr_Format(PyExc_ValueError, "truncate(%S): only %llu bytes are reserved", argument,
                     static_cast<unsigned long long>(r.room));
        return nullptr;
    }
    r.size = size;
    Py_RETURN_NONE;
}

// append(data, timeout): for messages whose size is not known in advance. Grows in place.
PyObject* append_data(PyObject* self, PyObject* args) {
    ReservationState& r = state_of(self);
    PyObject *object, *timeout = nullptr;
    int64_t timeout_ns;
    if (!PyArg_ParseTuple(args, "O|O", &object, &timeout) || !parse_timeout(timeout, timeout_ns))
        return nullptr;
    Bytes data;
    if (!data.get(object)) return nullptr;
    OneAtATime turn(r.p->caller);
    if (!turn.entered || !check_open(r)) return nullptr;
    uint64_t grown = r.size + static_cast<uint64_t>(data.size);
    uint64_t envelope = align_up(r.p->sender.size() + r.kind.size());
    if (grown + envelope > r.p->largest_bytes) return raise_too_large(*r.p, grown, envelope);
    if (grown > r.room) {
        Deadline deadline(timeout_ns);
        uint64_t room = room_for(footprint(grown, r.p->sender.size(), r.kind.size()));
        for (Status status; (status = r.p->writer->prepare(room)) != Status::ok;) {
            if (status != Status::blocked) return raise_status(*r.p, status);
            if (wait_for_room(*r.p, deadline) != 1) return nullptr;
        }
        r.room = grown;
    }
    copy_in(payload(r) + r.size, data.data, static_cast<size_t>(data.size));
    r.size = grown;
    return PyLong_FromSsize_t(data.size);
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    ReservationState& r = state_of(self);
    if (!check_open(r)) return -1;
    if (PyBuffer_FillInfo(view, self, payload(r), static_cast<Py_ssize_t>(r.room), 0, flags) != 0) return -1;
    ++r.exports;
    return 0;
}

void release_buffer(PyObject* self, Py_buffer*) {
    ReservationState& r = state_of(self);
    --r.exports;
    settle(r);
}

PyObject* get_item(PyObject* self, PyObject* key) {
    ReservationState& r = state_of(self);
    Ref view(check_open(r) ? PyMemoryView_FromObject(self) : nullptr);
    Ref item(view ? PyObject_GetItem(view.get(), key) : nullptr);
    if (!item || !PyMemoryView_Check(item.get())) return item.release();
    constexpr size_t kPruneAt = 64;  // a loop over slices must not collect them all
    if (r.slices.size() >= kPruneAt)
        std::erase_if(r.slices, [](const Ref& weak) { return !live_target(weak); });
    Ref weak(PyWeakref_NewRef(item.get(), nullptr));
    if (!weak) return nullptr;
    r.slices.push_back(std::move(weak));
    return item.release();
}

int set_item(PyObject* self, PyObject* key, PyObject* value) {
    if (!value) {
        PyErr_SetString(PyExc_TypeError, "bytes of a reservation cannot be deleted; use truncate()");
        return -1;
    }
    Ref view(check_open(state_of(self)) ? PyMemoryView_FromObject(self) : nullptr);
    return view ? PyObject_SetItem(view.get(), key, value) : -1;
}

Py_ssize_t length(PyObject* self) { return static_cast<Py_ssize_t>(state_of(self).size); }

void destroy(PyObject* self) {
    ReservationState* r = reinterpret_cast<ReservationObject*>(self)->state;
    if (r) {
        drop_slices(*r);
        r->open = false;
        settle(*r);
        delete r;
    }
    deallocate(self);
}

PyMethodDef methods[] = {
    {"__enter__", enter, METH_NOARGS, nullptr},
    {"__exit__", leave, METH_VARARGS, nullptr},
    {"truncate", truncate, METH_O, "truncate(size)\n--\n\nSend only the first `size` bytes."},
    {"commit", commit, METH_NOARGS, "commit()\n--\n\nSend it now; returns its sequence number."},
    {"discard", discard, METH_NOARGS, "discard()\n--\n\nDo not send it."},
    {"_append", append_data, METH_VARARGS, "Grow by these bytes, waiting for room."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_methods, methods},
                       {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                       {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                       {Py_mp_subscript, reinterpret_cast<void*>(get_item)},
                       {Py_mp_ass_subscript, reinterpret_cast<void*>(set_item)},
                       {Py_mp_length, reinterpret_cast<void*>(length)},
                       {Py_tp_doc, const_cast<char*>("A message being written in place.")},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.Reservation", sizeof(ReservationObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

// reserve(publisher, size, kind, timeout): the module's function behind Publisher.reserve and Publisher.stream.
PyObject* reserve(PyObject*, PyObject* args) {
    PyObject *publisher, *size_object, *kind_object, *timeout;
    int64_t timeout_ns;
    std::string_view kind;
    if (!PyArg_ParseTuple(args, "O!OUO", publisher_type, &publisher, &size_object, &kind_object, &timeout) ||
        !parse_timeout(timeout, timeout_ns) || !text_of(kind_object, kind) || !check_kind(kind))
        return nullptr;
    uint64_t size = 0;
    if (!parse_count("size", size_object, size)) return nullptr;
    PublisherState* p = reinterpret_cast<PublisherObject*>(publisher)->state;
    OneAtATime turn(p->caller);
    if (!turn.entered || !usable(publisher)) return nullptr;
    uint64_t envelope = align_up(p->sender.size() + kind.size());
    if (size > p->largest_bytes || size + envelope > p->largest_bytes)
        return raise_too_large(*p, size, envelope);
    Deadline deadline(timeout_ns);
    if (!start_message(*p, room_for(footprint(size, p->sender.size(), kind.size())), deadline))
        return nullptr;
    PyObject* self = allocate(reservation_type);
    if (!self) {
        p->writer->end();
        return nullptr;
    }
    reinterpret_cast<ReservationObject*>(self)->state =
        new ReservationState{Ref::to(publisher), p, p->participant->shared(), std::string(kind), size, size};
    p->reserved = true;
    return self;
}

PyMethodDef functions[] = {{"reserve", reserve, METH_VARARGS, "Begin a message in place."},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_reservation(PyObject* module) {
    return (reservation_type = add_type(module, spec)) && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace ringmain::py
