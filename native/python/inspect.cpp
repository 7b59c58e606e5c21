// Inspecting topics from outside: the topics of a directory, their participants, their newest messages; and removing
// topics. Inspecting takes no slot, writes nothing and slows no process.
#include <dirent.h>

#include <algorithm>
#include <vector>

#include "endpoint.hpp"
#include "publisher.hpp"
#include "py.hpp"

namespace ringmain::py {

namespace {

// A key of a record, made once: a scrape of many topics makes thousands of records.
#define KEY(name)                                                                 \
    ([] {                                                                         \
        static PyObject* const key = PyUnicode_InternFromString(name); /* kept */ \
        return key;                                                               \
    }())

PyObject* participant_record(const ParticipantInfo& p) {
    return Py_BuildValue(
        "{OIOsOIOIOKOKOOOKOKOKOKOKOKOKOKOOOIOKOOOsOKOK}", KEY("slot"), p.slot, KEY("role"), role_name(p.role),
        KEY("pid"), p.pid, KEY("uid"), p.uid, KEY("pid_namespace"), p.pid_namespace, KEY("started_ticks"),
        p.started_ticks, KEY("same_namespace"), p.same_namespace ? Py_True : Py_False, KEY("generation"),
        p.generation, KEY("joined_ns"), p.joined_ns, KEY("position"), p.position, KEY("sequence"), p.sequence,
        KEY("messages"), p.messages, KEY("bytes"), p.bytes, KEY("lost"), p.lost, KEY("hold"), p.hold,
        KEY("holding"), p.hold == kNoHold ? Py_False : Py_True, KEY("waits_for"), p.waits_for,
        KEY("blocked_ns"), p.blocked_ns, KEY("alive"), p.alive ? Py_True : Py_False, KEY("name"),
        p.name.c_str(), KEY("taken_ns"), p.taken_ns, KEY("redelivered"), p.redelivered);
}

// Of a shared contract: no message below it is free or taken.
uint64_t first_unfinished(const WorkQueue& queue, const TopicFile& s) {
    uint64_t at = queue.cursor();
    for (uint32_t i : taken_slots(s))
        if (slot_has_role(s, i, Role::reader))
            at = std::min(at, s.slot(i).taken_from.load(std::memory_order_relaxed));
    return at;
}

// Of a shared contract: how many messages are free, and how many each slot has taken, as a list of (slot, count). Nothing is
// held during the walk: where a writer laps it, it ends.
PyObject* count_work(const Ring& ring, const TopicFile& s) {
    uint64_t commit = ring.header.commit.load(std::memory_order_acquire) & kPositionMask;
    WorkQueue queue(ring);
    uint64_t at = first_unfinished(queue, s);
    uint64_t waiting = 0;
    std::vector<uint64_t> taken(s.slot_count);
    while (at < commit && commit - at <= ring.capacity_bytes) {
        TaskMark mark = queue.look(at);
        if (mark.owner == TaskMark::kFree) ++waiting;
        if (mark.owner > 0 && mark.owner <= s.slot_count) ++taken[mark.owner - 1];
        at += Envelope::load(ring, at).bytes();
    }
    Ref list(PyList_New(0));
    for (uint32_t i = 0; i < s.slot_count; ++i)
        if (taken[i] && !append(list, Ref(Py_BuildValue("IK", i, taken[i])))) return nullptr;
    return list ? Py_BuildValue("KO", waiting, list.get()) : nullptr;
}

const char* state_of(const Ring& ring, const TopicFile& s, uint64_t seq) {
    uint64_t commit = ring.header.commit.load(std::memory_order_acquire) & kPositionMask;
    WorkQueue queue(ring);
    for (uint64_t at = first_unfinished(queue, s); at < commit && commit - at <= ring.capacity_bytes;) {
        Envelope envelope = Envelope::load(ring, at);
        if (envelope.seq == seq) {
            TaskMark mark = queue.look(at);
            if (mark.owner == TaskMark::kDone) break;
            if (mark.owner == TaskMark::kFree) return mark.returns ? "returned" : "free";
            uint32_t slot = static_cast<uint32_t>(mark.owner - 1);
            return slot < s.slot_count && slot_taken(s, slot) && slot_alive(s, slot) ? "taken" : "orphaned";
        }
        at += envelope.bytes();
    }
    return "done";
}

// task_state(publisher, seq): of a message on a shared contract: "free", "taken" by a living worker, "orphaned" by a dead one,
// "returned" by a dead one or one that gave it back, or "done".
PyObject* task_state(PyObject*, PyObject* args) {
    PyObject* self;
    unsigned long long seq;
    if (!PyArg_ParseTuple(args, "O!K", publisher_type, &self, &seq)) return nullptr;
    PublisherState* p = reinterpret_cast<PublisherObject*>(self)->state;
    if (!p->open() || !p->ring().contract.shared) return PyUnicode_FromString("done");
    return PyUnicode_FromString(state_of(p->ring(), p->participant->topic_file(), seq));
}

// The number of the next message. It is the only word of the ring that is needed, so the ring is not mapped.
uint64_t next_sequence(const TopicFile& s, uint64_t commit) {
    uint64_t next = 0;
    auto at = static_cast<off_t>(s.data_offset + commit % s.capacity_bytes);
    if (pread(s.fd(), &next, sizeof next, at) != sizeof next)
        throw Failure{Fault::corrupt, "topic '" + s.topic + "' is shorter than its header says"};
    return next;
}

// (how many kinds the table takes, how many it has, how many messages found no entry)
PyObject* count_kept(const Ring& ring) {
    uint32_t used = 0;
    KeptTable table(ring);
    for (uint32_t i = 0; i < ring.kept_kinds; ++i)
        used += table.hash(i).load(std::memory_order_relaxed) != 0;  // relaxed: statistics, as the next
    return Py_BuildValue("IIK", ring.kept_kinds, used, ring.header.not_kept.load(std::memory_order_relaxed));
}

PyObject* inspection(const std::shared_ptr<Directory>& directory, std::string_view topic) {
    std::shared_ptr<TopicFile> s = TopicFile::open(directory, topic, Access::inspect);
    Header& h = s->header();
    uint64_t commit = h.commit.load(std::memory_order_acquire) & kPositionMask;
    uint64_t tail = h.tail.load(std::memory_order_relaxed);
    uint64_t next = next_sequence(*s, commit);
    std::string schema = s->schema();
    Ref participants(PyList_New(0));
    for (uint32_t i : taken_slots(*s))
        if (!append(participants, Ref(participant_record(look_at(*s, i, slot_alive(*s, i)))))) return nullptr;
    if (!participants) return nullptr;
    Ref work(Ref::to(Py_None));
    if (traits(s->contract).shared) {  // whose messages have to be looked at
        std::shared_ptr<TopicFile> mapped = TopicFile::open(directory, topic, Access::observe);
        work = Ref(count_work(ring_of(*mapped), *mapped));
    }
    if (!work) return nullptr;
    Ref kept(Ref::to(Py_None));
    if (s->kept_kinds != 0) kept = Ref(count_kept(ring_of(*s)));
    if (!kept) return nullptr;
    auto turn = static_cast<uint32_t>(h.turn.load(std::memory_order_relaxed) & kTurnOwner);
    return Py_BuildValue("{OsOKOIOKOKOKOKOOOy#OIOOOOOO}", KEY("contract"), traits(s->contract).name,
                         KEY("capacity_bytes"), s->capacity_bytes, KEY("max_participants"), s->slot_count,
                         KEY("epoch"), s->epoch, KEY("next_sequence"), next, KEY("position"), commit,
                         KEY("used_bytes"), commit >= tail ? std::min(commit - tail, s->capacity_bytes) : 0,
                         KEY("persist"), s->persists() ? Py_True : Py_False, KEY("schema"), schema.data(),
                         static_cast<Py_ssize_t>(schema.size()), KEY("turn"), turn, KEY("participants"),
                         participants.get(), KEY("work"), work.get(), KEY("kept"), kept.get());
}

// inspect(directory, topic): an Inspection, as _ring.pyi types it.
PyObject* inspect(PyObject*, PyObject* args) {
    const char *path, *topic;
    if (!PyArg_ParseTuple(args, "ss", &path, &topic)) return nullptr;
    try {
        return inspection(std::make_shared<Directory>(path, false), topic);
    } catch (const Failure& failure) {
        return raise(failure);
    }
}

// The names that the files of one kind in a directory belong to.
std::vector<std::string> names_in(const Directory& directory, FileKind kind) {
    std::vector<std::string> names;
    if (DIR* entries = fdopendir(dup(directory.fd()))) {
        rewinddir(entries);
        while (const dirent* entry = readdir(entries))
            if (std::string name = topic_name(entry->d_name, kind); !name.empty()) names.push_back(name);
        closedir(entries);
    }
    return names;
}

// inspect_all(directory): the Inspection of each topic by its name, None for one that cannot be read. The directory is
// opened once, which is a third of the work.
PyObject* inspect_all(PyObject*, PyObject* args) {
    const char* path;
    if (!PyArg_ParseTuple(args, "s", &path)) return nullptr;
    Ref all(PyDict_New());
    if (!all) return nullptr;
    try {
        auto directory = std::make_shared<Directory>(path, false);
        std::vector<std::string> names = names_in(*directory, FileKind::ring);
        std::sort(names.begin(), names.end());
        for (const std::string& name : names) {
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

// peek(directory, topic, count, max_bytes): the newest messages that are whole, oldest first, as (seq, time_ns, sender,
// kind, size, data). The data of one larger than max_bytes is None.
PyObject* peek(PyObject*, PyObject* args) {
    const char *path, *topic;
    Py_ssize_t count, max_bytes;
    if (!PyArg_ParseTuple(args, "ssnn", &path, &topic, &count, &max_bytes)) return nullptr;
    Ref list(PyList_New(0));
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
            bool shown = static_cast<Py_ssize_t>(e.size) <= max_bytes && e.bytes() <= ring.capacity_bytes;
            std::string names(static_cast<size_t>(e.sender_size) + e.kind_size, '\0'),
                data(shown ? e.size : 0, '\0');
            copy_out(names.data(), ring.at(at) + sizeof(MessageHeader), names.size());
            copy_out(data.data(), ring.at(at) + payload_offset(e.sender_size, e.kind_size), data.size());
            if (!intact(ring, at)) continue;
            Ref body(shown ? PyBytes_FromStringAndSize(data.data(), static_cast<Py_ssize_t>(data.size()))
                           : Py_NewRef(Py_None));
            Ref sender(PyUnicode_DecodeUTF8(names.data(), e.sender_size, "replace"));
            Ref kind(PyUnicode_DecodeUTF8(names.data() + e.sender_size, e.kind_size, "replace"));
            if (!body || !sender || !kind) return nullptr;
            Ref item(Py_BuildValue("KLOOIO", e.seq, static_cast<long long>(e.time_ns), sender.get(),
                                   kind.get(), e.size, body.get()));
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
    std::sort(names.begin(), names.end());
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
        auto directory = std::make_shared<Directory>(path, false);
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
    bool removed;
    try {
        WithoutGil unlocked;
        removed = unlink_topic(std::make_shared<Directory>(path, false), topic, force);
    } catch (const Failure& failure) {
        return raise(failure);
    }
    return PyBool_FromLong(removed);
}

// unlink_if_dead(directory, topic): True if it had no living participants and was removed.
PyObject* unlink_dead(PyObject*, PyObject* args) {
    const char *path, *topic;
    if (!PyArg_ParseTuple(args, "ss", &path, &topic)) return nullptr;
    bool removed;
    try {
        WithoutGil unlocked;
        removed = unlink_if_dead(std::make_shared<Directory>(path, false), topic);
    } catch (const Failure& failure) {
        return raise(failure);
    }
    return PyBool_FromLong(removed);
}

}  // namespace

PyMethodDef inspect_methods[] = {
    {"inspect", inspect, METH_VARARGS, "An Inspection of a topic."},
    {"inspect_all", inspect_all, METH_VARARGS,
     "The Inspection of each topic in a directory; None: unreadable."},
    {"task_state", task_state, METH_VARARGS, "What has become of a message on a shared contract."},
    {"peek", peek, METH_VARARGS, "The newest messages of a topic, without joining it."},
    {"topics", topics, METH_VARARGS, "The names of the topics in a directory."},
    {"unlink", unlink, METH_VARARGS, "Remove a topic."},
    {"unlink_if_dead", unlink_dead, METH_VARARGS, "Remove a topic if it has no living participants."},
    {"clean_waiting", clean_waiting, METH_VARARGS,
     "Remove the waiting files of processes that have all died."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace ringmain::py
