// Inspecting topics from outside: the topics of a directory, their participants, their newest messages; and removing
// topics. Inspecting takes no slot, writes nothing and slows no process.
#include <algorithm>
#include <vector>

#include "python/py.hpp"
#include "python/roster_wait.hpp"
#include "rule/extension.hpp"
#include "topic/endpoint.hpp"
#include "topic/inspection.hpp"

namespace ringmain::py {

namespace {

// A key of a record, made once: a scrape of many topics makes thousands of records.
#define KEY(name)                                         \
    ([] {                                                 \
        static PyObject* key; /* kept */                  \
        if (!key) key = PyUnicode_InternFromString(name); \
        return key;                                       \
    }())

PyObject* participant_record(const ParticipantInfo& p, Lag lag, const std::string& blocker) {
    return Py_BuildValue(
        "{OIOsOIOIOKOKOOOKOKOKOKOKOKOKOKOKOKOOOzOKOOOOOsOKOK}", KEY("slot"), p.slot, KEY("role"),
        role_name(p.role), KEY("pid"), p.pid, KEY("uid"), p.uid, KEY("pid_namespace"), p.pid_namespace,
        KEY("started_ticks"), p.started_ticks, KEY("same_namespace"), p.same_namespace ? Py_True : Py_False,
        KEY("generation"), p.generation, KEY("joined_ns"), p.joined_ns, KEY("position"), p.position,
        KEY("sequence"), p.sequence, KEY("messages"), p.messages, KEY("bytes"), p.bytes, KEY("lost"), p.lost,
        KEY("lag_messages"), lag.messages, KEY("lag_bytes"), lag.bytes, KEY("hold"), p.hold, KEY("holding"),
        p.hold == kNoHold ? Py_False : Py_True, KEY("waits_for"), blocker.empty() ? nullptr : blocker.c_str(),
        KEY("blocked_ns"), p.blocked_ns, KEY("alive"), p.alive ? Py_True : Py_False, KEY("joining"),
        p.joining ? Py_True : Py_False, KEY("name"), p.name.c_str(), KEY("taken_ns"), p.taken_ns,
        KEY("redelivered"), p.redelivered);
}

PyObject* work_record(const WorkCounts& work) {
    Ref by_slot(PyDict_New());
    for (auto [owner, count] : work.taken) {
        Ref slot(PyLong_FromUnsignedLong(owner)), taken(PyLong_FromUnsignedLongLong(count));
        if (!by_slot || !slot || !taken || PyDict_SetItem(by_slot.get(), slot.get(), taken.get()) != 0)
            return nullptr;
    }
    return by_slot ? Py_BuildValue("{OKOO}", KEY("waiting"), work.waiting, KEY("taken"), by_slot.get())
                   : nullptr;
}

PyObject* kept_record(const KeptCounts& kept) {
    return Py_BuildValue("{OIOIOK}", KEY("max_kinds"), kept.max_kinds, KEY("kinds"), kept.kinds,
                         KEY("not_kept"), kept.not_kept);
}

PyObject* inspection(const std::shared_ptr<Directory>& directory, std::string_view topic) {
    Inspection seen = inspect_topic(directory, topic);
    Ref participants(PyList_New(0));
    for (const ParticipantInfo& each : seen.participants)
        if (!append(participants, Ref(participant_record(each, seen.lag_of(each), seen.blocker_of(each)))))
            return nullptr;
    Ref work(seen.work ? work_record(*seen.work) : Py_NewRef(Py_None));
    Ref kept(seen.kept ? kept_record(*seen.kept) : Py_NewRef(Py_None));
    if (!participants || !work || !kept) return nullptr;
    return Py_BuildValue("{OsOKOIOKOKOKOOOKOOOy#OIOOOOOO}", KEY("contract"), traits(seen.contract).name,
                         KEY("capacity_bytes"), seen.capacity_bytes, KEY("max_participants"), seen.slot_count,
                         KEY("epoch"), seen.epoch, KEY("next_sequence"), seen.next_sequence, KEY("position"),
                         seen.position, KEY("frames"), seen.frames ? Py_True : Py_False, KEY("used_bytes"),
                         seen.used_bytes, KEY("persist"), seen.persist ? Py_True : Py_False, KEY("schema"),
                         seen.schema.data(), static_cast<Py_ssize_t>(seen.schema.size()), KEY("turn"),
                         seen.turn, KEY("participants"), participants.get(), KEY("work"), work.get(),
                         KEY("kept"), kept.get());
}

// inspect(directory, topic): an Inspection, as _ring.pyi types it.
PyObject* inspect(PyObject*, PyObject* args) {
    const char *path, *topic;
    if (!PyArg_ParseTuple(args, "ss", &path, &topic)) return nullptr;
    try {
        return inspection(Directory::at(path, false), topic);
    } catch (const Failure& failure) {
        return raise(failure, topic);
    }
}

// inspect_all(directory): the Inspection of each topic by its name, None for one that cannot be read. The directory is
// opened once, which is a third of the work.
PyObject* inspect_all(PyObject*, PyObject* args) {
    const char* path;
    if (!PyArg_ParseTuple(args, "s", &path)) return nullptr;
    Ref all(PyDict_New());
    if (!all) return nullptr;
    try {
        auto directory = Directory::at(path, false);
        for (const std::string& name : names_in(*directory, FileKind::ring)) {
            Ref found(Py_NewRef(Py_None));
            try {
                found = Ref(inspection(directory, name));
            } catch (const Failure& failure) {
                if (failure.fault == Fault::not_found) continue;  // removed since it was listed
            }
            Ref key(PyUnicode_DecodeFSDefaultAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
            if (!found || !key || PyDict_SetItem(all.get(), key.get(), found.get()) != 0) return nullptr;
        }
    } catch (const Failure& failure) {
        if (failure.fault != Fault::not_found) return raise(failure);
    }
    return all.release();
}

// [CHECK] as Reader::intact.
bool intact(const Ring& ring, uint64_t position) {
    fence(std::memory_order_acquire);
    return ring.header.claim.load(std::memory_order_relaxed) <= position + ring.capacity_bytes;
}

// Where the newest messages begin, oldest first. Nothing is held during the walk, so a writer may lap it: a message counts
// only if it is intact afterwards. Otherwise the walk starts again; the last attempt returns only the newest message.
std::vector<uint64_t> newest_positions(const Ring& ring, size_t count) {
    constexpr int kAttempts = 4;
    constexpr uint64_t kMaxSteps = 1 << 20;  // bounds the walk through a ring full of tiny messages
    std::vector<uint64_t> found;
    for (int attempt = 0; attempt <= kAttempts && count > 0; ++attempt) {
        found.clear();
        // [OBSERVE] acquire: pairs with [COMMIT]; [OLDEST] acquire: pairs with [TAIL].
        uint64_t commit = ring.header.commit.load(std::memory_order_acquire) & kPositionMask;
        uint64_t at = attempt < kAttempts && count > 1 ? ring.header.tail.load(std::memory_order_acquire)
                                                       : ring.header.newest.load(std::memory_order_relaxed);
        uint64_t steps = 0;
        bool whole = at % kAlignBytes == 0 && at <= commit && commit - at <= ring.capacity_bytes;
        while (whole && at < commit && steps++ < kMaxSteps) {
            uint64_t bytes = Envelope::load(ring, at).bytes();
            whole = intact(ring, at) && bytes <= commit - at;
            found.push_back(at);
            at += bytes;
        }
        if (whole && at == commit) break;
        found.clear();
    }
    if (found.size() > count) found.erase(found.begin(), found.end() - static_cast<ptrdiff_t>(count));
    return found;
}

// peek(directory, topic, count, max_bytes): the newest messages that are whole, oldest first, as PeekRecords. The
// data of one larger than max_bytes is None.
PyObject* peek(PyObject*, PyObject* args) {
    const char *path, *topic;
    Py_ssize_t count, max_bytes;
    if (!PyArg_ParseTuple(args, "ssnn", &path, &topic, &count, &max_bytes)) return nullptr;
    Ref list(PyList_New(0));
    try {
        auto directory = Directory::at(path, false);
        std::shared_ptr<TopicFile> s = TopicFile::open(directory, topic, Access::observe);
        Ring ring = ring_of(*s);
        std::vector<uint64_t> positions;
        {
            WithoutGil unlocked;
            positions = newest_positions(ring, static_cast<size_t>(std::max<Py_ssize_t>(count, 0)));
        }
        for (uint64_t at : positions) {
            Envelope e = Envelope::load(ring, at);
            bool shown = static_cast<Py_ssize_t>(e.size) <= max_bytes && e.bytes() <= ring.capacity_bytes;
            std::string names(static_cast<size_t>(e.sender_size) + e.kind_size, '\0'),
                data(shown ? e.size : 0, '\0');
            copy_out(names.data(), ring.at(at) + sizeof(MessageHeader), names.size());
            copy_out(data.data(), ring.at(at) + payload_offset(e.sender_size, e.kind_size), data.size());
            if (!intact(ring, at)) continue;
            Ref body(shown ? PyBytes_FromStringAndSize(data.data(), static_cast<Py_ssize_t>(data.size()))
                           : Py_NewRef(Py_None));
            Ref sender(PyUnicode_DecodeUTF8(names.data(), e.sender_size, "replace"));
            std::string_view said = parts_of(std::string_view(names).substr(e.sender_size)).kind;
            Ref kind(PyUnicode_DecodeUTF8(said.data(), static_cast<Py_ssize_t>(said.size()), "replace"));
            if (!body || !sender || !kind) return nullptr;
            Ref item(Py_BuildValue("{OKOLOOOOOIOO}", KEY("seq"), e.seq, KEY("time_ns"),
                                   static_cast<long long>(e.time_ns), KEY("sender"), sender.get(),
                                   KEY("kind"), kind.get(), KEY("size"), e.size, KEY("data"), body.get()));
            if (!append(list, std::move(item))) return nullptr;
        }
    } catch (const Failure& failure) {
        return raise(failure);
    }
    return list.release();
}

// topics(directory): the names of the topics in it.
PyObject* topics(PyObject*, PyObject* args) {
    const char* path;
    if (!PyArg_ParseTuple(args, "s", &path)) return nullptr;
    std::vector<std::string> names;
    try {
        names = names_in(Directory(path, false), FileKind::ring);
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

// clean_waiting(directory): removes the waiting files in which no living process waits.
PyObject* clean_waiting(PyObject*, PyObject* args) {
    const char* path;
    if (!PyArg_ParseTuple(args, "s", &path)) return nullptr;
    try {
        WithoutGil unlocked;
        auto directory = Directory::at(path, false);
        for (const std::string& name : names_in(*directory, FileKind::waiting)) {
            try {
                unlink_if_dead(directory, name, FileKind::waiting);
            } catch (const Failure&) {
                // Another user's, or garbage. The next topic of this name does without it, or replaces it.
            }
        }
    } catch (const Failure& failure) {
        if (failure.fault != Fault::not_found) return raise(failure);
    }
    Py_RETURN_NONE;
}

// unlink(directory, topic, force): False if there is no such topic.
PyObject* unlink(PyObject*, PyObject* args) {
    const char *path, *topic;
    int force;
    if (!PyArg_ParseTuple(args, "ssp", &path, &topic, &force)) return nullptr;
    bool removed = false;
    bool done = with_roster(topic, [&](int64_t patience_ns) {
        auto directory = Directory::at(path, false);
        removed = unlink_topic(directory, topic, force, FileKind::ring, patience_ns);
    });
    return done ? PyBool_FromLong(removed) : nullptr;
}

// unlink_if_dead(directory, topic): True if it had no living participants and was removed.
PyObject* unlink_dead(PyObject*, PyObject* args) {
    const char *path, *topic;
    if (!PyArg_ParseTuple(args, "ss", &path, &topic)) return nullptr;
    bool removed;
    try {
        WithoutGil unlocked;
        removed = unlink_if_dead(Directory::at(path, false), topic);
    } catch (const Failure& failure) {
        return raise(failure);
    }
    return PyBool_FromLong(removed);
}

}  // namespace

PyMethodDef inspect_methods[] = {
    {"inspect", entry<inspect>, METH_VARARGS, "An Inspection of a topic."},
    {"inspect_all", entry<inspect_all>, METH_VARARGS,
     "The Inspection of each topic in a directory; None: unreadable."},
    {"peek", entry<peek>, METH_VARARGS, "The newest messages of a topic, without joining it."},
    {"topics", entry<topics>, METH_VARARGS, "The names of the topics in a directory."},
    {"unlink", entry<unlink>, METH_VARARGS, "Remove a topic."},
    {"unlink_if_dead", entry<unlink_dead>, METH_VARARGS, "Remove a topic if it has no living participants."},
    {"clean_waiting", entry<clean_waiting>, METH_VARARGS,
     "Remove the waiting files of processes that have all died."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace ringmain::py
