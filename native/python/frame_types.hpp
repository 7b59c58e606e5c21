// What the two halves of the frames' binding share.
#pragma once

#include "frames.hpp"
#include "py.hpp"

namespace ringmain::py {

// Set once by ringmain.frames: the classes of frames, and how `meta` becomes bytes and back.
extern PyTypeObject *frame_class, *draft_class;
extern PyObject *encode_meta, *decode_meta;

bool add_frame_publisher(PyObject* module);
bool add_frame_subscriber(PyObject* module);
bool add_frame_inspection(PyObject* module);

// A new object of a class that derives from one of ours, its fields zero.
inline PyObject* allocate(PyTypeObject* type) {
    return reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}
inline void deallocate(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

}  // namespace ringmain::py
