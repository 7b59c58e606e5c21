// ringmain._ring.FrameSubscriber: a subscriber whose messages are descriptors, and which gives the frames they point to.
// Owns this invariant: every descriptor it passes over ends up as a frame or in the count of those lost.
#include "frame_subscriber.hpp"

#include <new>
#include <utility>

namespace ringmain::py {

namespace {

struct FrameSubscriberState {
    Counted<PoolReader> pool;    // of the newest frame
    PyObject* layout = nullptr;  // of that pool
    PyObject* last = nullptr;    // what the loop was given last
    uint64_t joined_at = 0;      // position in the topic when we came: what is before is not lost to us
};

struct FrameSubscriberObject {
    SubscriberObject base;
    FrameSubscriberState* frames;
};

FrameSubscriberState& frames_of(PyObject* self) {
    return *reinterpret_cast<FrameSubscriberObject*>(self)->frames;
}
SubscriberState& subscriber_of(PyObject* self) { return *reinterpret_cast<SubscriberObject*>(self)->state; }

// 1: the pool of this descriptor is at hand; 0: it is gone; -1: raised.
int attach_pool(PyObject* self, SubscriberState& s, FrameSubscriberState& f, uint64_t epoch) {
    if (f.pool && f.pool->pool().epoch() == epoch && !f.pool->forked()) [[likely]]
        return 1;
    std::unique_ptr<PoolReader> pool;
    std::string schema;
    try {
        WithoutGil unlocked;
        pool = open_pool(s.directory, s.topic, s.name);
        if (!pool || pool->pool().epoch() != epoch) return 0;
        schema = pool->pool().topic_file().schema();
    } catch (const Failure& failure) {
        raise(failure);
        return -1;
    }
    PyObject* layout =
        PyObject_CallMethod(self, "_pool_attached", "y#K", schema.data(),
                            static_cast<Py_ssize_t>(schema.size()), pool->pool().buffer_bytes());
    if (!layout) return -1;
    Py_XDECREF(f.layout);
    f.layout = layout;
    f.pool = Counted(std::move(pool));
    return 1;
}

// The descriptor cannot become a frame any more.
void count_lost(SubscriberState& s, const FrameSubscriberState& f, const View& view) {
    s.reader->skip(view);
    if (!s.conflate && view.position >= f.joined_at) {
        ++s.reader->lost;
        ++s.reader->pending_lost;
    }
    s.reader->release(s.keep());
}

PyObject* refuse_message(SubscriberState& s, const View& view, const char* why) {
    s.reader->take(view);
    s.reader->release(s.keep());
    return raise("TopicMismatch", "message " + std::to_string(view.seq) + " of topic '" + s.topic + "' " +
                                      why + ": read it with Subscriber, or send to it with FramePublisher");
}

// Takes ownership of meta_bytes.
PyObject* make_frame(SubscriberState& s, FrameSubscriberState& f, const View& view,
                     const Descriptor& descriptor, PyObject* meta_bytes) {
    FrameObject* made = new_frame();
    if (!made) {
        f.pool->release(descriptor.buffer);
        Py_XDECREF(meta_bytes);
        return nullptr;
    }
    auto* object = reinterpret_cast<PyObject*>(made);
    FrameState& frame = made->state;
    frame.pool = f.pool;
    frame.leased = true;
    frame.descriptor = descriptor;
    frame.meta_bytes = meta_bytes;
    frame.layout = Py_NewRef(f.layout);
    frame.sender = sender_of(s, view);
    frame.kind = kind_of(s, view);
    frame.seq = view.seq;
    frame.time_ns = view.time_ns;
    if (frame.sender && frame.kind) return object;
    Py_DECREF(object);
    return nullptr;
}

// The next frame; nullptr without an exception: time is up.
PyObject* receive(PyObject* self, SubscriberState& s, Deadline& deadline) {
    FrameSubscriberState& f = frames_of(self);
    for (;;) {
        View view;
        if (next_message(self, s, deadline, view) != 1) return nullptr;
        Descriptor descriptor{};
        PyObject* meta = nullptr;
        copy_out(&descriptor, view.payload(), std::min<size_t>(view.size, sizeof descriptor));
        if (view.size > sizeof descriptor) {
            meta = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(view.size - sizeof descriptor));
            if (!meta) return nullptr;
            copy_out(PyBytes_AsString(meta), view.payload() + sizeof descriptor,
                     view.size - sizeof descriptor);
        }
        struct Owner {
            PyObject*& object;
            ~Owner() { Py_XDECREF(object); }
        } owner{meta};
        if (!s.reader->still_whole(view)) continue;
        if (view.size < sizeof descriptor || descriptor.magic != kDescriptorMagic)
            return refuse_message(s, view, "is not a frame");
        if (descriptor.version != kPoolVersion)
            return refuse_message(s, view, "is a frame of another version of ringmain");
        int attached = attach_pool(self, s, f, descriptor.pool);
        if (attached < 0) return nullptr;
        if (attached == 0) {
            count_lost(s, f, view);
            continue;
        }
        if (descriptor.buffer >= f.pool->pool().buffer_count() ||
            descriptor.size > f.pool->pool().buffer_bytes())
            return refuse_message(s, view, "points outside of its stream's buffers");
        Status status = f.pool->lease(descriptor.buffer, descriptor.number);
        if (status == Status::taken_over) return raise_evicted(s);
        if (status != Status::ok) {
            count_lost(s, f, view);
            continue;
        }
        PyObject* frame = make_frame(s, f, view, descriptor, std::exchange(meta, nullptr));
        if (!frame) return nullptr;
        if (!s.reader->still_whole(view)) {  // sender and kind were overwritten while they were read
            Py_DECREF(frame);
            continue;
        }
        reinterpret_cast<FrameObject*>(frame)->state.lost = s.reader->take(view);
        s.reader->release(s.keep());
        return frame;
    }
}

PyObject* recv(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    SubscriberState* s = &subscriber_of(self);
    int64_t timeout_ns = kForever;
    if (count != 0 || names) {
        PyObject* given[1] = {};
        static const char* const kNames[] = {"timeout"};
        if (!parse_arguments("recv", args, count, names, kNames, 0, given, 1) ||
            !parse_timeout(given[0], timeout_ns))
            return nullptr;
    }
    Receiving turn(self, *s);
    if (!turn.entered() || !usable_subscriber(self)) return nullptr;
    Deadline deadline(timeout_ns);
    PyObject* frame = receive(self, *s, deadline);
    if (!frame && !PyErr_Occurred()) raise_timeout(*s, deadline);
    return frame;
}

PyObject* try_recv(PyObject* self, PyObject*) {
    SubscriberState* s = &subscriber_of(self);
    Receiving turn(self, *s);
    if (!turn.entered() || !usable_subscriber(self)) return nullptr;
    Deadline deadline(0);
    PyObject* frame = receive(self, *s, deadline);
    if (frame || PyErr_Occurred()) return frame;
    Py_RETURN_NONE;
}

void end_last(FrameSubscriberState& f) {
    if (!f.last) return;
    end_frame(f.last);
    Py_CLEAR(f.last);
}

// The body of the loop is the frame's block: it ends when the next one is asked for.
PyObject* next(PyObject* self) {
    SubscriberState& s = subscriber_of(self);
    FrameSubscriberState& f = frames_of(self);
    end_last(f);
    Receiving turn(self, s);
    if (!turn.entered() || s.closed || s.closing) return nullptr;
    Deadline deadline(kForever);
    PyObject* frame = receive(self, s, deadline);
    if (frame) f.last = Py_NewRef(frame);
    if (!frame && s.closed) PyErr_Clear();  // closed while it waited: so a loop over frames ends
    return frame;
}

// Called by the base whenever a participant in the topic was taken.
PyObject* attached(PyObject* self, PyObject*) {
    SubscriberState& s = subscriber_of(self);
    uint64_t commit =
        s.participant->topic_file().header().commit.load(std::memory_order_acquire) & kPositionMask;
    frames_of(self).joined_at = s.came_first ? 0 : std::min(commit, s.reader->position());
    if (!s.came_first && s.start == Start::oldest) frames_of(self).joined_at = commit;
    Py_RETURN_NONE;
}

PyObject* leave(PyObject* self, PyObject*) {
    FrameSubscriberState& f = frames_of(self);
    end_last(f);
    f.pool.reset();
    Py_RETURN_NONE;
}

// Where the buffers are in this process: (address, bytes), or None before the first frame.
PyObject* memory(PyObject* self, PyObject*) {
    FrameSubscriberState& f = frames_of(self);
    if (!f.pool) Py_RETURN_NONE;
    const TopicFile& s = f.pool->pool().topic_file();
    return Py_BuildValue("KK", reinterpret_cast<unsigned long long>(s.data()), s.capacity_bytes);
}

// leave_pools(): at the end of the process, so that arrays that still live keep no file behind.
PyObject* leave_pools(PyObject*, PyObject*) {
    leave_all_pools();
    Py_RETURN_NONE;
}

PyObject* create(PyTypeObject* type, PyObject* args, PyObject* keywords) {
    auto base = reinterpret_cast<newfunc>(PyType_GetSlot(subscriber_type, Py_tp_new));
    PyObject* self = base(type, args, keywords);
    if (self) reinterpret_cast<FrameSubscriberObject*>(self)->frames = new FrameSubscriberState;
    return self;
}

void destroy(PyObject* self) {
    FrameSubscriberState* f = reinterpret_cast<FrameSubscriberObject*>(self)->frames;
    end_last(*f);
    Py_XDECREF(f->layout);
    delete f;
    reinterpret_cast<destructor>(PyType_GetSlot(subscriber_type, Py_tp_dealloc))(self);
}

PyMethodDef methods[] = {
    {"recv", method(recv), METH_FASTCALL | METH_KEYWORDS,
     "recv(timeout=None)\n--\n\nThe next frame. Raises Timeout when none came in time."},
    {"try_recv", try_recv, METH_NOARGS, "try_recv()\n--\n\nThe next frame, or None at once."},
    {"_attached", attached, METH_NOARGS, "Called when a participant in the topic was taken."},
    {"_leave_pool", leave, METH_NOARGS, "Give up the pool; frames that live keep it."},
    {"_memory", memory, METH_NOARGS, "(address, bytes) of the buffers in this process."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(create)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_methods, methods},
                       {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
                       {Py_tp_iternext, reinterpret_cast<void*>(next)},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.FrameSubscriber", sizeof(FrameSubscriberObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

PyMethodDef functions[] = {
    {"leave_pools", leave_pools, METH_NOARGS, "Leave all pools, at the end of the process."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_frame_subscriber(PyObject* module) {
    PyObject* type = PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject*>(subscriber_type));
    return type && add_frame(module) && PyModule_AddFunctions(module, functions) == 0 &&
           PyModule_AddObjectRef(module, "FrameSubscriber", type) == 0;
}

}  // namespace ringmain::py
