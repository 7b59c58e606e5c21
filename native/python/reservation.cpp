// ringmain._ring.Reservation: a message being written in place. `reserve` gives one of a fixed size, `stream` one that
// grows. Owns this invariant: while a view of it can be written, no other message is written there.
#include <utility>
#include <vector>

#include "python/keeper.hpp"
#include "python/publisher.hpp"

namespace ringmain::py {

namespace {

// The right to write a message. Its destructor gives it up.
struct Turn {
    Ref publisher;                          // none: the message was sent
    std::shared_ptr<TopicFile> topic_file;  // keeps the mapping while views live

    PublisherState& writing() const { return *reinterpret_cast<PublisherObject*>(publisher.get())->state; }
    // Is the publisher still in the topic file it reserved in? In a forked child it is not.
    bool still_there() const {
        return publisher && writing().open() && writing().participant->shared() == topic_file;
    }
    ~Turn() {
        if (!still_there()) return;
        writing().writer->end();
        writing().reserved = false;
    }
};

struct ReservationState {
    Keeper<Turn> keeper;  // none once the block has ended
    Ref publisher;
    PublisherState* p = nullptr;
    std::string kind;
    uint64_t size = 0;  // what will be sent
    uint64_t room = 0;  // what may be written
    // Weak references to the views that indexing gave out: to release them, not to keep them.
    std::vector<Ref> slices;
    BareRequests bare;

