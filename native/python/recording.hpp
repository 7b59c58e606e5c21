// What the files of ringmain._recording share.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

#include "python/guard.hpp"

using ringmain::py::entry;

constexpr Py_ssize_t kMaxRows = PY_SSIZE_T_MAX / 32;  // so that no sum or product of row counts overflows

// A buffer argument, released at the end of the call.
struct View {
    Py_buffer view{};
    ~View() { PyBuffer_Release(&view); }
    template <class T>
    bool has(Py_ssize_t count) const {
        return view.len >= count * static_cast<Py_ssize_t>(sizeof(T)) &&
               reinterpret_cast<uintptr_t>(view.buf) % alignof(T) == 0;
    }
    template <class T>
    T* as() const {
        return static_cast<T*>(view.buf);
    }
};

bool add_spool(PyObject* module);

// decode_messages(plan, offsets, data, first, rows): the messages of `rows` payloads as columns. Returns ([(rows, [buffer,
// ...]), ...], [row, ...]): every column in the plan's order with its buffers as Arrow lays them out, and the refused rows.
PyObject* decode_messages(PyObject* module, PyObject* args);
