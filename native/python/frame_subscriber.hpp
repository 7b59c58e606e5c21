// What FrameSubscriber and its frames share.
#pragma once

#include "frame_types.hpp"
#include "subscriber.hpp"

namespace ringmain::py {

struct FrameState {
    Counted<PoolReader> pool;  // keeps the participant and the mapping
    PyObject *layout = nullptr, *sender = nullptr, *kind = nullptr, *meta = nullptr;
    PyObject* meta_bytes = nullptr;
    Descriptor descriptor{};
    uint64_t seq = 0, lost = 0;
    int64_t time_ns = 0;
    Py_ssize_t exports = 0;
    bool open = true;
    bool leased = false;
};

struct FrameObject {
    PyObject_HEAD FrameState state;
};

// The Subscriber that an object receives with: the object itself, or that of a FrameSubscriber. Borrowed; nullptr: none.
PyObject* subscriber_in(PyObject* object);

FrameObject* new_frame();
// Ends the frame's block, whether it was entered or not.
void end_frame(PyObject* frame);
bool add_frame(PyObject* module);

}  // namespace ringmain::py
