// ringmain._recording: what recordings do to every byte or row: crc32(data, value=0), as zlib's and faster, where the
// processor can; the columns that are computed; and writing in a thread of its own. A module by itself, since recordings
// can be read on machines that have no rings.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstdint>

#include "crc32.hpp"
#include "spool_type.hpp"

namespace {

constexpr Py_ssize_t kLargeBytes = 64 * 1024;      // from here on without the GIL
constexpr Py_ssize_t kMost = PY_SSIZE_T_MAX / 32;  // rows, so that no sum or product of them overflows

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

// derive(times, offsets, lost, first, rows, micros, nanos, sizes): of each row the microseconds and the nanoseconds beyond
// them, rounded down also before 1970, and the bytes of its payload. Returns the least time, the greatest, and all that
// was lost.
PyObject* derive(PyObject*, PyObject* args) {
    View times, offsets, lost, micros, nanos, sizes;
    Py_ssize_t first, rows;
    if (!PyArg_ParseTuple(args, "y*y*y*nnw*w*w*:derive", &times.view, &offsets.view, &lost.view, &first,
                          &rows, &micros.view, &nanos.view, &sizes.view))
        return nullptr;
    if (rows < 1 || first < 0 || rows > kMost || first > kMost || !times.has<int64_t>(first + rows) ||
        !offsets.has<int32_t>(first + rows + 1) || !lost.has<uint64_t>(first + rows) ||
        !micros.has<int64_t>(rows) || !nanos.has<int16_t>(rows) || !sizes.has<int32_t>(rows)) {
        PyErr_SetString(PyExc_ValueError, "derive: at least one row, and aligned buffers for all");
        return nullptr;
    }
    const int64_t* from = times.as<int64_t>() + first;
    const int32_t* ends = offsets.as<int32_t>() + first;
    const uint64_t* missed = lost.as<uint64_t>() + first;
    int64_t *to = micros.as<int64_t>(), least = from[0], greatest = from[0];
    int16_t* rest = nanos.as<int16_t>();
    int32_t* size = sizes.as<int32_t>();
    uint64_t sum = 0;
    for (Py_ssize_t i = 0; i < rows; ++i) {
        int64_t time = from[i], below = time % 1000;
        if (below < 0) below += 1000;
        to[i] = time / 1000 - (time < 0 && below != 0);
        rest[i] = static_cast<int16_t>(below);
        least = std::min(least, time);
        greatest = std::max(greatest, time);
        size[i] = ends[i + 1] - ends[i];
        sum += missed[i];
    }
    return Py_BuildValue("LLK", static_cast<long long>(least), static_cast<long long>(greatest),
                         static_cast<unsigned long long>(sum));
}

// The same number in every row.
PyObject* fill(PyObject*, PyObject* args) {
    View to;
    Py_ssize_t first, rows;
    long long value;
    if (!PyArg_ParseTuple(args, "w*nnL:fill", &to.view, &first, &rows, &value)) return nullptr;
    if (rows < 0 || first < 0 || rows > kMost || first > kMost || !to.has<int64_t>(first + rows)) {
        PyErr_SetString(PyExc_ValueError, "fill: an aligned buffer for all rows");
        return nullptr;
    }
    std::fill_n(to.as<int64_t>() + first, rows, static_cast<int64_t>(value));
    Py_RETURN_NONE;
}

PyMethodDef kChecksum[] = {{"crc32", checksum, METH_VARARGS,
                            "crc32(data, value=0)\n--\n\nThe CRC-32 of data, as zlib.crc32 gives it."},
                           {nullptr, nullptr, 0, nullptr}};

int execute(PyObject* module) {
    if (!add_spool(module)) return -1;
    return ringmain::has_fast_crc32() ? PyModule_AddFunctions(module, kChecksum) : 0;
}

PyMethodDef kMethods[] = {
    {"derive", derive, METH_VARARGS,
     "derive(times, offsets, lost, first, rows, micros, nanos, sizes)\n--\n\nFills the last three from the "
     "first; "
     "returns the least time, the greatest, and the sum of lost."},
    {"fill", fill, METH_VARARGS, "fill(to, first, rows, value)\n--\n\nThe same int64 in all rows."},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef_Slot kSlots[] = {{Py_mod_exec, reinterpret_cast<void*>(execute)}, {0, nullptr}};
PyModuleDef kModule = {
    PyModuleDef_HEAD_INIT, "ringmain._recording", nullptr, 0, kMethods, kSlots, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__recording() { return PyModuleDef_Init(&kModule); }
