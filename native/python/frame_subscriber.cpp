// ringmain._ring.FrameSubscriber: reads descriptors with an ordinary Subscriber and returns the frames they refer to.
// Invariant: every descriptor it reads becomes a frame or is counted as lost.
#include "python/frame_subscriber.hpp"

#include <new>
#include <utility>

#include "frames/frame_ends.hpp"

namespace ringmain::py {

namespace {

// The frame that a loop is using. Its block ends when the loop asks for the next one.
class LastFrame {
    Ref frame_;
    const void* thread_ = nullptr;

  public:
    // A frame that another thread is using is left to that thread: it ends when it is dropped.
    void end() {
        if (frame_ && thread_ == CallingThread::here()) end_frame(frame_.get());
        frame_ = Ref();
    }
    void set(PyObject* frame) {
        frame_ = Ref::to(frame);
        thread_ = CallingThread::here();
    }
};

struct FrameSubscriberState {
    PyObject* subscriber = nullptr;  // of the descriptors; set by _open, kept until the end
    Counted<PoolReader> pool;        // of the newest frame
    PyObject* layout = nullptr;      // of that pool
    LastFrame last;                  // of next(subscriber)
    FrameReader reader;
};

struct FrameSubscriberObject {
    PyObject_HEAD FrameSubscriberState* state;
};

PyTypeObject* frame_subscriber_type;

FrameSubscriberState& frames_of(PyObject* self) {
    return *reinterpret_cast<FrameSubscriberObject*>(self)->state;
}

// The state of the subscriber of the descriptors; nullptr: raised.
SubscriberState* descriptors_of(const FrameSubscriberState& f) {
    if (f.subscriber) [[likely]]
        return reinterpret_cast<SubscriberObject*>(f.subscriber)->state;
    raise("Closed", "the frame subscriber was never opened");
    return nullptr;
}

// ready: the pool of this epoch is mapped. stopped: raised, or closed.
Outcome attach_pool(PyObject* self, SubscriberState& s, FrameSubscriberState& f, uint64_t epoch,
                    SubscriberHost& host) {
    if (f.pool && f.pool->pool().epoch() == epoch && !f.pool->forked()) [[likely]]
        return Outcome::ready;
    std::unique_ptr<PoolReader> pool;
    if (Outcome how = open_pool_of(s, epoch, pool, host); how != Outcome::ready) return how;
    std::string schema = pool->pool().topic_file().schema();
    // The old pool stays mapped during the call, which may unregister its memory.
    Counted<PoolReader> before = std::exchange(f.pool, Counted(std::move(pool)));
    PyObject* layout =
        PyObject_CallMethod(self, "_pool_attached", "y#K", schema.data(),
                            static_cast<Py_ssize_t>(schema.size()), f.pool->pool().buffer_bytes());
    if (!layout) {
        f.pool = std::move(before);
        return Outcome::stopped;
    }
    Py_XDECREF(f.layout);
    f.layout = layout;
    return Outcome::ready;
}

// Takes ownership of meta_bytes.
PyObject* make_frame(SubscriberState& s, FrameSubscriberState& f, const View& view,
                     const Descriptor& descriptor, PyObject* meta_bytes) {
    Ref object(reinterpret_cast<PyObject*>(new_frame()));
    if (!object) {
        f.pool->release(descriptor.buffer);
        Py_XDECREF(meta_bytes);
        return nullptr;
    }
    FrameState& frame = reinterpret_cast<FrameObject*>(object.get())->state;
    frame.pool = f.pool;
    frame.leased = true;
    frame.descriptor = descriptor;
    frame.meta_bytes = meta_bytes;
    frame.layout = Py_NewRef(f.layout);
    frame.sender = sender_of(s, view);
    frame.kind = kind_of(s, view);
    frame.seq = view.seq;
    frame.time_ns = view.time_ns;
    return frame.sender && frame.kind ? object.release() : nullptr;
}

// The next frame; nullptr without an exception: time is up.
PyObject* receive(PyObject* self, FrameSubscriberState& f, SubscriberState& s, Deadline& deadline) {
    SubscriberHost host(f.subscriber, s);
    auto attach = [&](uint64_t epoch, PoolReader*& pool) {
        Outcome how = attach_pool(self, s, f, epoch, host);
        pool = f.pool.get();
        return how;
    };
    for (;;) {
        FoundFrame found;
        if (in_python(s, [&] { return f.reader.next(s, deadline, found, attach, host); }) != 1)
            return nullptr;
        PyObject* meta = nullptr;
        if (size_t meta_bytes = found.view.size - sizeof(Descriptor)) {
            meta = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(meta_bytes));
            if (meta)
                copy_out(PyBytes_AsString(meta), found.view.payload() + sizeof(Descriptor), meta_bytes);
            else
                return f.pool->release(found.descriptor.buffer), nullptr;
        }
        PyObject* frame = make_frame(s, f, found.view, found.descriptor, meta);
        if (!frame) return nullptr;
        if (FrameReader::take(s, found, reinterpret_cast<FrameObject*>(frame)->state.lost)) [[likely]]
            return frame;
        Py_DECREF(frame);  // and its buffer is given back
    }
}

// One call of recv() or try_recv(). nullptr without an exception: time is up.
PyObject* receive_one(FrameSubscriberState& f, PyObject* self, SubscriberState& s, Deadline& deadline) {
    Receiving turn(f.subscriber, s);
    if (!turn.entered() || !usable_subscriber(f.subscriber)) return nullptr;
    return receive(self, f, s, deadline);
}

PyObject* recv(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    FrameSubscriberState& f = frames_of(self);
    SubscriberState* s = descriptors_of(f);
    int64_t timeout_ns = kForever;
    if (!s || !parse_only_timeout("recv", args, count, names, timeout_ns)) return nullptr;
    Deadline deadline(timeout_ns);
    PyObject* frame = receive_one(f, self, *s, deadline);
    if (!frame && !PyErr_Occurred()) raise_timeout(*s, deadline);
    return frame;
}

PyObject* try_recv(PyObject* self, PyObject*) {
    FrameSubscriberState& f = frames_of(self);
    SubscriberState* s = descriptors_of(f);
    if (!s) return nullptr;
    Deadline deadline(0);
    PyObject* frame = receive_one(f, self, *s, deadline);
    if (frame || PyErr_Occurred()) return frame;
    Py_RETURN_NONE;
}

PyObject* next_in_loop(PyObject* self, LastFrame& last) {
    FrameSubscriberState& f = frames_of(self);
    SubscriberState* s = descriptors_of(f);
    if (!s) return nullptr;
    last.end();
    Receiving turn(f.subscriber, *s);
    if (!turn.entered() || s->closed || s->closing) return nullptr;
    Deadline deadline(kForever);
    PyObject* frame = receive(self, f, *s, deadline);
    if (frame) last.set(frame);
    if (!frame && s->closed) clear_if_closed();  // closed while it waited: this ends a loop over frames
    return frame;
}

PyObject* next(PyObject* self) { return next_in_loop(self, frames_of(self).last); }

// What `for frame in subscriber` runs: each loop has its own, so several threads can loop over one subscriber.
struct LoopState {
    Ref subscriber;
    LastFrame last;
};
struct LoopObject {
    PyObject_HEAD LoopState* state;
};
PyTypeObject* loop_type;

LoopState& loop_of(PyObject* self) { return *reinterpret_cast<LoopObject*>(self)->state; }

PyObject* iterate(PyObject* self) {
    frames_of(self).last.end();
    Ref loop(create<LoopObject>(loop_type, nullptr, nullptr));
    if (loop) loop_of(loop.get()).subscriber = Ref::to(self);
    return loop.release();
}

PyObject* next_of_loop(PyObject* self) {
    return next_in_loop(loop_of(self).subscriber.get(), loop_of(self).last);
}

void destroy_loop(PyObject* self) {
    loop_of(self).last.end();
    py::destroy<LoopObject>(self);
}

PyType_Slot loop_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy_loop)},
                            {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
                            {Py_tp_iternext, reinterpret_cast<void*>(entry<next_of_loop>)},
                            {0, nullptr}};
