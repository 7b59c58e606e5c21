// ringmain._ring.Track and replay(): rows of a recording become messages again, with no Python object for each.
//
// A Track has the columns of consecutive rows of one topic, how far they are published, and the publisher for them. replay()
// merges the tracks by publish time and publishes what is due. Owns these invariants: a track's rows are published in their
// order, each once; `at` counts exactly those that are published; offsets are checked before a byte of a message is read.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "python/publisher.hpp"

namespace ringmain::py {

namespace {

constexpr int64_t kSpin_ns =
    250'000;  // a sleep may end this much late, so the rest is spent looking at the clock
constexpr int64_t kSlice_ns = 2'000'000;  // then Python looks whether it is paused, and other threads run
constexpr size_t kRun = 256;              // messages that are sealed with one reading of the clock

// A column's buffer, as pyarrow has it, and the row in it that is our first.
struct Buffer {
    Py_buffer view{};
    Buffer() = default;
    ~Buffer() { PyBuffer_Release(&view); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    template <class T>
    bool has(Py_ssize_t first, Py_ssize_t rows) const {
        return reinterpret_cast<uintptr_t>(view.buf) % alignof(T) == 0 && first >= 0 && rows >= 0 &&
               first <= view.len && rows <= view.len / static_cast<Py_ssize_t>(sizeof(T)) - first;
    }
    template <class T>
    const T* from(Py_ssize_t first) const {
        return static_cast<const T*>(view.buf) + first;
    }
};

template <class T>
struct Numbers {
    Buffer values;
    Py_ssize_t first = 0;

    bool parse(PyObject* given, Py_ssize_t rows) {
        return PyArg_ParseTuple(given, "ny*", &first, &values.view) && values.has<T>(first, rows);
    }
    T of(Py_ssize_t row) const { return values.from<T>(first)[row]; }
};

struct Texts {
    Buffer ends, bytes;
    Py_ssize_t first = 0;

    bool parse(PyObject* given, Py_ssize_t rows) {
        if (!PyArg_ParseTuple(given, "ny*z*", &first, &ends.view, &bytes.view) ||
            !ends.has<int32_t>(first, rows + 1))
            return false;
        const int32_t* end = ends.from<int32_t>(first);
        if (end[0] < 0 || end[rows] > bytes.view.len) return false;
        for (Py_ssize_t row = 0; row < rows; ++row)
            if (end[row] > end[row + 1]) return false;
        return true;
    }
    std::string_view of(Py_ssize_t row) const {
        const int32_t* end = ends.from<int32_t>(first) + row;
        return {bytes.from<char>(end[0]), static_cast<size_t>(end[1] - end[0])};
    }
};

struct TrackState {
    Ref publisher;  // none: Python publishes these
    Py_ssize_t rows = 0, at = 0;
    Numbers<int64_t> seq, micros;
    Numbers<int16_t> nanos;
    Texts sender, kind, extension, payload;

    int64_t time_ns(Py_ssize_t row) const { return micros.of(row) * 1000 + nanos.of(row); }
};

struct TrackObject {
    PyObject_HEAD TrackState* state;
};
PyTypeObject* track_type;

TrackState& track_of(PyObject* self) { return *reinterpret_cast<TrackObject*>(self)->state; }

// When rows are due, by the monotonic clock.
struct Pace {
    int64_t first_ns, base_ns;  // the recorded time that is due at this moment
    double speed;               // infinite: all are due

