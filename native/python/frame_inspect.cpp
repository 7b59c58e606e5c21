// Inspects frame topics from outside, removes their pools, and takes what ringmain.frames sets up once.
#include "python/frame_types.hpp"
#include "topic/endpoint.hpp"
#include "topic/inspection.hpp"
#include "topic/process.hpp"

namespace ringmain::py {

PyObject *encode_meta, *decode_meta;

namespace {

// set_meta_codec(encode, decode)
PyObject* set_meta_codec(PyObject*, PyObject* args) {
    PyObject *encode, *decode;
    if (!PyArg_ParseTuple(args, "OO", &encode, &decode)) return nullptr;
    encode_meta = Py_NewRef(encode);
    decode_meta = Py_NewRef(decode);
    Py_RETURN_NONE;
}

// inspect_pool(directory, topic): a PoolInspection.
PyObject* inspect_pool(PyObject*, PyObject* args) {
    const char *path, *topic;
    if (!PyArg_ParseTuple(args, "ss", &path, &topic)) return nullptr;
    try {
        auto directory = Directory::at(path, false);
        std::shared_ptr<TopicFile> topic_file =
            TopicFile::open(directory, topic, Access::observe, FileKind::pool);
        Pool pool(topic_file);
        PoolTable& table = pool.table();
        Ref holders(PyList_New(0));
        uint32_t used = topic_file->slots_used();
        bool published = false;
        for (uint32_t i = 0; holders && i < used; ++i) {
            if (!slot_taken(*topic_file, i) || !slot_alive(*topic_file, i)) continue;
            ParticipantInfo m = look_at(*topic_file, i, true);
            published |= m.role == Role::writer;
            if (m.role == Role::writer) continue;
            std::string pid = describe_pid(m.pid, m.pid_namespace);
            Ref holder(Py_BuildValue("ssi", m.name.c_str(), pid.c_str(), std::popcount(buffers_of(m.hold))));
            if (!append(holders, std::move(holder))) return nullptr;
        }
        if (!holders) return nullptr;
        std::string schema = topic_file->schema();
        // relaxed: statistics.
        auto number = [](const auto& word) { return word.load(std::memory_order_relaxed); };
        return Py_BuildValue(
            "{sIsKsKsKsKsLsLsOsOsy#sO}", "buffers", pool.buffer_count(), "buffer_bytes", pool.buffer_bytes(),
            "epoch", pool.epoch(), "frames", number(table.frames), "dropped", number(table.dropped),
            "last_ns", number(table.last_ns), "interval_ns", number(table.interval_ns), "huge_pages",
            topic_file->flags & kHugePages ? Py_True : Py_False, "alive", published ? Py_True : Py_False,
            "schema", schema.data(), static_cast<Py_ssize_t>(schema.size()), "holders", holders.get());
    } catch (const Failure& failure) {
        return raise(failure);
    }
}

// glance(directory, topic, epoch, buffer, number, size): a copy of a frame as a bytearray, or None if it is gone.
PyObject* glance(PyObject*, PyObject* args) {
    const char *path, *topic;
    unsigned int buffer;
    unsigned long long epoch, number, size;
    if (!PyArg_ParseTuple(args, "ssKIKK", &path, &topic, &epoch, &buffer, &number, &size)) return nullptr;
    try {
        auto directory = Directory::at(path, false);
        Pool pool(TopicFile::open(directory, topic, Access::observe, FileKind::pool));
        // A descriptor comes from another process, so it is checked.
        bool there = pool.epoch() == epoch && buffer < pool.buffer_count() && size <= pool.buffer_bytes();
        if (!there) Py_RETURN_NONE;
        Ref copy(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
        if (!copy) return nullptr;
        char* to = PyByteArray_AsString(copy.get());
        {
            WithoutGil unlocked;
            there = pool.glance(buffer, number, to, size);
        }
        if (there) return copy.release();
    } catch (const Failure& failure) {
        return raise(failure);
    }
    Py_RETURN_NONE;
}

// pools(directory): the names of the frame topics in it.
PyObject* pools(PyObject*, PyObject* args) {
    const char* path;
    if (!PyArg_ParseTuple(args, "s", &path)) return nullptr;
    std::vector<std::string> names;
    try {
        names = names_in(Directory(path, false), FileKind::pool);
    } catch (const Failure& failure) {
        if (failure.fault != Fault::not_found) return raise(failure);
    }
    Ref list(PyList_New(0));
    for (const std::string& name : names) {
        Ref str(PyUnicode_DecodeFSDefaultAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
        if (!append(list, std::move(str))) return nullptr;
    }
    return list.release();
}

// unlink_pool(directory, topic, force): removes the pool; without force, only if all its participants are dead and its
// topic is gone. False: there is none, or it stays.
PyObject* unlink_pool(PyObject*, PyObject* args) {
    const char *path, *topic;
    int force;
    if (!PyArg_ParseTuple(args, "ssp", &path, &topic, &force)) return nullptr;
    bool gone = false;
    try {
        WithoutGil unlocked;
        auto directory = Directory::at(path, false);
        gone = force ? unlink_topic(directory, topic, true, FileKind::pool)
                     : unlink_if_dead(directory, topic, FileKind::pool);
    } catch (const Failure& failure) {
        if (failure.fault != Fault::not_found) return raise(failure);
    }
    return PyBool_FromLong(gone);
}

PyMethodDef functions[] = {
    {"set_meta_codec", entry<set_meta_codec>, METH_VARARGS,
     "How the meta of a frame becomes bytes and back."},
    {"inspect_pool", entry<inspect_pool>, METH_VARARGS, "The pool of a frame topic, as a PoolInspection."},
    {"glance", entry<glance>, METH_VARARGS, "A copy of a frame, without holding it."},
    {"pools", entry<pools>, METH_VARARGS, "The names of the frame topics in a directory."},
    {"unlink_pool", entry<unlink_pool>, METH_VARARGS, "Remove the pool of a frame topic."},
    {nullptr, nullptr, 0, nullptr}};

bool add_layout(PyObject* module) {
    PyObject* offsets = PyDict_New();
    if (!offsets) return false;
    auto put = [&](const char* name, uint64_t value) {
        PyObject* number = PyLong_FromUnsignedLongLong(value);
        bool done = number && PyDict_SetItemString(offsets, name, number) == 0;
        Py_XDECREF(number);
        return done;
    };
#define FIELD(type, field) put(#type "." #field, offsetof(type, field))
    bool done = FIELD(PoolTable, magic) && FIELD(PoolTable, version) && FIELD(PoolTable, buffer_count) &&
                FIELD(PoolTable, buffer_bytes) && FIELD(PoolTable, buffer_stride_bytes) &&
                FIELD(PoolTable, frames) && FIELD(PoolTable, dropped) && FIELD(PoolTable, last_ns) &&
                FIELD(PoolTable, interval_ns) && FIELD(PoolTable, buffers) && FIELD(BufferState, number) &&
                FIELD(Descriptor, magic) && FIELD(Descriptor, version) && FIELD(Descriptor, flags) &&
                FIELD(Descriptor, buffer) && FIELD(Descriptor, reserved) && FIELD(Descriptor, pool) &&
                FIELD(Descriptor, number) && FIELD(Descriptor, id) && FIELD(Descriptor, start_ns) &&
                FIELD(Descriptor, end_ns) && FIELD(Descriptor, size) && put("PoolTable", sizeof(PoolTable)) &&
                put("BufferState", sizeof(BufferState)) && put("Descriptor", sizeof(Descriptor)) &&
                put("max_buffers", kMaxBuffers) && put("max_buffer_bytes", kMaxBufferBytes) &&
                put("hold_shift", kHoldShift) && put("version", kPoolVersion);
#undef FIELD
    done = done && PyModule_AddObjectRef(module, "FRAMES_LAYOUT", offsets) == 0;
    Py_DECREF(offsets);
    return done;
}

}  // namespace

bool add_frame_inspection(PyObject* module) {
    return PyModule_AddFunctions(module, functions) == 0 && add_layout(module);
}

}  // namespace ringmain::py
