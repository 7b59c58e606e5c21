// ringmain._ring.FrameDraft: a frame being filled in its buffer. Invariant: a buffer that something can still write is
// not used for another frame.
#include "frames/descriptor.hpp"
#include "python/frame_publisher.hpp"

namespace ringmain::py {

PyTypeObject* draft_type;

namespace {

Spares<DraftObject> spares;

// From now on, the keeper has the buffer. False: raised.
bool make_keeper(DraftState& d) {
    if (!d.keeper.make()) return false;
    WritableBuffer& writable = d.keeper.hold();
    writable.scratch = d.scratch;
    if (d.taken) writable.pool = d.pool;
    writable.buffer = d.buffer;
    return true;
}

// The buffer can be used again when the block has ended and nothing shows it any more.
void end(DraftState& d) {
    if (!d.open) return;
    d.open = false;
    FramePublisherState& f = publisher_of(d.owner);
    if (f.pool == d.pool) --f.open_drafts;
    if (d.taken && !d.keeper) d.pool->give_back(d.buffer);
    if (!d.is_base) d.keeper.drop();
}

bool check_open(const DraftState& d) {
    if (d.open) return true;
    PyErr_SetString(PyExc_ValueError, "the frame was sent or discarded: its block has ended");
    return false;
}

// A sent frame must not change: the arrays that the user keeps of it become read-only.
void freeze(DraftState& d) {
    if (!d.arrays) return;
    for (Py_ssize_t i = 0; i < PyList_Size(d.arrays); ++i) {
        PyObject* array = PyWeakref_GetObject(PyList_GetItem(d.arrays, i));
        if (array == Py_None) continue;
        Py_INCREF(array);
        PyObject* done = PyObject_CallMethod(array, "setflags", "O", Py_False);
        if (!done) clear_or_raise_later();
        Py_XDECREF(done);
        Py_DECREF(array);
    }
}

bool encoded_meta(const DraftState& d, const PublisherState& p, Ref& bytes) {
    int full = d.meta ? PyObject_IsTrue(d.meta) : 0;
    if (full <= 0) return full == 0;
    bytes = Ref(PyObject_CallFunctionObjArgs(encode_meta, d.meta, nullptr));
    if (!bytes) return false;
    uint64_t size = static_cast<uint64_t>(PyBytes_Size(bytes.get()));
    uint64_t most = largest_meta(p.largest_bytes, p.sender.size());
    if (size <= most) return true;
    raise("MessageTooLarge", "the meta of a frame of topic '" + p.topic + "' takes " + std::to_string(size) +
                                 " bytes, at most " + std::to_string(most) +
                                 " fit beside its descriptor: put large data into the frame");
    return false;
}

bool publish(DraftState& d) {
    FramePublisherState& f = publisher_of(d.owner);
    PublisherState* p = f.publisher ? usable(f.publisher) : nullptr;
    if (f.publisher && !p) return false;
    if (!p || d.pool != f.pool || d.pool->forked()) {
        raise("Closed", "the frame was not sent: its publisher is closed, or the process has forked");
        return false;
    }
    Ref meta;
    if (!encoded_meta(d, *p, meta)) return false;
    std::string_view more = meta ? view_of_bytes(meta.get()) : std::string_view();
    uint64_t size = sizeof(Descriptor) + more.size();
    OneAtATime turn(p->caller);
    Deadline deadline(kForever);
    bool started =
        turn.entered && start_message(*p, room_for(footprint(size, p->sender.size(), 0)), deadline);
    if (started) {
        int64_t now_ns = p->clock.now_ns();
        FrameFacts facts{d.id, d.start_ns, d.end_ns ? d.end_ns : now_ns, d.size, d.valid};
        d.seq = send_descriptor(*p->writer, *d.pool.get(), d.buffer, facts, now_ns, p->sender, more);
        d.sent = true;
    }
    return started;
}

PyObject* enter(PyObject* self, PyObject*) { return check_open(draft_of(self)) ? Py_NewRef(self) : nullptr; }

bool finish(DraftState& d) {
    if (d.keeper) [[unlikely]]
        freeze(d);
    bool done = !d.taken || guarded([&] { return publish(d); });
    end(d);
    return done;
}

PyObject* commit(PyObject* self, PyObject*) {
    DraftState& d = draft_of(self);
    if (!check_open(d) || !finish(d)) return nullptr;
    if (!d.sent) Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(d.seq);
}

PyObject* discard(PyObject* self, PyObject*) {
    end(draft_of(self));
    Py_RETURN_NONE;
}

PyObject* leave(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    DraftState& d = draft_of(self);
    if (d.open) {
        if (count > 0 && args[0] != Py_None)
            end(d);
        else if (!finish(d))
            return nullptr;
    }
    Py_RETURN_FALSE;
}

// fill(buffer): copies it in, without the GIL.
PyObject* fill(PyObject* self, PyObject* object) {
    DraftState& d = draft_of(self);
    Bytes source;
    if (!check_open(d) || !source.get(object)) return nullptr;
    if (static_cast<uint64_t>(source.size) > d.pool->pool().buffer_bytes()) {
        PyErr_Format(PyExc_ValueError, "%zd bytes do not fit the frame of %llu", source.size,
                     static_cast<unsigned long long>(d.pool->pool().buffer_bytes()));
        return nullptr;
    }
    size_t size = static_cast<size_t>(source.size);
    if (size < kBulkBytes) {
        copy_in(d.data, source.data, size);
        Py_RETURN_NONE;
    }
    copy_measured(publisher_of(d.owner).copying, d.data, source.data, size);
    Py_RETURN_NONE;
}

PyObject* remember(PyObject* self, PyObject* array) {
    DraftState& d = draft_of(self);
    if (!d.arrays) d.arrays = PyList_New(0);
    PyObject* reference = d.arrays ? PyWeakref_NewRef(array, nullptr) : nullptr;
    int added = reference ? PyList_Append(d.arrays, reference) : -1;
    Py_XDECREF(reference);
    return added == 0 ? Py_NewRef(array) : nullptr;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    DraftState& d = draft_of(self);
    if (!check_open(d)) return -1;
    if (!d.keeper && !make_keeper(d)) return -1;
    if (keeps_object(flags)) d.is_base = true;
    return d.keeper.fill(view, d.data, d.size, false, flags);
}

// The keeper does what is to be done. It is here because numpy.frombuffer holds only buffers of objects that have it.
void release_buffer(PyObject*, Py_buffer*) {}

template <int64_t DraftState::* Field>
PyObject* get_time(PyObject* self, void*) {
    return PyLong_FromLongLong(draft_of(self).*Field);
}
template <int64_t DraftState::* Field>
int set_time(PyObject* self, PyObject* value, void*) {
    long long ns = value ? PyLong_AsLongLong(value) : 0;
    if (PyErr_Occurred() || !check_open(draft_of(self))) return -1;
    draft_of(self).*Field = ns;
    return 0;
}

PyObject* get_id(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(draft_of(self).id); }
int set_id(PyObject* self, PyObject* value, void*) {
    unsigned long long id = value ? PyLong_AsUnsignedLongLong(value) : 0;
    if (PyErr_Occurred() || !check_open(draft_of(self))) return -1;
    draft_of(self).id = id;
    return 0;
}

PyObject* get_valid(PyObject* self, void*) { return PyBool_FromLong(draft_of(self).valid); }
int set_valid(PyObject* self, PyObject* value, void*) {
    int valid = value ? PyObject_IsTrue(value) : 1;
    if (valid < 0 || !check_open(draft_of(self))) return -1;
    draft_of(self).valid = valid;
    return 0;
}

PyObject* get_size(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(draft_of(self).size); }
int set_size(PyObject* self, PyObject* value, void*) {
    DraftState& d = draft_of(self);
    unsigned long long size = value ? PyLong_AsUnsignedLongLong(value) : d.pool->pool().buffer_bytes();
    if (PyErr_Occurred() || !check_open(d)) return -1;
    if (size > d.pool->pool().buffer_bytes()) {
        PyErr_Format(PyExc_ValueError, "a frame of %llu bytes does not fit the buffer of %llu", size,
                     static_cast<unsigned long long>(d.pool->pool().buffer_bytes()));
        return -1;
    }
    if (publisher_of(d.owner).fixed && size != d.pool->pool().buffer_bytes()) {
        PyErr_Format(PyExc_ValueError,
                     "a frame of this topic has %llu bytes: only frames of bytes may use fewer",
                     static_cast<unsigned long long>(d.pool->pool().buffer_bytes()));
        return -1;
    }
    d.size = size;
    return 0;
}

PyObject* get_meta(PyObject* self, void*) {
    DraftState& d = draft_of(self);
    if (!d.meta) d.meta = PyDict_New();
    return d.meta ? Py_NewRef(d.meta) : nullptr;
}
int set_meta(PyObject* self, PyObject* value, void*) {
    DraftState& d = draft_of(self);
    if (value && !PyDict_Check(value)) {
        PyErr_Format(PyExc_TypeError, "meta is a dict, not %R", value);
        return -1;
    }
    if (!check_open(d)) return -1;
    PyObject* old = d.meta;
    d.meta = value ? Py_NewRef(value) : nullptr;
    Py_XDECREF(old);
    return 0;
}

PyObject* get_seq(PyObject* self, void*) {
    const DraftState& d = draft_of(self);
    if (!d.sent) Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(d.seq);
}
PyObject* get_data(PyObject* self, void*) { return PyMemoryView_FromObject(self); }
PyObject* get_layout(PyObject* self, void*) {
    PyObject* layout = publisher_of(draft_of(self).owner).layout;
    return Py_NewRef(layout ? layout : Py_None);
}
PyObject* get_draft_dropped(PyObject* self, void*) {
    return PyBool_FromLong(draft_of(self).scratch != nullptr);
}

void destroy_draft(PyObject* self) {
    DraftState& d = draft_of(self);
    if (d.owner) end(d);
    for (PyObject* object : {d.owner, d.meta, d.arrays}) Py_XDECREF(object);
    spares.drop(self);
}

PyObject* refuse(PyTypeObject*, PyObject*, PyObject*) {
    PyErr_SetString(PyExc_TypeError, "frames to fill come from FramePublisher.frame()");
    return nullptr;
}

PyMethodDef draft_methods[] = {
    {"__enter__", entry<enter>, METH_NOARGS, nullptr},
    {"__exit__", method(entry<leave>), METH_FASTCALL, nullptr},
    {"commit", entry<commit>, METH_NOARGS, "commit()\n--\n\nSend it now; returns its sequence number."},
    {"discard", entry<discard>, METH_NOARGS, "discard()\n--\n\nDo not send it."},
    {"_fill", entry<fill>, METH_O, "Copy the bytes of a buffer in."},
    {"_remember", entry<remember>, METH_O, "Note an array, which becomes read-only when the frame is sent."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef draft_attributes[] = {
    {"id", entry<get_id>, entry<set_id>, "The frame's number, as its reader sees it.", nullptr},
    {"start_ns", entry<get_time<&DraftState::start_ns>>, entry<set_time<&DraftState::start_ns>>,
     "When it began.", nullptr},
    {"end_ns", entry<get_time<&DraftState::end_ns>>, entry<set_time<&DraftState::end_ns>>, "When it ended.",
     nullptr},
    {"valid", entry<get_valid>, entry<set_valid>, "Is the content valid?", nullptr},
    {"meta", entry<get_meta>, entry<set_meta>, "A small dict that is sent with the frame.", nullptr},
    {"size", entry<get_size>, entry<set_size>, "Bytes that are used.", nullptr},
    {"seq", entry<get_seq>, nullptr, "Its sequence number, once it is sent.", nullptr},
    {"data", entry<get_data>, nullptr, "The buffer, writable.", nullptr},
    {"layout", entry<get_layout>, nullptr, "How the bytes are arranged.", nullptr},
    {"dropped", entry<get_draft_dropped>, nullptr, "No buffer was free: it will not be sent.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot draft_slots[] = {{Py_tp_new, reinterpret_cast<void*>(entry<refuse>)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(destroy_draft)},
                             {Py_tp_methods, draft_methods},
                             {Py_tp_getset, draft_attributes},
                             {Py_bf_getbuffer, reinterpret_cast<void*>(entry<get_buffer>)},
                             {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                             {0, nullptr}};
// Final: see Spares. ringmain.frames._views adds to the type what is simpler in Python.
PyType_Spec draft_spec = {"ringmain.FrameDraft", sizeof(DraftObject), 0, Py_TPFLAGS_DEFAULT, draft_slots};

}  // namespace

DraftObject* new_draft() { return spares.make(draft_type); }

bool add_frame_draft(PyObject* module) {
    PyObject* type = PyType_FromSpec(&draft_spec);
    draft_type = reinterpret_cast<PyTypeObject*>(type);
    return type && Keeper<WritableBuffer>::add_type("ringmain._ring.WritableBuffer") &&
           PyModule_AddObjectRef(module, "FrameDraft", type) == 0;
}

}  // namespace ringmain::py
