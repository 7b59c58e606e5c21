// Looking at topics from outside: what is in a directory, who takes part in what, and taking topics away. An observer
// takes no slot, writes nothing and slows nobody.
#include <dirent.h>

#include <algorithm>
#include <vector>

#include "endpoint.hpp"
#include "py.hpp"

namespace ringmain::py {

namespace {

PyObject* member_tuple(const Member& m) {
    return Py_BuildValue("IsIIKKKKKKKOIOsK", m.slot, role_name(m.role), m.pid, m.uid, m.generation,
                         m.joined_ns, m.position, m.sequence, m.messages, m.bytes, m.lost,
                         m.hold == kNoHold ? Py_False : Py_True, m.waits_for, m.alive ? Py_True : Py_False,
                         m.name.c_str(), m.hold);
}

// inspect(directory, topic): a dict of all there is to know.
PyObject* inspect(PyObject*, PyObject* args) {
    const char *path, *topic;
    if (!PyArg_ParseTuple(args, "ss", &path, &topic)) return nullptr;
    try {
        auto directory = std::make_shared<Directory>(path, false);
        std::shared_ptr<Segment> s = Segment::open(directory, topic, Access::observe);
        Header& h = s->header();
        uint64_t commit = h.commit.load(std::memory_order_acquire) & kPositionMask;
        uint64_t tail = h.tail.load(std::memory_order_relaxed);
        Ring ring = ring_of(*s);
        uint64_t next = ring.word_at(commit).load(std::memory_order_relaxed);
        std::string schema = s->schema();
        PyObject* members = PyList_New(0);
        if (!members) return nullptr;
        uint32_t used = ring.slots_used();
        for (uint32_t i = 0; i < used; ++i) {
            if (!slot_taken(*s, i)) continue;
            PyObject* member = member_tuple(look_at(*s, i, slot_alive(*s, i)));
            if (!member || PyList_Append(members, member) != 0) {
                Py_XDECREF(member);
                Py_DECREF(members);
                return nullptr;
            }
            Py_DECREF(member);
        }
        uint32_t turn = h.turn.load(std::memory_order_relaxed) & ~kTurnSleeper;
        return Py_BuildValue("{sssKsKsKsKsKsOsy#sIsN}", "contract", contract_name(s->contract),
                             "capacity_bytes", s->capacity_bytes, "epoch", s->epoch, "next_sequence", next,
                             "position", commit, "used_bytes",
                             commit >= tail ? std::min(commit - tail, s->capacity_bytes) : 0, "persist",
                             (s->flags & kPersist) ? Py_True : Py_False, "schema", schema.data(),
                             static_cast<Py_ssize_t>(schema.size()), "turn", turn, "members", members);
    } catch (const Failure& failure) {
        return raise(failure);
    }
}

// topics(directory): the names of the topics in it.
PyObject* topics(PyObject*, PyObject* args) {
    const char* path;
    if (!PyArg_ParseTuple(args, "s", &path)) return nullptr;
    std::vector<std::string> names;
    try {
        Directory directory(path, false);
        if (DIR* entries = fdopendir(dup(directory.fd()))) {
            rewinddir(entries);
            while (const dirent* entry = readdir(entries))
                if (std::string name = topic_name(entry->d_name); !name.empty()) names.push_back(name);
            closedir(entries);
        }
    } catch (const Failure& failure) {
        if (failure.fault != Fault::not_found) return raise(failure);
    }
    std::sort(names.begin(), names.end());
    PyObject* list = PyList_New(0);
    for (const std::string& name : names) {
        PyObject* str = PyUnicode_DecodeFSDefaultAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
        if (!list || !str || PyList_Append(list, str) != 0) {
            Py_XDECREF(str);
            Py_XDECREF(list);
            return nullptr;
        }
        Py_DECREF(str);
    }
    return list;
}

// unlink(directory, topic, force): False if there is no such topic.
PyObject* unlink(PyObject*, PyObject* args) {
    const char *path, *topic;
    int force;
    if (!PyArg_ParseTuple(args, "ssp", &path, &topic, &force)) return nullptr;
    try {
        WithoutGil unlocked;
        force = unlink_topic(std::make_shared<Directory>(path, false), topic, force);
    } catch (const Failure& failure) {
        return raise(failure);
    }
    return PyBool_FromLong(force);
}

// unlink_if_dead(directory, topic): True if everybody in it was dead and it is gone now.
PyObject* unlink_dead(PyObject*, PyObject* args) {
    const char *path, *topic;
    if (!PyArg_ParseTuple(args, "ss", &path, &topic)) return nullptr;
    bool gone;
    try {
        WithoutGil unlocked;
        gone = unlink_if_dead(std::make_shared<Directory>(path, false), topic);
    } catch (const Failure& failure) {
        return raise(failure);
    }
    return PyBool_FromLong(gone);
}

}  // namespace

PyMethodDef inspect_methods[] = {
    {"inspect", inspect, METH_VARARGS, "All there is to know of a topic."},
    {"topics", topics, METH_VARARGS, "The names of the topics in a directory."},
    {"unlink", unlink, METH_VARARGS, "Take a topic away."},
    {"unlink_if_dead", unlink_dead, METH_VARARGS, "Take a topic away if everybody in it is dead."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace ringmain::py