PyType_Spec loop_spec = {"ringmain._ring.FrameLoop", sizeof(LoopObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, loop_slots};

// open(subscriber): to be called before the subscriber joins its topic.
PyObject* open(PyObject* self, PyObject* subscriber) {
    if (!PyObject_TypeCheck(subscriber, subscriber_type)) {
        PyErr_SetString(PyExc_TypeError, "_open() takes a Subscriber");
        return nullptr;
    }
    Py_XDECREF(std::exchange(frames_of(self).subscriber, Py_NewRef(subscriber)));
    Py_RETURN_NONE;
}

// attached(): to be called whenever the subscriber has joined its topic.
PyObject* attached(PyObject* self, PyObject*) {
    FrameSubscriberState& f = frames_of(self);
    SubscriberState* s = descriptors_of(f);
    if (!s) return nullptr;
    f.reader.joined(*s);
    Py_RETURN_NONE;
}

PyObject* leave(PyObject* self, PyObject*) {
    FrameSubscriberState& f = frames_of(self);
    f.last.end();
    f.pool.reset();
    Py_RETURN_NONE;
}

// Where the buffers are mapped in this process: (address, bytes), or None before the first frame.
PyObject* memory(PyObject* self, PyObject*) { return mapped(frames_of(self).pool); }

// leave_pools(): called when the process ends, so that arrays that still exist do not keep a pool's file.
PyObject* leave_pools(PyObject*, PyObject*) {
    leave_all_pools();
    Py_RETURN_NONE;
}

void destroy(PyObject* self) {
    FrameSubscriberState& f = frames_of(self);
    f.last.end();
    Py_XDECREF(f.layout);
    Py_XDECREF(f.subscriber);
    py::destroy<FrameSubscriberObject>(self);
}

PyMethodDef methods[] = {
    {"recv", method(entry<recv>), METH_FASTCALL | METH_KEYWORDS,
     "recv(timeout=None)\n--\n\nThe next frame. Raises Timeout when none came in time."},
    {"try_recv", entry<try_recv>, METH_NOARGS, "try_recv()\n--\n\nThe next frame, or None at once."},
    {"_open", entry<open>, METH_O, "Set the subscriber of the descriptors."},
    {"_attached", entry<attached>, METH_NOARGS, "To be called when that subscriber has joined its topic."},
    {"_leave_pool", entry<leave>, METH_NOARGS, "Leave the pool; frames that still exist keep it mapped."},
    {"_memory", entry<memory>, METH_NOARGS, "(address, bytes) of the buffers in this process."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(entry<create<FrameSubscriberObject>>)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_methods, methods},
                       {Py_tp_iter, reinterpret_cast<void*>(entry<iterate>)},
                       {Py_tp_iternext, reinterpret_cast<void*>(entry<next>)},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.FrameSubscriber", sizeof(FrameSubscriberObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

PyMethodDef functions[] = {
    {"leave_pools", entry<leave_pools>, METH_NOARGS, "Leave all pools, when the process ends."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyObject* subscriber_in(PyObject* object) {
    if (PyObject_TypeCheck(object, subscriber_type)) return object;
    return PyObject_TypeCheck(object, frame_subscriber_type) ? frames_of(object).subscriber : nullptr;
}

bool add_frame_subscriber(PyObject* module) {
    PyObject* type = PyType_FromSpec(&spec);
    frame_subscriber_type = reinterpret_cast<PyTypeObject*>(type);
    loop_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&loop_spec));
    return type && loop_type && add_frame(module) && PyModule_AddFunctions(module, functions) == 0 &&
           PyModule_AddObjectRef(module, "FrameSubscriber", type) == 0;
}

}  // namespace ringmain::py