    int64_t due_ns(int64_t time_ns) const {
        return base_ns + static_cast<int64_t>(static_cast<double>(time_ns - first_ns) / speed);
    }
    bool keeps_time() const { return !std::isinf(speed); }
};

enum class Why { ended, before, early, yours, invalid, slice, raised };
constexpr const char* kWhy[] = {"ended", "before", "early", "yours", "invalid", "slice"};

struct Progress {
    Why why = Why::slice;
    Py_ssize_t track = 0;
    uint64_t messages = 0, bytes = 0;
    int64_t time_ns = 0, due_ns = 0, late_ns = -1, late_max_ns = 0;
};

bool envelope_fits(const TrackState& t, Py_ssize_t row) {
    return std::max(t.sender.of(row).size(), t.extension.of(row).size() + t.kind.of(row).size()) <=
           kMaxEnvelopeNameBytes;
}

// Publishes rows from `at` to `end`, which have one sender, kind and extension; as many as there is room for become visible together.
// As send_all, never so many that they would overwrite one of their own. False: raised.
bool publish(TrackState& t, Py_ssize_t end, bool original, Deadline& deadline) {
    PyObject* self = t.publisher.get();
    PublisherState& p = *reinterpret_cast<PublisherObject*>(self)->state;
    OneAtATime turn(p.caller, &deadline);
    if (turn.late) return raise_late(p, deadline) != nullptr;
    if (!turn.entered || !usable(self)) return false;
    std::string_view sender = t.sender.of(t.at), kind = t.kind.of(t.at);
    std::string both;
    if (std::string_view extension = t.extension.of(t.at); !extension.empty())
        kind = both.append(extension).append(kind);
    uint64_t envelope = align_up(sender.size() + kind.size());
    for (Py_ssize_t row = t.at; row < end; ++row)
        if (size_t size = t.payload.of(row).size(); size + envelope > p.largest_bytes)
            return row == t.at ? raise_too_large(p, size, envelope) != nullptr
                               : publish(t, row, original, deadline);
    auto room = [&](Py_ssize_t row) {
        return room_for(footprint(t.payload.of(row).size(), sender.size(), kind.size()));
    };
    Writer& w = *p.writer;
    std::string_view run[kRun];
    while (t.at < end) {
        if (!start_message(p, room(t.at), deadline)) return false;
        uint64_t committed = w.position(), capacity = p.ring().capacity_bytes;
        auto can_follow = [&](uint64_t next) {
            bool fits = w.position() - committed + std::max(next, capacity / 8) <= capacity;
            return fits && w.prepare(next) == Status::ok;
        };
        int64_t now_ns = p.clock.now_ns();
        Py_ssize_t row = t.at;
        do {
            std::string_view data = t.payload.of(row);
            if (original || data.size() >= kLargeCopyBytes) {
                copy_payload(p.copying, w.payload(sender.size(), kind.size()), data.data(), data.size());
                uint64_t seq = original ? static_cast<uint64_t>(t.seq.of(row)) : w.seq();
                w.seal(seq, original ? t.time_ns(row) : now_ns, data.size(), sender, kind);
                ++row;
                continue;
            }
            size_t count = std::min(kRun, static_cast<size_t>(end - row));
            for (size_t i = 0; i < count; ++i) {
                run[i] = t.payload.of(row + static_cast<Py_ssize_t>(i));
                if (run[i].size() >= kLargeCopyBytes) count = i;
            }
            row += static_cast<Py_ssize_t>(
                w.seal_run(run, count, committed + capacity - capacity / 8, now_ns, sender, kind));
        } while (row < end && can_follow(room(row)));
        w.commit();
        t.at = row;
    }
    return true;
}

// How many rows from `at` on go out together: those of one sender, kind and extension, before `limit_ns`, or at it where `or_at`.
Py_ssize_t end_of_run(const TrackState& t, int64_t limit_ns, bool or_at, Py_ssize_t most) {
    std::string_view sender = t.sender.of(t.at), kind = t.kind.of(t.at), extension = t.extension.of(t.at);
    Py_ssize_t row = t.at + 1, last = std::min(t.rows, t.at + most);
    while (row < last) {
        int64_t time_ns = t.time_ns(row);
        if (!(time_ns < limit_ns || (or_at && time_ns == limit_ns))) break;
        if (t.kind.of(row) != kind || t.sender.of(row) != sender || t.extension.of(row) != extension) break;
        ++row;
    }
    return row;
}

struct Head {
    int64_t time_ns;
    Py_ssize_t track;  // of those at the same time, the first goes first
    bool operator<(const Head& other) const {
        return time_ns != other.time_ns ? time_ns > other.time_ns : track > other.track;  // for a heap
    }
};

Progress play(const std::vector<TrackState*>& tracks, int64_t before_ns, const Pace& pace, Py_ssize_t most,
              bool original, Deadline& deadline) {
    Progress out;
    std::vector<Head> heads;
    heads.reserve(tracks.size());
    for (size_t i = 0; i < tracks.size(); ++i)
        if (tracks[i]->at < tracks[i]->rows)
            heads.push_back({tracks[i]->time_ns(tracks[i]->at), static_cast<Py_ssize_t>(i)});
    std::make_heap(heads.begin(), heads.end());
    int64_t began_ns = monotonic_ns(), now_ns = began_ns;
    while (now_ns - began_ns < kSlice_ns && most > 0) {
        if (heads.empty() || heads.front().time_ns >= before_ns) {
            out.why = heads.empty() ? Why::ended : Why::before;
            return out;
        }
        Head head = heads.front();
        TrackState& t = *tracks[static_cast<size_t>(head.track)];
        out.track = head.track;
        int64_t limit_ns = before_ns - 1;
        if (pace.keeps_time()) {
            int64_t due_ns = pace.due_ns(head.time_ns);
            if (due_ns - now_ns > kSpin_ns) {
                out.why = Why::early;
                out.due_ns = due_ns;
                return out;
            }
            while (now_ns < due_ns) now_ns = monotonic_ns();
            out.late_ns = now_ns - due_ns;
            out.late_max_ns = std::max(out.late_max_ns, out.late_ns);
            // What else is due by now; of what is not, each waits for its own time.
            double passed = static_cast<double>(now_ns - pace.base_ns) * pace.speed;
            limit_ns = std::min(limit_ns, pace.first_ns + static_cast<int64_t>(passed));
        }
        if (!t.publisher) {
            out.why = Why::yours;
            return out;
        }
        if (!envelope_fits(t, t.at)) {
            out.why = Why::invalid;
            return out;
        }
        std::pop_heap(heads.begin(), heads.end());
        heads.pop_back();
        bool first = heads.empty() || head.track < heads.front().track;
        bool others = !heads.empty() && heads.front().time_ns <= limit_ns;
        Py_ssize_t from = t.at;
        Py_ssize_t end = end_of_run(t, others ? heads.front().time_ns : limit_ns, !others || first,
                                    std::min<Py_ssize_t>(most, static_cast<Py_ssize_t>(kRun)));
        bool done = publish(t, end, original, deadline);
        if (t.at > from) out.time_ns = t.time_ns(t.at - 1);
        out.messages += static_cast<uint64_t>(t.at - from);
        for (Py_ssize_t row = from; row < t.at; ++row) out.bytes += t.payload.of(row).size();
        most -= t.at - from;
        if (!done) {
            // What was published is counted; the next call meets the same obstacle first.
            bool again = out.messages > 0 && raised("Full");
            if (again) PyErr_Clear();
            out.why = again ? Why::slice : Why::raised;
            return out;
        }
        if (t.at == t.rows) {
            out.why = Why::ended;
            return out;
        }
        heads.push_back({t.time_ns(t.at), head.track});
        std::push_heap(heads.begin(), heads.end());
        now_ns = monotonic_ns();
    }
    return out;
}

// replay(tracks, before_ns, first_ns, base_ns, speed, most, original, timeout_s): see _ring.pyi.
PyObject* replay(PyObject*, PyObject* args) {
    PyObject* given;
    long long before_ns;
    Pace pace;
    long long first_ns, base_ns;
    Py_ssize_t most;
    int original;
    double timeout_s;
    if (!PyArg_ParseTuple(args, "O!LLLdnpd", &PyList_Type, &given, &before_ns, &first_ns, &base_ns,
                          &pace.speed, &most, &original, &timeout_s))
        return nullptr;
    pace.first_ns = first_ns;
    pace.base_ns = base_ns;
    std::vector<TrackState*> tracks;
    Ref kept(
        PyList_GetSlice(given, 0, PyList_Size(given)));  // another thread may change the list while we wait
    if (!kept) return nullptr;
    for (Py_ssize_t i = 0; i < PyList_Size(kept.get()); ++i) {
        PyObject* item = PyList_GetItem(kept.get(), i);
        if (!PyObject_TypeCheck(item, track_type)) {
            PyErr_SetString(PyExc_TypeError, "replay() takes a list of tracks");
            return nullptr;
        }
        tracks.push_back(&track_of(item));
    }
    Deadline deadline(static_cast<int64_t>(timeout_s * 1e9));
    Progress out = play(tracks, before_ns, pace, most, original != 0, deadline);
    if (out.why == Why::raised) return nullptr;
    return Py_BuildValue("snKKLLLL", kWhy[static_cast<int>(out.why)], out.track,
                         static_cast<unsigned long long>(out.messages),
                         static_cast<unsigned long long>(out.bytes), static_cast<long long>(out.time_ns),
                         static_cast<long long>(out.due_ns), static_cast<long long>(out.late_ns),
                         static_cast<long long>(out.late_max_ns));
}

// Track(rows, seq, publish_time, publish_ns, sender, kind, extension, payload): of each column the first row, and its buffers.
PyObject* create(PyTypeObject* type, PyObject* args, PyObject*) {
    Py_ssize_t rows;
    PyObject* columns[7];
    if (!PyArg_ParseTuple(args, "nO!O!O!O!O!O!O!", &rows, &PyTuple_Type, &columns[0], &PyTuple_Type,
                          &columns[1], &PyTuple_Type, &columns[2], &PyTuple_Type, &columns[3], &PyTuple_Type,
                          &columns[4], &PyTuple_Type, &columns[5], &PyTuple_Type, &columns[6]))
        return nullptr;
    Ref self(allocate(type));
    if (!self) return nullptr;
    TrackState& t = *(reinterpret_cast<TrackObject*>(self.get())->state = new TrackState);
    t.rows = rows;
    bool good = rows > 0 && t.seq.parse(columns[0], rows) && t.micros.parse(columns[1], rows) &&
                t.nanos.parse(columns[2], rows) && t.sender.parse(columns[3], rows) &&
                t.kind.parse(columns[4], rows) && t.extension.parse(columns[5], rows) &&
                t.payload.parse(columns[6], rows);
    if (!good && !PyErr_Occurred())
        PyErr_SetString(
            PyExc_ValueError,
            "a track needs at least one row, aligned columns that hold all, and offsets in their data");
    return good ? self.release() : nullptr;
}

PyObject* get_at(PyObject* self, void*) { return PyLong_FromSsize_t(track_of(self).at); }
PyObject* get_time_ns(PyObject* self, void*) {
    const TrackState& t = track_of(self);
    return t.at < t.rows ? PyLong_FromLongLong(t.time_ns(t.at)) : Py_NewRef(Py_None);
}

PyObject* skip(PyObject* self, PyObject*) {
    TrackState& t = track_of(self);
    t.at = std::min(t.rows, t.at + 1);
    Py_RETURN_NONE;
}

PyObject* set_publisher(PyObject* self, PyObject* publisher) {
    if (!PyObject_TypeCheck(publisher, publisher_type)) {
        PyErr_SetString(PyExc_TypeError, "a track's publisher is a Publisher of this module");
        return nullptr;
    }
    track_of(self).publisher = Ref::to(publisher);
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {{"skip", entry<skip>, METH_NOARGS, "Go on after the next row."},
                         {"set_publisher", entry<set_publisher>, METH_O, "Who publishes the rows."},
                         {nullptr, nullptr, 0, nullptr}};

PyGetSetDef attributes[] = {{"at", entry<get_at>, nullptr, "Rows that are published, or skipped.", nullptr},
                            {"time_ns", entry<get_time_ns>, nullptr,
                             "The recorded time of the next row; None after the last.", nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(entry<create>)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy<TrackObject>)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, attributes},
                       {Py_tp_doc, const_cast<char*>("Rows of a recording that are published again.")},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.Track", sizeof(TrackObject), 0, Py_TPFLAGS_DEFAULT, slots};

PyMethodDef functions[] = {
    {"replay", entry<replay>, METH_VARARGS, "Publish the rows of tracks that are due."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_replay(PyObject* module) {
    return (track_type = add_type(module, spec)) && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace ringmain::py
