// ringmain._ring.Event, as publishers and subscribers need to see it.
#pragma once

#include <memory>

#include "py.hpp"
#include "watcher.hpp"

namespace ringmain::py {

struct EventObject {
    PyObject_HEAD std::shared_ptr<Event>* event;
};

inline const std::shared_ptr<Event>& event_of(PyObject* object) {
    return *reinterpret_cast<EventObject*>(object)->event;
}

}  // namespace ringmain::py
