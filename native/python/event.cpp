// ringmain._ring.Event: a descriptor for an event loop, and the tokens of the bells that rang. See src/ringmain/aio.py.
#include "python/event.hpp"

namespace ringmain::py {

namespace {

PyObject* create(PyTypeObject* type, PyObject*, PyObject*) {
    Ref self(allocate(type));
    if (!self) return nullptr;
    reinterpret_cast<EventObject*>(self.get())->event = new std::shared_ptr<Event>(std::make_shared<Event>());
    return self.release();
}

void destroy(PyObject* self) {
    delete reinterpret_cast<EventObject*>(self)->event;
    deallocate(self);
}

PyObject* fileno(PyObject* self, PyObject*) { return PyLong_FromLong(event_of(self)->fd()); }

PyObject* take(PyObject* self, PyObject*) {
    Ref list(PyList_New(0));
    std::vector<uint64_t> tokens = event_of(self)->tokens();
    for (uint64_t token : tokens)
        if (!append(list, Ref(PyLong_FromUnsignedLongLong(token)))) return nullptr;
    event_of(self)->forget(tokens.size());  // last: a task whose token is lost would wait without a limit
    return list.release();
}

PyObject* forget(PyObject*, PyObject* token) {
    unsigned long long number = PyLong_AsUnsignedLongLong(token);
    if (PyErr_Occurred()) return nullptr;
    unwatch(number);
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"fileno", entry<fileno>, METH_NOARGS, "Readable when a bell has rung."},
    {"take", entry<take>, METH_NOARGS, "The tokens of the bells that rang since the last call."},
    {"forget", entry<forget>, METH_O, "Stop watching the bell of this token."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(entry<create>)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_methods, methods},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.Event", sizeof(EventObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

bool add_event(PyObject* module) { return (event_type = add_type(module, spec)) != nullptr; }

}  // namespace ringmain::py