    bool open() const { return bool(keeper); }  // inside its block
};

struct ReservationObject {
    PyObject_HEAD ReservationState* state;
};

ReservationState& state_of(PyObject* self) { return *reinterpret_cast<ReservationObject*>(self)->state; }

std::byte* payload(const ReservationState& r) {
    return r.p->writer->payload(r.p->sender.size(), r.kind.size());
}

// Releases the views that indexing gave out. One that has views of its own stays.
void drop_slices(ReservationState& r) {
    if (r.slices.empty() || torch_may_use_views()) return;
    for (const Ref& weak : std::exchange(r.slices, {}))
        if (Ref slice = live_target(weak)) release_view(slice);
}

bool check_open(const ReservationState& r) {
    if (!r.open()) {
        PyErr_SetString(PyExc_ValueError, "the reservation has ended: its block was left");
        return false;
    }
    if (r.keeper.hold().still_there()) return true;
    raise("Closed",
          "the reservation on topic '" + r.p->topic + "' is the parent's: it does not outlive a fork");
    return false;
}

PyObject* enter(PyObject* self, PyObject*) { return check_open(state_of(self)) ? Py_NewRef(self) : nullptr; }

PyObject* discard(PyObject* self, PyObject*) {
    ReservationState& r = state_of(self);
    OneAtATime turn(r.p->caller);
    if (!turn.entered) return nullptr;
    drop_slices(r);
    r.keeper.drop();
    Py_RETURN_NONE;
}

PyObject* commit(PyObject* self, PyObject*) {
    ReservationState& r = state_of(self);
    OneAtATime turn(r.p->caller);
    if (!turn.entered || !check_open(r)) return nullptr;
    drop_slices(r);
    if (r.keeper.in_use()) {
        r.keeper.drop();
        return raise("InUse",
                     "an array or view of the reservation on topic '" + r.p->topic +
                         "' is still alive, so the message was not sent: delete it before the block ends "
                         "(nothing can be sent until it is gone)");
    }
    Writer& w = *r.p->writer;
    uint64_t seq = w.seq();
    Ref number(PyLong_FromUnsignedLongLong(seq));
    if (!number) return nullptr;
    w.seal(seq, r.p->clock.now_ns(), r.size, r.p->sender, r.kind);
    w.commit();
    r.p->reserved = false;
    r.keeper.hold().publisher = Ref();
    r.keeper.drop();
    return number.release();
}

PyObject* leave(PyObject* self, PyObject* args) {
    PyObject* type;
    if (!PyArg_ParseTuple(args, "OOO", &type, &type, &type)) return nullptr;
    bool failed = PyTuple_GetItem(args, 0) != Py_None;
    if (!state_of(self).open()) Py_RETURN_FALSE;
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
        PythonHost host = r.p->host();
        try {
            Outcome outcome = r.p->extend(room, deadline, host);
            if (outcome != Outcome::ready) return raise_outcome(*r.p, outcome, deadline);
        } catch (const Failure& failure) {
            return raise(failure, r.p->topic);
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
    if (r.bare.refuse(flags)) return -1;
    return r.keeper.fill(view, payload(r), r.room, false, flags);
}

// The keeper does what is to be done. It is here because numpy.frombuffer holds only buffers of objects that have it.
void release_buffer(PyObject*, Py_buffer*) {}

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

PyMethodDef methods[] = {
    {"__enter__", entry<enter>, METH_NOARGS, nullptr},
    {"__exit__", entry<leave>, METH_VARARGS, nullptr},
    {"truncate", entry<truncate>, METH_O, "truncate(size)\n--\n\nSend only the first `size` bytes."},
    {"commit", entry<commit>, METH_NOARGS, "commit()\n--\n\nSend it now; returns its sequence number."},
    {"discard", entry<discard>, METH_NOARGS, "discard()\n--\n\nDo not send it."},
    {"_append", entry<append_data>, METH_VARARGS, "Grow by these bytes, waiting for room."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy<ReservationObject>)},
                       {Py_tp_methods, methods},
                       {Py_bf_getbuffer, reinterpret_cast<void*>(entry<get_buffer>)},
                       {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                       {Py_mp_subscript, reinterpret_cast<void*>(entry<get_item>)},
                       {Py_mp_ass_subscript, reinterpret_cast<void*>(entry<set_item>)},
                       {Py_mp_length, reinterpret_cast<void*>(entry<length>)},
                       {Py_tp_doc, const_cast<char*>("A message being written in place.")},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.Reservation", sizeof(ReservationObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

// reserve(publisher, size, kind, timeout): the module's function behind Publisher.reserve and Publisher.stream.
PyObject* reserve(PyObject*, PyObject* args) {
    PyObject *publisher, *size_object, *kind_object, *timeout;
    int64_t timeout_ns;
    std::string_view kind;
    if (!PyArg_ParseTuple(args, "O!OOO", publisher_type, &publisher, &size_object, &kind_object, &timeout) ||
        !parse_timeout(timeout, timeout_ns) || !said_of(kind_object, kind))
        return nullptr;
    uint64_t size = 0;
    if (!parse_count("size", size_object, size)) return nullptr;
    PublisherState* p = reinterpret_cast<PublisherObject*>(publisher)->state;
    Deadline deadline(timeout_ns);
    OneAtATime turn(p->caller, &deadline);
    if (turn.late) return raise_late(*p, deadline);
    if (!turn.entered || !usable(publisher)) return nullptr;
    uint64_t envelope = align_up(p->sender.size() + kind.size());
    if (size > p->largest_bytes || size + envelope > p->largest_bytes)
        return raise_too_large(*p, size, envelope);
    if (!start_message(*p, room_for(footprint(size, p->sender.size(), kind.size())), deadline))
        return nullptr;
    Ref self(allocate(reservation_type));
    Keeper<Turn> keeper;
    if (!self || !keeper.make()) {
        p->writer->end();
        return nullptr;
    }
    keeper.hold().publisher = Ref::to(publisher);
    keeper.hold().topic_file = p->participant->shared();
    reinterpret_cast<ReservationObject*>(self.get())->state =
        new ReservationState{std::move(keeper), Ref::to(publisher), p, std::string(kind), size, size, {}, {}};
    p->reserved = true;
    return self.release();
}

PyMethodDef functions[] = {{"reserve", entry<reserve>, METH_VARARGS, "Begin a message in place."},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_reservation(PyObject* module) {
    return Keeper<Turn>::add_type("ringmain._ring.Turn") && (reservation_type = add_type(module, spec)) &&
           PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace ringmain::py
