// ringmain._checksum: crc32(data, value=0), as zlib's, and faster. A module of its own, since recordings can be read
// on machines that have no rings. Where the processor cannot do it, importing fails, and zlib is used instead.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

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

int execute(PyObject*) {
    if (ringmain::has_fast_crc32()) return 0;
    PyErr_SetString(PyExc_ImportError, "this processor has no instructions for CRC-32; use zlib.crc32");
    return -1;
}

PyMethodDef kMethods[] = {
    {"crc32", checksum, METH_VARARGS,
     "crc32(data, value=0)\n--\n\nThe CRC-32 of data, as zlib.crc32 gives it."},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef_Slot kSlots[] = {{Py_mod_exec, reinterpret_cast<void*>(execute)}, {0, nullptr}};
PyModuleDef kModule = {
    PyModuleDef_HEAD_INIT, "ringmain._checksum", nullptr, 0, kMethods, kSlots, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__checksum() { return PyModuleDef_Init(&kModule); }
