// What every file of the binding needs: Python's stable ABI, errors, arguments, waiting without the GIL.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/bell.hpp"
#include "base/failure.hpp"
#include "python/guard.hpp"
#include "python/restore_thread.hpp"
#include "topic/topic_file.hpp"
#include "waiting/host.hpp"
#include "waiting/sleep.hpp"

namespace ringmain::py {

// Owns one reference to a Python object, or none.
class Ref {
    PyObject* object_ = nullptr;

  public:
    Ref() = default;
    explicit Ref(PyObject* owned) : object_(owned) {}
    Ref(Ref&& other) noexcept : object_(other.release()) {}
    Ref& operator=(Ref&& other) noexcept {
        PyObject* old = object_;  // dropped last: its destructor may run any code
        object_ = other.release();
        Py_XDECREF(old);
        return *this;
    }
    ~Ref() { Py_XDECREF(object_); }

    static Ref to(PyObject* borrowed) { return Ref(Py_XNewRef(borrowed)); }
    PyObject* get() const { return object_; }
    PyObject* new_ref() const { return Py_NewRef(object_); }
    PyObject* release() { return std::exchange(object_, nullptr); }
    explicit operator bool() const { return object_ != nullptr; }
};

// The exception that is being raised, set aside while other code runs.
class SavedError {
  public:
    PyObject *type, *value, *traceback;

    SavedError() { PyErr_Fetch(&type, &value, &traceback); }
    void normalize() { PyErr_NormalizeException(&type, &value, &traceback); }
    ~SavedError() { PyErr_Restore(type, value, traceback); }
    SavedError(const SavedError&) = delete;
    SavedError& operator=(const SavedError&) = delete;
};

// ringmain.errors.<name>(text), with errno where there is one, and the topic that it is about. Always returns nullptr.
PyObject* raise(const char* error_class, const std::string& text, int error = 0,
                const std::string& topic = {});
PyObject* raise(const Failure& failure, const std::string& topic = {});
// What ringmain.errors.<function> makes of the arguments, which are as those of Py_BuildValue: its text is written there.
PyObject* raise_made(const char* function, const char* format, ...);
PyObject* raise_corrupt(const std::string& topic);

// Is the exception that is being raised a ringmain.errors.<name>?
bool raised(const char* error_class);
// Is an exception raised that is no error, such as KeyboardInterrupt? It passes as it is, and no message is taken.
inline bool interrupted() { return PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception); }
// For code that cannot raise, such as a destructor: an error is not reported, but what is none, such as Ctrl-C, is raised as
// soon as Python code runs again.
void clear_or_raise_later();

// The object of a weak reference, if it still exists.
inline Ref live_target(const Ref& weak) {
    PyObject* target = weak ? PyWeakref_GetObject(weak.get()) : nullptr;
    return Ref::to(target == Py_None ? nullptr : target);
}

// Calls view.release(). It fails if the view has views of its own, which then stay valid.
inline void release_view(const Ref& view) {
    Ref done(PyObject_CallMethod(view.get(), "release", nullptr));
    if (!done) clear_or_raise_later();
}

// Appends a new object to the list; false if making either failed.
inline bool append(const Ref& list, Ref item) {
    return list && item && PyList_Append(list.get(), item.get()) == 0;
}

// Seconds, or None for no limit.
bool parse_timeout(PyObject* object, int64_t& timeout_ns);
Ref seconds(int64_t timeout_ns);  // the same for an error: a float, or None

// Up to four arguments of a fast call, by position or name. Missing ones stay nullptr.
bool parse_arguments(const char* function, PyObject* const* args, Py_ssize_t count, PyObject* names,
                     const char* const* expected, int required, PyObject** out, int out_count);

// A number of bytes or messages, 0 or more. A number above 2^64 - 1 counts as 2^64 - 1.
bool parse_count(const char* name, PyObject* object, uint64_t& count);
bool text_of(PyObject* str, std::string_view& out);  // UTF-8, valid as long as the object
// Of a kind as it was given: a str, or extension and kind together, a Said of src/ringmain/_extension.py. As above, and not too long.
bool said_of(PyObject* kind, std::string_view& out);

// How far behind the beginning of an exact `bytes` its data is: the same for all, and measured when the module is loaded,
// since the stable ABI has only a call for it, which each message would pay for.
extern size_t bytes_data_offset;
inline std::string_view view_of_bytes(PyObject* exact) {
    return {reinterpret_cast<const char*>(exact) + bytes_data_offset, static_cast<size_t>(Py_SIZE(exact))};
}

// A buffer to read from: exact `bytes` without the buffer protocol's cost, anything else through it.
class Bytes {
    Py_buffer buffer_;  // not cleared: eighty bytes a message that are rarely used
    bool acquired_ = false;

  public:
    const char* data = nullptr;
    Py_ssize_t size = 0;

