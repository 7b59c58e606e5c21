// ringmain._recording.Spool: the Python type of spool.hpp. Invariant: the buffers of a job stay alive until it is finished.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <atomic>
#include <cerrno>
#include <deque>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <pthread.h>

#include "python/recording.hpp"
#include "python/restore_thread.hpp"
#include "recorder/spool.hpp"

namespace {

// How many forks lie between this process and the one that loaded the module. Pids do not tell a child from its parent:
// in a new pid namespace the child of pid 1 is pid 1.
std::atomic<uint32_t> forks{0};
[[maybe_unused]] const int counted = pthread_atfork(nullptr, nullptr, [] { ++forks; });

// What a job reads from, until it is finished.
struct Put {
    uint64_t number = 0;
    std::vector<Py_buffer> pieces;

    Put() = default;
    Put(Put&& other) noexcept : number(other.number), pieces(std::exchange(other.pieces, {})) {}
    ~Put() {
        for (Py_buffer& piece : pieces) PyBuffer_Release(&piece);
    }
};

struct State {
    ringmain::Spool spool;
    std::deque<Put> pending;
    uint32_t forks_before = forks;

    void release_finished() {
        uint64_t finished = spool.finished();
        while (!pending.empty() && pending.front().number <= finished) {
            Put put = std::move(pending.front());  // its release may run arbitrary Python code
            pending.pop_front();
        }
    }
};

struct SpoolObject {
    PyObject_HEAD State* state;
};

State& state_of(PyObject* self) { return *reinterpret_cast<SpoolObject*>(self)->state; }

// A forked child has no thread: waiting for one would never end.
bool is_forked(const State& s) { return s.forks_before != forks; }

PyObject* fail(int error) {
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

struct Drop {
    void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Owned = std::unique_ptr<PyObject, Drop>;

PyObject* put(PyObject* self, PyObject* args) {
    int fd;
    PyObject* sequence;
    long long ahead = 0;
    if (!PyArg_ParseTuple(args, "iO|L:put", &fd, &sequence, &ahead)) return nullptr;
    State& s = state_of(self);
    if (is_forked(s)) return fail(ESRCH);
    Owned list(PySequence_List(sequence));
    if (!list) return nullptr;
    auto count = static_cast<size_t>(PyList_Size(list.get()));
    Put kept;
    ringmain::Spool::Job job{fd, {}, ahead};
    kept.pieces.reserve(count);
    job.pieces.reserve(count);
    for (size_t i = 0; i < count; ++i) {
        Py_buffer piece;
        PyObject* item = PyList_GetItem(list.get(), static_cast<Py_ssize_t>(i));
        if (!item || PyObject_GetBuffer(item, &piece, PyBUF_SIMPLE) != 0) return nullptr;
        kept.pieces.push_back(piece);
        job.pieces.push_back({piece.buf, static_cast<size_t>(piece.len)});
    }
    if (s.spool.error() != 0) return fail(s.spool.error());
    // Listed first, with a number that no job reaches: what is being written must stay, and later nothing may throw.
    s.pending.push_back(std::move(kept));
    Put& listed = s.pending.back();
    listed.number = UINT64_MAX;
    PyThreadState* thread = PyEval_SaveThread();
    uint64_t number = 0;
    try {
        number = s.spool.put(std::move(job));
    } catch (const std::bad_alloc&) {
    }
    ringmain::py::restore_thread(thread);
    if (number == 0) {
        Put refused = std::move(listed);
        s.pending.pop_back();
        return PyErr_NoMemory();
    }
    listed.number = number;
    s.release_finished();
    if (s.spool.error() != 0) return fail(s.spool.error());
    return PyLong_FromUnsignedLongLong(number);
}

PyObject* wait(PyObject* self, PyObject*) {
    State& s = state_of(self);
    if (is_forked(s)) return fail(ESRCH);
    PyThreadState* thread = PyEval_SaveThread();
    int error = s.spool.wait();
    ringmain::py::restore_thread(thread);
    s.release_finished();
    if (error != 0) return fail(error);
    Py_RETURN_NONE;
}

PyObject* get_written(PyObject* self, void*) {
    State& s = state_of(self);
    if (is_forked(s)) return PyLong_FromLong(0);  // the mutex may have been locked at the fork, for good
    uint64_t written = s.spool.written();
    s.release_finished();
    return PyLong_FromUnsignedLongLong(written);
}

PyObject* get_failed(PyObject* self, void*) {
    State& s = state_of(self);
    return PyBool_FromLong(!is_forked(s) && s.spool.error() != 0);
}

PyObject* create(PyTypeObject* type, PyObject*, PyObject*) {
    auto alloc = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
    Owned self(alloc(type, 0));
    if (self) reinterpret_cast<SpoolObject*>(self.get())->state = new State;
    return self.release();
}

void destroy(PyObject* self) {
    State* s = reinterpret_cast<SpoolObject*>(self)->state;
    if (s && !is_forked(*s)) {
        PyThreadState* thread = PyEval_SaveThread();
        s->spool.close();
        ringmain::py::restore_thread(thread);
        s->release_finished();
        delete s;
    }
    PyTypeObject* type = Py_TYPE(self);
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"put", entry<put>, METH_VARARGS,
     "put(fd, pieces, ahead=0)\n--\n\nWrite the pieces, in order; returns the job's number. Blocks while two "
     "jobs wait. Raises the error of an earlier job, after which no job is taken."},
    {"wait", entry<wait>, METH_NOARGS,
     "wait()\n--\n\nWait until all jobs are written. Raises the error of a job that failed."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef attributes[] = {
    {"written", entry<get_written>, nullptr, "The number of the last job that is in its file.", nullptr},
    {"failed", entry<get_failed>, nullptr, "Has a job failed? wait() raises its error.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(entry<create>)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {Py_tp_doc, const_cast<char*>("Writes to files in a thread of its own. Use from one thread.")},
    {0, nullptr}};
PyType_Spec spec = {"ringmain._recording.Spool", sizeof(SpoolObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

bool add_spool(PyObject* module) {
    PyObject* type = PyType_FromSpec(&spec);
    bool added = type && PyModule_AddObjectRef(module, "Spool", type) == 0;
    Py_XDECREF(type);
    return added;
}
