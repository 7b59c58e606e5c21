// The object that all views, arrays and tensors of a buffer refer to. Owns this invariant: memory that was given out is
// held for as long as its keeper exists.
//
// Counting Py_buffers is not enough: numpy.ndarray(buffer=...) and torch.frombuffer release theirs at once, and go on
// using the memory. But each keeps a reference: torch to `Py_buffer.obj`, numpy to the object that it was given, or below
// a memoryview to the object that this shows. So `Py_buffer.obj` is always the keeper. Two cases remain. numpy was given
// our own object: see keeps_object(). torch was given a memoryview that we would release: see torch_may_use_views().
#pragma once

#include "python/spares.hpp"

namespace ringmain::py {

// Does a request with these flags come from a library that will refer to the object it asked, and hold no buffer?
// numpy.ndarray(buffer=...) asks for any contiguous memory, first writable; msgspec for C order without strides. All
// others that we know hold the buffer, or refer to `Py_buffer.obj`.
inline bool keeps_object(int flags) {
    constexpr int kDetails = PyBUF_ND | PyBUF_STRIDES | PyBUF_FORMAT;
    return (flags & kDetails) == PyBUF_ND ||
           ((flags & kDetails) == PyBUF_STRIDES && (flags & PyBUF_WRITABLE) == PyBUF_WRITABLE);
}

// For memory that is written for someone else: whether anything uses it must be known, so such requests are refused.
class BareRequests {
    bool refused_numpy_ = false;  // it asks again, only for reading, as others do who hold the buffer

  public:
    // True: raised.
    bool refuse(int flags) {
        constexpr int kDetails = PyBUF_STRIDES | PyBUF_FORMAT | PyBUF_WRITABLE;
        bool asks_again = std::exchange(refused_numpy_, false) && (flags & kDetails) == PyBUF_STRIDES;
        if (!keeps_object(flags) && !asks_again) return false;
        refused_numpy_ = (flags & PyBUF_WRITABLE) != 0;
        PyErr_SetString(PyExc_BufferError,
                        "numpy.ndarray(buffer=...) does not say when it no longer uses the memory: use "
                        "numpy.frombuffer(...), or give it a memoryview");
        return true;
    }
};

// A memoryview in a variable is released at the end of its block, so that it neither blocks a writer nor stays usable.
// torch.frombuffer refers to a memoryview in the same way as a variable does: where there is torch, it stays.
inline bool torch_may_use_views() {
    Ref name(PyUnicode_FromString("torch"));
    Ref torch(name ? PyImport_GetModule(name.get()) : nullptr);
    if (!torch) PyErr_Clear();
    return torch && torch.get() != Py_None;
}

// A reference to a keeper, or none. `Hold` is what the memory needs: its destructor gives the memory back.
template <class Hold>
class Keeper {
    struct State {
        Hold hold;
        Ref watch;  // see release()
    };
    struct Object {
        PyObject_HEAD State state;
    };
    static inline PyTypeObject* type;
    static inline Spares<Object> spares;
    Ref object_;

    static State& state_of(PyObject* self) { return reinterpret_cast<Object*>(self)->state; }
    static void destroy(PyObject* self) { spares.drop(self); }
    static PyObject* end_watch(PyObject* self, PyObject*, PyObject*) {
        state_of(self).watch = Ref();
        Py_RETURN_NONE;
    }

  public:
    // Makes the type; false: raised.
    static bool add_type(const char* name) {
        PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                               {Py_tp_call, reinterpret_cast<void*>(entry<end_watch>)},
                               {Py_tp_doc, const_cast<char*>("Holds memory while arrays and views show it.")},
                               {0, nullptr}};
        PyType_Spec spec = {name, sizeof(Object), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                            slots};
        type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
        return type != nullptr;
    }

    // A new keeper, with an empty hold; false: raised.
    bool make() {
        object_ = Ref(reinterpret_cast<PyObject*>(spares.make(type)));
        return bool(*this);
    }
    explicit operator bool() const { return bool(object_); }
    Hold& hold() const { return state_of(object_.get()).hold; }
    // Does anything else refer to it: a view, an array, a tensor?
    bool in_use() const { return object_ && Py_REFCNT(object_.get()) > 1; }
    void drop() { object_ = Ref(); }

    int fill(Py_buffer* view, const void* data, uint64_t size, bool readonly, int flags) const {
        return PyBuffer_FillInfo(view, object_.get(), const_cast<void*>(data), static_cast<Py_ssize_t>(size),
                                 readonly, flags);
    }

    // Releases a memoryview, which raises from now on. This keeper exists until the memoryview is deleted, because other
    // libraries may refer to it as torch does: what they then show is no longer the message, but it is mapped.
    void release(const Ref& view) {
        State& state = state_of(object_.get());
        state.watch = Ref(PyWeakref_NewRef(view.get(), object_.get()));
        if (!state.watch) PyErr_Clear();
        release_view(view);
    }
};

}  // namespace ringmain::py
