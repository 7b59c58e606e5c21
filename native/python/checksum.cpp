// ringmain._checksum: what recordings do to every byte or row: crc32(data, value=0), as zlib's and faster, and the columns
// of times. A module of its own, since recordings can be read on machines that have no rings. Where the processor cannot do
// it, importing fails, and zlib and Arrow are used instead.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstdint>

#include "crc32.hpp"

namespace {

constexpr Py_ssize_t kLargeBytes = 64 * 1024;  // from here on without the GIL

PyObject* checksum(PyObject*, PyObject* args) {
    Py_buffer data;
    unsigned int value = 0;
    if (!PyArg_ParseTuple(args, "y*|I:crc32", &data, &value)) return nullptr;
    if (data.len >= kLargeBytes) {
        PyThreadState* thread = PyEval_SaveThread();
        value = ringmain::crc32(data.buf, static_cast<size_t>(data.len), value);
        PyEval_RestoreThread(thread);
    } else {
        value = ringmain::crc32(data.buf, static_cast<size_t>(data.len), value);
    }
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(value);
}

// A buffer argument, given back at the end of the call.
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

// Microseconds and the nanoseconds beyond them, rounded down also before 1970.
PyObject* split_times(PyObject*, PyObject* args) {
    View times, micros, nanos;
    Py_ssize_t first, rows;
    if (!PyArg_ParseTuple(args, "y*nnw*w*:split_times", &times.view, &first, &rows, &micros.view,
                          &nanos.view))
        return nullptr;
    if (rows < 1 || first < 0 || !times.has<int64_t>(first + rows) || !micros.has<int64_t>(rows) ||
        !nanos.has<int16_t>(rows)) {
        PyErr_SetString(PyExc_ValueError, "split_times: at least one row, and aligned buffers for all");
        return nullptr;
    }
    const int64_t* from = times.as<int64_t>() + first;
    int64_t *to = micros.as<int64_t>(), least = from[0], greatest = from[0];
    int16_t* rest = nanos.as<int16_t>();
    for (Py_ssize_t i = 0; i < rows; ++i) {
        int64_t time = from[i], whole = time / 1000;
        whole -= time < whole * 1000;
        to[i] = whole;
        rest[i] = static_cast<int16_t>(time - whole * 1000);
        least = time < least ? time : least;
        greatest = time > greatest ? time : greatest;
    }
    return Py_BuildValue("LL", static_cast<long long>(least), static_cast<long long>(greatest));
}

// The same number in every row.
PyObject* fill(PyObject*, PyObject* args) {
    View to;
    Py_ssize_t first, rows;
    long long value;
    if (!PyArg_ParseTuple(args, "w*nnL:fill", &to.view, &first, &rows, &value)) return nullptr;
    if (rows < 0 || first < 0 || !to.has<int64_t>(first + rows)) {
        PyErr_SetString(PyExc_ValueError, "fill: an aligned buffer for all rows");
        return nullptr;
    }
    std::fill_n(to.as<int64_t>() + first, rows, static_cast<int64_t>(value));
    Py_RETURN_NONE;
}

int execute(PyObject*) {
    if (ringmain::has_fast_crc32()) return 0;
    PyErr_SetString(PyExc_ImportError, "this processor has no instructions for CRC-32; use zlib.crc32");
    return -1;
}

PyMethodDef kMethods[] = {
    {"crc32", checksum, METH_VARARGS,
     "crc32(data, value=0)\n--\n\nThe CRC-32 of data, as zlib.crc32 gives it."},
    {"split_times", split_times, METH_VARARGS,
     "split_times(times, first, rows, micros, nanos)\n--\n\nFills int64 microseconds and int16 nanoseconds "
     "from int64 "
     "nanoseconds; returns the least and the greatest."},
    {"fill", fill, METH_VARARGS, "fill(to, first, rows, value)\n--\n\nThe same int64 in all rows."},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef_Slot kSlots[] = {{Py_mod_exec, reinterpret_cast<void*>(execute)}, {0, nullptr}};
PyModuleDef kModule = {
    PyModuleDef_HEAD_INIT, "ringmain._checksum", nullptr, 0, kMethods, kSlots, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__checksum() { return PyModuleDef_Init(&kModule); }
