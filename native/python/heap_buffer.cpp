// ringmain._ring.HeapBuffer: memory of this process, for the reservations and leases of the backends written in Python.
// They then treat views, arrays and tensors as the native ones do: see keeper.hpp.
#include "python/keeper.hpp"

namespace ringmain::py {

namespace {

struct HeapMemory {
    Ref bytes;
    Ref token;  // an object that exists as long as the memory is in use
};

struct HeapBufferState {
    Keeper<HeapMemory> keeper;
    bool writable = false;
    bool is_base = false;  // something may show the memory and refer only to this object: see keeps_object()
    BareRequests bare;
};

struct HeapBufferObject {
    PyObject_HEAD HeapBufferState* state;
};

HeapBufferState& state_of(PyObject* self) { return *reinterpret_cast<HeapBufferObject*>(self)->state; }

// _own(bytes, token) shows these, read-only. _own(size) makes zeros that can be written.
PyObject* own(PyObject* self, PyObject* args) {
    HeapBufferState& h = state_of(self);
    Keeper<HeapMemory> keeper;
    PyObject *source, *token = nullptr;
    if (!PyArg_ParseTuple(args, "O|O", &source, &token)) return nullptr;
    h.writable = !PyBytes_Check(source);
    Ref bytes = Ref::to(source);
    if (h.writable) {
        Py_ssize_t size = PyLong_AsSsize_t(source);
        if (size == -1 && PyErr_Occurred()) return nullptr;
        bytes = Ref(PyBytes_FromStringAndSize(nullptr, size));
        if (!bytes) return nullptr;
        std::fill_n(PyBytes_AsString(bytes.get()), size, 0);
    }
    if (!keeper.make()) return nullptr;
    keeper.hold().bytes = std::move(bytes);
    keeper.hold().token = Ref::to(token);
    h.keeper = std::move(keeper);
    Py_RETURN_NONE;
}

// _let_go(view): the block has ended. The memory stays until nothing shows it any more; the view, if there is one, is
// released.
PyObject* let_go(PyObject* self, PyObject* view) {
    HeapBufferState& h = state_of(self);
    if (h.keeper && view != Py_None && !torch_may_use_views()) {
        Keeper<HeapMemory> memory;
        if (!memory.make()) return nullptr;
        memory.hold().bytes = Ref::to(h.keeper.hold().bytes.get());
        memory.release(Ref::to(view));
    }
    if (!h.is_base) h.keeper.drop();
    Py_RETURN_NONE;
}

PyObject* viewed(PyObject* self, PyObject*) {
    return PyBool_FromLong(state_of(self).keeper.in_use() || state_of(self).is_base);
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    HeapBufferState& h = state_of(self);
    if (!h.keeper) {
        PyErr_SetString(PyExc_BufferError, "the buffer has no memory: its block has ended");
        return -1;
    }
    if (h.writable && h.bare.refuse(flags)) return -1;
    if (keeps_object(flags)) h.is_base = true;
    PyObject* bytes = h.keeper.hold().bytes.get();
    return h.keeper.fill(view, PyBytes_AsString(bytes), static_cast<uint64_t>(PyBytes_Size(bytes)),
                         !h.writable, flags);
}

// The keeper does what is to be done. It is here because numpy.frombuffer holds only buffers of objects that have it.
void release_buffer(PyObject*, Py_buffer*) {}

PyMethodDef methods[] = {
    {"_own", entry<own>, METH_VARARGS, "Show these bytes, or make so many that can be written."},
    {"_let_go", entry<let_go>, METH_O,
     "Drop the memory as soon as nothing shows it; release the view, if there is one."},
    {"viewed", entry<viewed>, METH_NOARGS, "viewed()\n--\n\nDoes a view, an array or a tensor of it exist?"},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(entry<create<HeapBufferObject>>)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy<HeapBufferObject>)},
                       {Py_tp_methods, methods},
                       {Py_bf_getbuffer, reinterpret_cast<void*>(entry<get_buffer>)},
                       {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                       {Py_tp_doc, const_cast<char*>("Memory that can tell whether it is in use.")},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.HeapBuffer", sizeof(HeapBufferObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

bool add_heap_buffer(PyObject* module) {
    return Keeper<HeapMemory>::add_type("ringmain._ring.HeapMemory") && add_type(module, spec);
}

}  // namespace ringmain::py
