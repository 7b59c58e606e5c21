// What every file of the binding needs: Python's stable ABI, errors, arguments, waiting without the GIL.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>
#include <string_view>

#include "bell.hpp"
#include "failure.hpp"
#include "topic_file.hpp"

namespace ringmain::py {

// ringmain.errors.<name>(text), with errno where there is one. Always returns nullptr.
PyObject* raise(const char* error_class, const std::string& text, int error = 0);
PyObject* raise(const Failure& failure);

// Seconds, or None for ever.
bool parse_timeout(PyObject* object, int64_t& timeout_ns);
std::string seconds(int64_t ns);

// Up to four arguments of a fast call, by position or name. Missing ones stay nullptr.
bool parse_arguments(const char* function, PyObject* const* args, Py_ssize_t count, PyObject* names,
                     const char* const* expected, int required, PyObject** out, int out_count);

// A number of bytes or messages, 0 or more; more than any memory has counts as the most there can be.
bool parse_count(const char* name, PyObject* object, uint64_t& count);
bool text_of(PyObject* str, std::string_view& out);  // UTF-8, valid as long as the object

// A buffer to read from: exact `bytes` without the buffer protocol's cost, anything else through it.
class Bytes {
    Py_buffer buffer_;  // not cleared: eighty bytes a message that nobody looks at
    bool acquired_ = false;

  public:
    const char* data = nullptr;
    Py_ssize_t size = 0;

    bool get(PyObject* object) {
        if (PyBytes_CheckExact(object)) {
            data = PyBytes_AsString(object);
            size = PyBytes_Size(object);
            return true;
        }
        if (PyObject_GetBuffer(object, &buffer_, PyBUF_SIMPLE) != 0) return false;
        acquired_ = true;
        data = static_cast<const char*>(buffer_.buf);
        size = buffer_.len;
        return true;
    }
    Bytes() {}
    ~Bytes() {
        if (acquired_) PyBuffer_Release(&buffer_);
    }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;
};

class WithoutGil {
    PyThreadState* state_ = PyEval_SaveThread();

  public:
    ~WithoutGil() { PyEval_RestoreThread(state_); }
};

// Copies from this size on are made without the GIL.
constexpr size_t kLargeCopyBytes = 64 * 1024;

// A deadline that asks for the time only when it must.
class Deadline {
    int64_t timeout_ns_, at_ns_ = -1;

  public:
    explicit Deadline(int64_t timeout_ns) : timeout_ns_(timeout_ns) {}
    int64_t timeout_ns() const { return timeout_ns_; }
    int64_t left_ns() {
        if (timeout_ns_ == kForever || timeout_ns_ == 0) return timeout_ns_;
        int64_t now = monotonic_ns();
        if (at_ns_ < 0) at_ns_ = timeout_ns_ > kForever - now ? kForever : now + timeout_ns_;
        return at_ns_ > now ? at_ns_ - now : 0;
    }
};

inline Woken sleep_without_gil(Bell bell, int64_t timeout_ns) {
    WithoutGil unlocked;
    if (!bell.word) {  // nothing to sleep on: a directory without a bell
        usleep(static_cast<useconds_t>(timeout_ns / 1000));
        return Woken::timed_out;
    }
    return sleep_on(bell, timeout_ns);
}

// The thread that is inside an endpoint, if any. One that was there when we were forked is not here with us.
struct Occupant {
    const void* thread = nullptr;
    uint32_t forked = 0;

    static const void* here() { return __builtin_thread_pointer(); }
    bool inside() const { return thread && forked == forks.load(std::memory_order_relaxed); }
    bool is_us() const { return thread == here() && inside(); }
};

// One thread at a time inside an endpoint. The GIL alone would do for calls that never release it; those that wait or
// copy much do, and another thread that comes meanwhile waits here instead of meeting half-changed state. What was
// true of the endpoint before, such as that it is open, must be asked again after entering.
class OneAtATime {
    Occupant& occupant_;

    // False: raised. A signal handler or a decoder that comes back to the endpoint it was called from would wait for
    // itself.
    [[gnu::noinline]] bool wait() {
        while (occupant_.inside()) {
            if (occupant_.is_us()) {
                raise(
                    "InUse",
                    "this thread is in the middle of another call to the same endpoint: a signal handler or "
                    "decoder cannot use it");
                return false;
            }
            {
                WithoutGil unlocked;
                usleep(100);
            }
            if (PyErr_CheckSignals() != 0) return false;
        }
        return true;
    }

  public:
    bool entered = false;
    [[gnu::always_inline]] explicit OneAtATime(Occupant& occupant) : occupant_(occupant) {
        if (occupant_.thread && !wait()) [[unlikely]]
            return;
        occupant_ = {Occupant::here(), forks.load(std::memory_order_relaxed)};
        entered = true;
    }
    ~OneAtATime() {
        if (entered) occupant_.thread = nullptr;
    }
    OneAtATime(const OneAtATime&) = delete;
    OneAtATime& operator=(const OneAtATime&) = delete;
};

// A new object of a class that derives from one of ours, its fields zero.
inline PyObject* allocate(PyTypeObject* type) {
    return reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}
inline void deallocate(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

// The types, made once when the module is loaded.
extern PyTypeObject *publisher_type, *subscriber_type, *reservation_type, *lease_type, *batch_type,
    *event_type;
extern PyObject *message_class, *empty_str;
bool add_publisher(PyObject* module);
bool add_reservation(PyObject* module);
bool add_subscriber(PyObject* module);
bool add_lease(PyObject* module);
bool add_batch(PyObject* module);
bool add_event(PyObject* module);
bool add_wait(PyObject* module);
extern PyMethodDef inspect_methods[];

template <class T>
PyCFunction method(T function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace ringmain::py
