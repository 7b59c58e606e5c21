// ringmain._recording: the part of recording that runs for every row or byte: the computed columns (derive, fill),
// decoding (columns.cpp), and Spool, which writes to files in a thread of its own (spool.hpp).
// Invariant: no call reads or writes outside the buffers it is given; rows are counted before any is touched.
#include "python/recording.hpp"

#include <algorithm>

namespace {

// derive(times, offsets, lost, first, rows, micros, nanos, sizes): fills, for each row, its time in microseconds, the
// nanoseconds that this drops (rounded down, also before 1970), and the bytes of its payload. Returns the least time, the
// greatest time, and the sum of lost.
PyObject* derive(PyObject*, PyObject* args) {
    View times, offsets, lost, micros, nanos, sizes;
    Py_ssize_t first, rows;
    if (!PyArg_ParseTuple(args, "y*y*y*nnw*w*w*:derive", &times.view, &offsets.view, &lost.view, &first,
                          &rows, &micros.view, &nanos.view, &sizes.view))
        return nullptr;
    if (rows < 1 || first < 0 || rows > kMaxRows || first > kMaxRows || !times.has<int64_t>(first + rows) ||
        !offsets.has<int32_t>(first + rows + 1) || !lost.has<uint64_t>(first + rows) ||
        !micros.has<int64_t>(rows) || !nanos.has<int16_t>(rows) || !sizes.has<int32_t>(rows)) {
        PyErr_SetString(PyExc_ValueError,
                        "derive: needs at least one row, and aligned buffers that hold all rows");
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

// fill(to, first, rows, value): writes the same number to every row.
PyObject* fill(PyObject*, PyObject* args) {
    View to;
    Py_ssize_t first, rows;
    long long value;
    if (!PyArg_ParseTuple(args, "w*nnL:fill", &to.view, &first, &rows, &value)) return nullptr;
    if (rows < 0 || first < 0 || rows > kMaxRows || first > kMaxRows || !to.has<int64_t>(first + rows)) {
        PyErr_SetString(PyExc_ValueError, "fill: needs an aligned buffer that holds all rows");
        return nullptr;
    }
    std::fill_n(to.as<int64_t>() + first, rows, static_cast<int64_t>(value));
    Py_RETURN_NONE;
}

int execute(PyObject* module) { return add_spool(module) ? 0 : -1; }

PyMethodDef kMethods[] = {
    {"derive", entry<derive>, METH_VARARGS,
     "derive(times, offsets, lost, first, rows, micros, nanos, sizes)\n--\n\nFills the last three from the "
     "first; "
     "returns the least time, the greatest, and the sum of lost."},
    {"fill", entry<fill>, METH_VARARGS, "fill(to, first, rows, value)\n--\n\nThe same int64 in all rows."},
    {"decode_messages", entry<decode_messages>, METH_VARARGS,
     "decode_messages(plan, offsets, data, first, rows)\n--\n\nMessagePack as Arrow's buffers, and the "
     "refused rows."},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef_Slot kSlots[] = {{Py_mod_exec, reinterpret_cast<void*>(entry<execute>)}, {0, nullptr}};
PyModuleDef kModule = {
    PyModuleDef_HEAD_INIT, "ringmain._recording", nullptr, 0, kMethods, kSlots, nullptr, nullptr, nullptr};

}  // namespace

void ringmain::py::raise_caught() noexcept {
    try {
        throw;
    } catch (const ringmain::Failure& failure) {
        PyErr_SetString(PyExc_RuntimeError, failure.text.c_str());
    } catch (const std::exception& thrown) {
        raise_standard(thrown);
    }
}

PyMODINIT_FUNC PyInit__recording() { return PyModuleDef_Init(&kModule); }
