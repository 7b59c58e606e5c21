// ringmain._ring.Event: a descriptor for an event loop, and what rang. See src/ringmain/aio.py.
#include "event.hpp"

namespace ringmain::py {

namespace {

PyObject* create(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* self = allocate(type);
    if (!self) return nullptr;
    try {
        reinterpret_cast<EventObject*>(self)->event = new std::shared_ptr<Event>(std::make_shared<Event>());
    } catch (const Failure& failure) {
        Py_DECREF(self);
        return raise(failure);
    }
    return self;
}

void destroy(PyObject* self) {
    delete reinterpret_cast<EventObject*>(self)->event;
    deallocate(self);
}

PyObject* fileno(PyObject* self, PyObject*) { return PyLong_FromLong(event_of(self)->fd()); }

PyObject* take(PyObject* self, PyObject*) {
    std::vector<uint64_t> tokens = event_of(self)->take();
    PyObject* list = PyList_New(0);
    for (uint64_t token : tokens) {
        PyObject* number = PyLong_FromUnsignedLongLong(token);
        if (!list || !number || PyList_Append(list, number) != 0) {
            Py_XDECREF(number);
            Py_XDECREF(list);
            return nullptr;
        }
        Py_DECREF(number);
    }
    return list;
}

PyObject* forget(PyObject*, PyObject* token) {
    unsigned long long number = PyLong_AsUnsignedLongLong(token);
    if (PyErr_Occurred()) return nullptr;
    unwatch(number);
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {{"fileno", fileno, METH_NOARGS, "Readable when something rang."},
                         {"take", take, METH_NOARGS, "The tokens of what rang since the last time."},
                         {"forget", forget, METH_O, "Stop watching what this token stands for."},
                         {nullptr, nullptr, 0, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(create)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_methods, methods},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.Event", sizeof(EventObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

bool add_event(PyObject* module) {
    event_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return event_type && PyModule_AddObjectRef(module, "Event", reinterpret_cast<PyObject*>(event_type)) == 0;
}

}  // namespace ringmain::py
