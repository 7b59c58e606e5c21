// Looking at topics from outside: what is in a directory, who takes part in what, and taking topics away. An observer
// takes no slot, writes nothing and slows nobody.
#include <dirent.h>

#include <algorithm>
#include <vector>

#include "endpoint.hpp"
#include "py.hpp"

namespace ringmain::py {

namespace {

PyObject* participant_record(const ParticipantInfo& p) {
    return Py_BuildValue("{sIsssIsIsKsKsKsKsKsKsKsKsOsIsOss}", "slot", p.slot, "role", role_name(p.role),
                         "pid", p.pid, "uid", p.uid, "generation", p.generation, "joined_ns", p.joined_ns,
                         "position", p.position, "sequence", p.sequence, "messages", p.messages, "bytes",
                         p.bytes, "lost", p.lost, "hold", p.hold, "holding",
                         p.hold == kNoHold ? Py_False : Py_True, "waits_for", p.waits_for, "alive",
                         p.alive ? Py_True : Py_False, "name", p.name.c_str());
}

// inspect(directory, topic): a dict of all there is to know.
PyObject* inspect(PyObject*, PyObject* args) {
    const char *path, *topic;
    if (!PyArg_ParseTuple(args, "ss", &path, &topic)) return nullptr;
    try {
        auto directory = std::make_shared<Directory>(path, false);
        std::shared_ptr<TopicFile> s = TopicFile::open(directory, topic, Access::observe);
        Header& h = s->header();
        uint64_t commit = h.commit.load(std::memory_order_acquire) & kPositionMask;
        uint64_t tail = h.tail.load(std::memory_order_relaxed);
        Ring ring = ring_of(*s);
        uint64_t next = ring.word_at(commit).load(std::memory_order_relaxed);
        std::string schema = s->schema();
        PyObject* participants = PyList_New(0);
        if (!participants) return nullptr;
        uint32_t used = ring.slots_used();
        for (uint32_t i = 0; i < used; ++i) {
            if (!slot_taken(*s, i)) continue;
            PyObject* participant = participant_record(look_at(*s, i, slot_alive(*s, i)));
            if (!participant || PyList_Append(participants, participant) != 0) {
                Py_XDECREF(participant);
                Py_DECREF(participants);
                return nullptr;
            }
            Py_DECREF(participant);
        }
        uint32_t turn = h.turn.load(std::memory_order_relaxed) & ~kTurnSleeper;
        return Py_BuildValue(
            "{sssKsKsKsKsKsOsy#sIsN}", "contract", traits(s->contract).name, "capacity_bytes",
            s->capacity_bytes, "epoch", s->epoch, "next_sequence", next, "position", commit, "used_bytes",
            commit >= tail ? std::min(commit - tail, s->capacity_bytes) : 0, "persist",
            (s->flags & kPersist) ? Py_True : Py_False, "schema", schema.data(),
            static_cast<Py_ssize_t>(schema.size()), "turn", turn, "participants", participants);
    } catch (const Failure& failure) {
        return raise(failure);
    }
}

// Where the newest messages begin, oldest first. Nothing is held while we walk, so a writer may come round: what was read
// counts only if it was whole afterwards, and if it was not we begin again, and at last content ourselves with less.
std::vector<uint64_t> newest_positions(const Ring& ring, size_t count) {
    constexpr int kAttempts = 4;
    constexpr uint64_t kMostSteps = 1 << 20;  // a ring full of tiny messages is not walked for ever
    std::vector<uint64_t> found;
    auto intact = [&](uint64_t position) {
        // [CHECK] as Reader::intact.
        fence(std::memory_order_acquire);
        return ring.header.claim.load(std::memory_order_relaxed) <= position + ring.capacity_bytes;
    };
    for (int attempt = 0; attempt <= kAttempts && count > 0; ++attempt) {
        found.clear();
        // [OBSERVE] acquire: pairs with [COMMIT]; [OLDEST] acquire: pairs with [TAIL].
        uint64_t commit = ring.header.commit.load(std::memory_order_acquire) & kPositionMask;
        uint64_t at = attempt < kAttempts && count > 1 ? ring.header.tail.load(std::memory_order_acquire)
                                                       : ring.header.newest.load(std::memory_order_relaxed);
        uint64_t steps = 0;
        bool whole = at % kAlignBytes == 0 && at <= commit && commit - at <= ring.capacity_bytes;
        while (whole && at < commit && steps++ < kMostSteps) {
            uint64_t bytes = Envelope::load(ring, at).bytes();
            whole = intact(at) && bytes <= commit - at;
            found.push_back(at);
            at += bytes;
        }
        if (whole && at == commit) break;
        found.clear();
    }
    if (found.size() > count) found.erase(found.begin(), found.end() - static_cast<ptrdiff_t>(count));
    return found;
}

// peek(directory, topic, count, max_bytes): the newest messages that are whole, oldest first, as (seq, time_ns, sender,
// kind, size, data). The data of one larger than max_bytes is None.
PyObject* peek(PyObject*, PyObject* args) {
    const char *path, *topic;
    Py_ssize_t count, most_bytes;
    if (!PyArg_ParseTuple(args, "ssnn", &path, &topic, &count, &most_bytes)) return nullptr;
    PyObject* list = PyList_New(0);
    if (!list) return nullptr;
    try {
        auto directory = std::make_shared<Directory>(path, false);
        std::shared_ptr<TopicFile> s = TopicFile::open(directory, topic, Access::observe);
        Ring ring = ring_of(*s);
        std::vector<uint64_t> positions;
        {
            WithoutGil unlocked;
            positions = newest_positions(ring, static_cast<size_t>(std::max<Py_ssize_t>(count, 0)));
        }
        for (uint64_t at : positions) {
            Envelope e = Envelope::load(ring, at);
            bool shown = static_cast<Py_ssize_t>(e.size) <= most_bytes && e.bytes() <= ring.capacity_bytes;
            std::string names(static_cast<size_t>(e.sender_size) + e.kind_size, '\0'),
                data(shown ? e.size : 0, '\0');
            copy_out(names.data(), ring.at(at) + sizeof(MessageHeader), names.size());
            copy_out(data.data(), ring.at(at) + payload_offset(e.sender_size, e.kind_size), data.size());
            fence(std::memory_order_acquire);  // [CHECK] as Reader::intact
            if (ring.header.claim.load(std::memory_order_relaxed) > at + ring.capacity_bytes) continue;
            PyObject* body =
                shown ? PyBytes_FromStringAndSize(data.data(), static_cast<Py_ssize_t>(data.size()))
                      : Py_NewRef(Py_None);
            PyObject* sender = PyUnicode_DecodeUTF8(names.data(), e.sender_size, "replace");
            PyObject* kind = PyUnicode_DecodeUTF8(names.data() + e.sender_size, e.kind_size, "replace");
            PyObject* item = body && sender && kind
                                 ? Py_BuildValue("KLNNIN", e.seq, static_cast<long long>(e.time_ns), sender,
                                                 kind, e.size, body)
                                 : nullptr;
            if (!item || PyList_Append(list, item) != 0) {
                Py_XDECREF(item);
                Py_DECREF(list);
                return nullptr;
            }
            Py_DECREF(item);
        }
    } catch (const Failure& failure) {
        Py_DECREF(list);
        return raise(failure);
    }
    return list;
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
    {"peek", peek, METH_VARARGS, "The newest messages of a topic, without taking part."},
    {"topics", topics, METH_VARARGS, "The names of the topics in a directory."},
    {"unlink", unlink, METH_VARARGS, "Take a topic away."},
    {"unlink_if_dead", unlink_dead, METH_VARARGS, "Take a topic away if everybody in it is dead."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace ringmain::py