    bool get(PyObject* object) {
        if (PyBytes_CheckExact(object)) {
            std::string_view bytes = view_of_bytes(object);
            data = bytes.data();
            size = static_cast<Py_ssize_t>(bytes.size());
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
    ~WithoutGil() { restore_thread(state_); }
};

// Copies from this size on are made without the GIL.
constexpr size_t kLargeCopyBytes = 64 * 1024;

inline Woken sleep_without_gil(Bell bell, int64_t timeout_ns) {
    WithoutGil unlocked;
    return sleep(bell, timeout_ns);
}

// Where the threads of an endpoint sleep, so that a thread that closes it can wake them. Used with the GIL.
class Sleepers {
    const uint32_t* word_ = nullptr;
    std::shared_ptr<const void> mapped_;  // what the word lies in
    int count_ = 0;

  public:
    void enter(const uint32_t* word, std::shared_ptr<const void> mapped) {
        word_ = word;
        mapped_ = std::move(mapped);
        ++count_;
    }
    void leave() {
        if (--count_ > 0) return;
        word_ = nullptr;
        mapped_.reset();
    }
    void wake() const {
        if (word_) change_and_wake(word_);
    }
};

// `closing`: it may have been closed before we came here. `mapped`: what the word lies in. `sleep` is called without the GIL.
template <class Sleep>
Woken sleep_until_closed(Sleepers& sleepers, const bool& closing, const uint32_t* word,
                         std::shared_ptr<const void> mapped, Sleep sleep) {
    if (closing) return Woken::interrupted;
    sleepers.enter(word, std::move(mapped));
    struct Leaves {
        Sleepers& sleepers;
        ~Leaves() { sleepers.leave(); }
    } leaves{sleepers};
    WithoutGil unlocked;
    return sleep();
}

// That an endpoint is being closed, until that is over: also if what closes it throws.
class Closing {
    bool* closing_;

  public:
    explicit Closing(bool& closing) : closing_(&closing) { closing = true; }
    ~Closing() { over(); }
    Closing(const Closing&) = delete;
    Closing& operator=(const Closing&) = delete;

    void over() {
        if (bool* closing = std::exchange(closing_, nullptr)) *closing = false;
    }
    // Closed from within a call of this very thread, which does the rest as it ends.
    PyObject* stays() {
        closing_ = nullptr;
        Py_RETURN_NONE;
    }
};

// The thread that is inside an endpoint, if any. A thread of the parent does not count in a forked child.
struct CallingThread {
    const void* thread = nullptr;
    uint32_t forked = 0;
    bool awaited = false;  // threads sleep on `left`
    uint32_t left = 0;     // counts how often one left whom others awaited

    static const void* here() { return __builtin_thread_pointer(); }
    bool inside() const { return thread && forked == forks.load(std::memory_order_relaxed); }
    bool is_us() const { return thread == here() && inside(); }
};

// Lets one thread at a time into an endpoint. The GIL is enough for calls that never release it. Calls that wait or
// copy much do release it, and another thread waits here meanwhile instead of seeing half-changed state. After entering,
// check the endpoint's state again: it may have been closed.
class OneAtATime {
    CallingThread& caller_;

    // False: raised, or too late. A signal handler or a decoder that used the endpoint it was called from would wait for
    // itself. A call that has no time waits for one that ends soon: a copy, and not a message.
    [[gnu::noinline]] bool wait(Deadline* deadline) {
        constexpr int64_t kEndsSoon_ns = 1'000'000;
        Deadline until(!deadline                     ? kForever
                       : deadline->timeout_ns() == 0 ? kEndsSoon_ns
                                                     : deadline->left_ns());
        while (caller_.inside()) {
            if (caller_.is_us()) {
                raise(
                    "InUse",
                    "this thread is in the middle of another call to the same endpoint: a signal handler or "
                    "decoder cannot use it");
                return false;
            }
            if (until.left_ns() == 0) {
                late = true;
                return false;
            }
            caller_.awaited = true;
            // A slice: a signal that comes just before the kernel puts us to sleep does not interrupt us.
            sleep_without_gil({&caller_.left, caller_.left}, std::min(kSlice_ns, until.left_ns()));
            if (PyErr_CheckSignals() != 0) return false;
        }
        return true;
    }

    // Wakes all: one alone might raise instead of entering, and the others would sleep on.
    [[gnu::noinline]] void wake_others() {
        caller_.awaited = false;
        change_and_wake(&caller_.left);
    }

  public:
    bool entered = false;
    bool late = false;  // not entered in time, and nothing is raised: the call says what its timeout means
    [[gnu::always_inline]] explicit OneAtATime(CallingThread& caller, Deadline* deadline = nullptr)
        : caller_(caller) {
        if (caller_.thread && !wait(deadline)) [[unlikely]]
            return;
        caller_.thread = CallingThread::here();
        caller_.forked = forks.load(std::memory_order_relaxed);
        entered = true;
    }
    ~OneAtATime() {
        if (!entered) return;
        caller_.thread = nullptr;
        if (caller_.awaited) [[unlikely]]
            wake_others();
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
// The same for objects that are made with a state of their own: tp_new, and tp_dealloc. None is ever without it: a subclass in
// Python may look at it in __del__.
template <class Object>
PyObject* create(PyTypeObject* type, PyObject*, PyObject*) {
    auto state = std::make_unique<std::remove_pointer_t<decltype(Object::state)>>();
    PyObject* self = allocate(type);
    if (self) reinterpret_cast<Object*>(self)->state = state.release();
    return self;
}
template <class Object>
void destroy(PyObject* self) {
    delete reinterpret_cast<Object*>(self)->state;
    deallocate(self);
}

// Makes a type and adds it to the module, under the last part of its name. nullptr: raised.
PyTypeObject* add_type(PyObject* module, PyType_Spec& spec);

PyObject* schema_of(const TopicFile& topic_file);  // as bytes

// The types, made once when the module is loaded.
extern PyTypeObject *publisher_type, *subscriber_type, *reservation_type, *lease_type, *batch_type,
    *event_type;
extern PyObject *message_class, *empty_str;
bool add_publisher(PyObject* module);
bool add_reservation(PyObject* module);
bool add_subscriber(PyObject* module);
bool add_lease(PyObject* module);
bool add_heap_buffer(PyObject* module);
bool add_batch(PyObject* module);
bool add_replay(PyObject* module);
bool add_event(PyObject* module);
bool add_wait(PyObject* module);
bool add_server(PyObject* module);
bool add_client(PyObject* module);
extern PyMethodDef inspect_methods[];

template <class T>
PyCFunction method(T function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace ringmain::py
