// ringmain._ring.FramePublisher: the pool of a frame topic, and the next buffer to fill. The rest is in
// src/ringmain/frames.
#include "python/frame_publisher.hpp"

#include <new>

#include "frames/frame_ends.hpp"
#include "python/roster_wait.hpp"

namespace ringmain::py {

namespace {

// ------------------------------------------------------------------------------------------- the next buffer

// The host of a wait for a buffer of the pool, which another thread may close meanwhile.
struct BufferHost : SignalHost {
    const FramePublisherState& f;
    Counted<PoolWriter> pool;

    bool closed() const { return f.closing || f.pool != pool; }
    bool goes_on() { return SignalHost::goes_on() && !closed(); }
};

// 1: found a buffer; 0: none, so the frame is dropped; -1: raised.
int wait_for_buffer_or_raise(FramePublisherState& f, PublisherState& p, Deadline& deadline,
                             uint32_t& buffer) {
    Deadline at_once(0);
    BufferHost host{{}, f, f.pool};
    try {
        switch (
            wait_for_buffer(*host.pool.get(), p.ring(), p.spin, f.drops ? at_once : deadline, buffer, host)) {
            case Outcome::ready:
                return 1;
            case Outcome::timed_out:
                if (f.drops) return 0;
                raise_made("no_buffer", "(sOIs)", p.topic.c_str(), seconds(deadline.timeout_ns()).get(),
                           host.pool->pool().buffer_count(), host.pool->pool().describe_holders().c_str());
                return -1;
            case Outcome::not_there:
                raise("InUse",
                      "all " + std::to_string(host.pool->pool().buffer_count()) +
                          " buffers of frame topic '" + p.topic +
                          "' are in use by this process itself: end the blocks of frames being filled, and "
                          "delete the arrays of frames that were sent");
                return -1;
            default:
                if (!PyErr_Occurred())
                    raise("Closed",
                          "the publisher of frame topic '" + p.topic + "' was closed while it waited");
                return -1;
        }
    } catch (const Failure& failure) {
        raise(failure, p.topic);
        return -1;
    }
}

int next_buffer(FramePublisherState& f, PublisherState& p, Deadline& deadline, uint32_t& buffer) {
    if (f.pool->claim(read_by_all(p.ring()), buffer) == Status::ok) [[likely]]
        return 1;
    return wait_for_buffer_or_raise(f, p, deadline, buffer);
}

// Raises unless frames can be sent now.
PublisherState* usable_publisher(PyObject* self, FramePublisherState& f) {
    if (!f.publisher) {
        raise("Closed", "the frame publisher is closed");
        return nullptr;
    }
    PublisherState* p = usable(f.publisher);
    if (p && f.pool && !f.pool->forked()) [[likely]]
        return p;
    if (!p) return nullptr;
    // After a fork, the pool is the parent's: make one of our own. One thread makes it, and the others wait.
    OneAtATime turn(f.making);
    if (!turn.entered) return nullptr;
    if (f.pool && !f.pool->forked()) return usable(f.publisher);
    PyObject* done = PyObject_CallMethod(self, "_make_pool", nullptr);
    Py_XDECREF(done);
    return done ? p : nullptr;
}

// frame(timeout=None)
PyObject* frame(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    FramePublisherState& f = publisher_of(self);
    int64_t timeout_ns = kForever;
    if (!parse_only_timeout("frame", args, count, names, timeout_ns)) return nullptr;
    PublisherState* p = usable_publisher(self, f);
    if (!p) return nullptr;
    Deadline deadline(timeout_ns);
    uint32_t buffer = 0;
    int found = next_buffer(f, *p, deadline, buffer);
    if (found < 0) return nullptr;
    Ref object(reinterpret_cast<PyObject*>(new_draft()));
    if (!object) {
        if (found) f.pool->give_back(buffer);
        return nullptr;
    }
    DraftState& d = draft_of(object.get());
    d.owner = Py_NewRef(self);
    d.pool = f.pool;
    d.size = f.pool->pool().buffer_bytes();
    d.id = f.next_id++;
    d.start_ns = p->clock.now_ns();
    d.taken = found;
    d.buffer = buffer;
    ++f.open_drafts;
    if (found) [[likely]] {
        d.data = f.pool->pool().buffer(buffer);
        return object.release();
    }
    ++f.dropped;
    f.pool->count_dropped();
    if (f.scratch.use_count() != 1) f.scratch.reset(new (std::nothrow) std::byte[d.size]);
    if (!f.scratch) return PyErr_NoMemory();
    d.scratch = f.scratch;
    d.data = d.scratch.get();
    return object.release();
}

// ------------------------------------------------------------------------------------- opening and closing

// open(publisher, layout, buffers, buffer_bytes, fixed, mode, huge_pages, drops, schema, name)
PyObject* open(PyObject* self, PyObject* args) {
    FramePublisherState& f = publisher_of(self);
    PyObject *publisher, *layout;
    PoolRequest request;
    unsigned long long buffer_bytes;
    int fixed, huge_pages, drops;
    const char *schema, *name;
    Py_ssize_t schema_size;
    if (!PyArg_ParseTuple(args, "O!OIKpIppy#s", publisher_type, &publisher, &layout, &request.buffer_count,
                          &buffer_bytes, &fixed, &request.mode, &huge_pages, &drops, &schema, &schema_size,
                          &name))
        return nullptr;
    PublisherState* p = usable(publisher);
    if (!p) return nullptr;
    request.buffer_bytes = buffer_bytes;
    request.huge_pages = huge_pages;
    request.slot_count = p->participant->topic_file().slot_count;  // of the same readers
    request.schema.assign(schema, static_cast<size_t>(schema_size));
    request.name = name;
    std::unique_ptr<PoolWriter> pool;
    std::shared_ptr<Directory> directory = p->directory;
    bool made = with_roster(p->topic, [&](int64_t patience_ns) {
        request.patience_ns = patience_ns;
        pool = create_pool(directory, p->topic, request);
    });
    if (!made) return nullptr;
    f.pool = Counted(std::move(pool));
    Py_INCREF(publisher);
    Py_XDECREF(f.publisher);
    f.publisher = publisher;
    Py_INCREF(layout);
    Py_XDECREF(f.layout);
    f.layout = layout;
    f.drops = drops;
    f.fixed = fixed;
    f.closing = false;
    f.open_drafts = 0;
    Py_RETURN_NONE;
}

PyObject* check_no_drafts(PyObject* self, PyObject*) {
    FramePublisherState& f = publisher_of(self);
    if (!f.pool || f.open_drafts == 0 || f.pool->forked()) Py_RETURN_NONE;
    return raise("InUse", "frame topic '" + f.pool->pool().topic_file().topic +
                              "' cannot be closed: a frame is still being filled; end its block first");
}

PyObject* leave(PyObject* self, PyObject*) {
    FramePublisherState& f = publisher_of(self);
    f.closing = true;
    Counted<PoolWriter> pool = std::move(f.pool);
    Py_CLEAR(f.publisher);
    if (pool) {
        WithoutGil unlocked;
        pool->leave();
    }
    Py_RETURN_NONE;
}

PyObject* get_dropped(PyObject* self, void*) {
    return PyLong_FromUnsignedLongLong(publisher_of(self).dropped);
}
PyObject* get_closed(PyObject* self, void*) { return PyBool_FromLong(!publisher_of(self).pool); }

PyObject* memory(PyObject* self, PyObject*) { return mapped(publisher_of(self).pool); }

void destroy(PyObject* self) {
    FramePublisherState& f = publisher_of(self);
    Py_XDECREF(f.publisher);
    Py_XDECREF(f.layout);
    py::destroy<FramePublisherObject>(self);
}

PyMethodDef methods[] = {
    {"frame", method(entry<frame>), METH_FASTCALL | METH_KEYWORDS,
     "frame(timeout=None)\n--\n\nThe next free buffer, to be filled and sent."},
    {"_open", entry<open>, METH_VARARGS, "Make the pool."},
    {"_check_no_drafts", entry<check_no_drafts>, METH_NOARGS, "Raise if a frame is being filled."},
    {"_leave", entry<leave>, METH_NOARGS, "Leave the pool."},
    {"_memory", entry<memory>, METH_NOARGS, "(address, bytes) of the buffers in this process."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef attributes[] = {
    {"dropped", entry<get_dropped>, nullptr, "Frames dropped because no buffer was free.", nullptr},
    {"closed", entry<get_closed>, nullptr, "Is it closed?", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(entry<create<FramePublisherObject>>)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, attributes},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.FramePublisher", sizeof(FramePublisherObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

bool add_frame_publisher(PyObject* module) {
    PyObject* publisher = PyType_FromSpec(&spec);
    return publisher && add_frame_draft(module) &&
           PyModule_AddObjectRef(module, "FramePublisher", publisher) == 0;
}

}  // namespace ringmain::py
