// ringmain._ring.Frame: a frame read in place. Invariant: its buffer is held, and the pool mapped, until its block has
// ended and nothing shows the buffer any more.
#include "python/frame_subscriber.hpp"

namespace ringmain::py {

PyTypeObject* frame_type;

namespace {

Spares<FrameObject> spares;

FrameState& state_of(PyObject* self) { return reinterpret_cast<FrameObject*>(self)->state; }

// From now on, the keeper holds the buffer. False: raised.
bool make_keeper(FrameState& f) {
    if (!f.keeper.make()) return false;
    f.shown = &f.keeper.hold();
    f.shown->pool = f.pool;
    f.shown->buffer = f.descriptor.buffer;
    f.shown->frame = &f;
    f.leased = false;
    return true;
}

bool check_open(const FrameState& f) {
    if (!f.open) {
        PyErr_SetString(PyExc_ValueError,
                        "the frame was given back: its block has ended, or the loop has continued. An array "
                        "made before stays valid; use copy() to keep data without holding the buffer");
        return false;
    }
    if (f.pool->forked()) {
        raise("Closed", "a frame cannot be used after a fork: the parent holds its buffer");
        return false;
    }
    return true;
}

PyObject* enter(PyObject* self, PyObject*) { return check_open(state_of(self)) ? Py_NewRef(self) : nullptr; }

PyObject* leave(PyObject* self, PyObject* const*, Py_ssize_t) {
    end_frame(self);
    Py_RETURN_FALSE;
}

PyObject* release(PyObject* self, PyObject*) {
    end_frame(self);
    Py_RETURN_NONE;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    FrameState& f = state_of(self);
    if (!check_open(f)) return -1;
    if (!f.keeper && !make_keeper(f)) return -1;
    if (keeps_object(flags)) f.is_base = true;
    return f.keeper.fill(view, f.pool->pool().buffer(f.descriptor.buffer), f.descriptor.size, true, flags);
}

// The keeper does what is to be done. It is here because numpy.frombuffer holds only buffers of objects that have it.
void release_buffer(PyObject*, Py_buffer*) {}

PyObject* get_meta(PyObject* self, void*) {
    FrameState& f = state_of(self);
    if (!f.meta)
        f.meta =
            f.meta_bytes ? PyObject_CallFunctionObjArgs(decode_meta, f.meta_bytes, nullptr) : PyDict_New();
    return f.meta ? Py_NewRef(f.meta) : nullptr;
}

template <auto Field>
PyObject* get_unsigned(PyObject* self, void*) {
    return PyLong_FromUnsignedLongLong(state_of(self).descriptor.*Field);
}
template <auto Field>
PyObject* get_signed(PyObject* self, void*) {
    return PyLong_FromLongLong(state_of(self).descriptor.*Field);
}
PyObject* get_valid(PyObject* self, void*) {
    return PyBool_FromLong(state_of(self).descriptor.flags & kFrameValid);
}
PyObject* get_seq(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(state_of(self).seq); }
PyObject* get_lost(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(state_of(self).lost); }
PyObject* get_time(PyObject* self, void*) { return PyLong_FromLongLong(state_of(self).time_ns); }
PyObject* get_sender(PyObject* self, void*) { return Py_NewRef(state_of(self).sender); }
PyObject* get_kind(PyObject* self, void*) { return Py_NewRef(state_of(self).kind); }
PyObject* get_layout(PyObject* self, void*) { return Py_NewRef(state_of(self).layout); }
PyObject* get_data(PyObject* self, void*) { return PyMemoryView_FromObject(self); }
PyObject* get_held(PyObject* self, void*) {
    return PyBool_FromLong(state_of(self).leased || state_of(self).shown);
}

void destroy(PyObject* self) {
    FrameState& f = state_of(self);
    end_frame(self);
    if (f.shown) f.shown->frame = nullptr;
    for (PyObject* object : {f.layout, f.sender, f.kind, f.meta, f.meta_bytes}) Py_XDECREF(object);
    spares.drop(self);
}

PyObject* refuse(PyTypeObject*, PyObject*, PyObject*) {
    PyErr_SetString(PyExc_TypeError, "frames come from FrameSubscriber.recv()");
    return nullptr;
}

PyMethodDef methods[] = {{"__enter__", entry<enter>, METH_NOARGS, nullptr},
                         {"__exit__", method(entry<leave>), METH_FASTCALL, nullptr},
                         {"release", entry<release>, METH_NOARGS,
                          "release()\n--\n\nGive the buffer back, as soon as no view of it is left."},
                         {nullptr, nullptr, 0, nullptr}};

PyGetSetDef attributes[] = {
    {"id", entry<get_unsigned<&Descriptor::id>>, nullptr, "The frame's number, as its publisher set it.",
     nullptr},
    {"start_ns", entry<get_signed<&Descriptor::start_ns>>, nullptr, "When it began.", nullptr},
    {"end_ns", entry<get_signed<&Descriptor::end_ns>>, nullptr, "When it ended.", nullptr},
    {"size", entry<get_unsigned<&Descriptor::size>>, nullptr, "Bytes that are used.", nullptr},
    {"buffer", entry<get_unsigned<&Descriptor::buffer>>, nullptr, "Which buffer of the pool it is in.",
     nullptr},
    {"valid", entry<get_valid>, nullptr, "Is the content valid, as its publisher set it?", nullptr},
    {"meta", entry<get_meta>, nullptr, "The small dict that its publisher set.", nullptr},
    {"seq", entry<get_seq>, nullptr, "Its sequence number.", nullptr},
    {"time_ns", entry<get_time>, nullptr, "When it was published.", nullptr},
    {"sender", entry<get_sender>, nullptr, "Who sent it.", nullptr},
    {"kind", entry<get_kind>, nullptr, "What kind it is.", nullptr},
    {"lost", entry<get_lost>, nullptr, "Frames lost just before it.", nullptr},
    {"data", entry<get_data>, nullptr, "The frame in place, read-only.", nullptr},
    {"layout", entry<get_layout>, nullptr, "How the bytes are arranged.", nullptr},
    {"held", entry<get_held>, nullptr, "Is its buffer kept from being reused?", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(entry<refuse>)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, attributes},
                       {Py_bf_getbuffer, reinterpret_cast<void*>(entry<get_buffer>)},
                       {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                       {0, nullptr}};
// Final: see Spares. ringmain.frames._views adds to the type what is simpler in Python.
PyType_Spec spec = {"ringmain.Frame", sizeof(FrameObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

ShownBuffer::~ShownBuffer() {
    if (pool) pool->release(buffer);
    if (frame) frame->shown = nullptr;
}

void end_frame(PyObject* frame) {
    FrameState& f = state_of(frame);
    f.open = false;
    if (std::exchange(f.leased, false)) f.pool->release(f.descriptor.buffer);
    f.pool.reset();  // a frame that is kept for its metadata does not keep the pool
    if (!f.is_base) f.keeper.drop();
}

FrameObject* new_frame() { return spares.make(frame_type); }

bool add_frame(PyObject* module) {
    PyObject* type = PyType_FromSpec(&spec);
    frame_type = reinterpret_cast<PyTypeObject*>(type);
    return type && Keeper<ShownBuffer>::add_type("ringmain._ring.ShownBuffer") &&
           PyModule_AddObjectRef(module, "Frame", type) == 0;
}

}  // namespace ringmain::py
