// ringmain._ring.Event, as publishers and subscribers need to see it.
#pragma once

#include <memory>

#include "python/py.hpp"
#include "waiting/watcher.hpp"

namespace ringmain::py {

struct EventObject {
    PyObject_HEAD std::shared_ptr<Event>* event;
};

inline bool check_event(PyObject* object) {
    if (PyObject_TypeCheck(object, event_type)) return true;
    PyErr_SetString(PyExc_TypeError, "arm() takes an Event");
    return false;
}

inline const std::shared_ptr<Event>& event_of(PyObject* object) {
    return *reinterpret_cast<EventObject*>(object)->event;
}

}  // namespace ringmain::py
