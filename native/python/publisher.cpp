// ringmain._ring.Publisher: the hot half of a publisher. The rest is src/ringmain/_publisher.py.
// Here it sends; publisher_options.cpp has its other methods.
#include "python/publisher.hpp"

#include <vector>

#include "topic/writing.hpp"

namespace ringmain::py {

namespace {

// Sends encoded bytes. A bridge or a replay passes the number and time that the message had.
[[gnu::always_inline]] inline PyObject* send_bytes(PublisherState& p, const Bytes& data,
                                                   std::string_view kind, Deadline& deadline,
                                                   const uint64_t* explicit_seq = nullptr,
                                                   int64_t explicit_time_ns = 0,
                                                   BeforeCommit* before = nullptr) {
    uint64_t size = static_cast<uint64_t>(data.size);
    uint64_t envelope = align_up(p.sender.size() + kind.size());
    if (size + envelope > p.largest_bytes) return raise_too_large(p, size, envelope);
    Writer& w = *p.writer;
    if (!start_message(p, room_for(footprint(size, p.sender.size(), kind.size())), deadline)) return nullptr;
    uint64_t seq = explicit_seq ? *explicit_seq : w.seq();
    if (size < kLargeCopyBytes && !explicit_seq) [[likely]] {
        std::string_view message(data.data, size);
        w.seal_run(&message, 1, UINT64_MAX, p.clock.now_ns(), p.sender, kind);
    } else {
        copy_payload(p.copying, w.payload(p.sender.size(), kind.size()), data.data, size);
        w.seal(seq, explicit_seq ? explicit_time_ns : p.clock.now_ns(), size, p.sender, kind);
    }
    if (before) before->numbered(seq);
    w.commit();
    return PyLong_FromLong(static_cast<long>(seq));
}

// Raises the TypeError that says what the topic carries. In place of the TypeError that is being raised, if there is one;
// any other exception stays.
[[gnu::cold, gnu::noinline]] PyObject* raise_wrong_type(const PublisherState& p, PyObject* object) {
    PyObject *type = nullptr, *cause = nullptr, *trace = nullptr;
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return nullptr;
        PyErr_Fetch(&type, &cause, &trace);
        PyErr_NormalizeException(&type, &cause, &trace);
    }
    Ref first(type), second(cause), third(trace);
    Ref errors(PyImport_ImportModule("ringmain.errors"));
    if (!errors) return nullptr;
    PyObject* accepts = p.accepts ? p.accepts.get() : Py_None;
    Ref error(PyObject_CallMethod(errors.get(), "wrong_type", "sOOO", p.topic.c_str(), accepts, object,
                                  cause && p.encoder ? cause : Py_None));
    if (!error) return nullptr;
    if (cause) PyException_SetCause(error.get(), second.release());
    PyErr_SetObject(PyExc_TypeError, error.get());
    return nullptr;
}

// msgspec would encode any object, so objects of other classes are refused here.
PyObject* encode(const PublisherState& p, PyObject* object) {
    if (p.accepts) {
        int fits = PyObject_IsInstance(object, p.accepts.get());
        if (fits == 0) return raise_wrong_type(p, object);
        if (fits != 1) return nullptr;
    }
    PyObject* encoded = PyObject_CallFunctionObjArgs(p.encoder.get(), object, nullptr);
    return encoded ? encoded : raise_wrong_type(p, object);
}

[[gnu::always_inline]] inline PyObject* send_encoded(PyObject* self, PublisherState& p, PyObject* object,
                                                     std::string_view kind, int64_t timeout_ns,
                                                     BeforeCommit* before = nullptr) {
    Ref encoded;
    if (p.encoder) {
        encoded = Ref(encode(p, object));
        if (!encoded) return nullptr;
    }
    Bytes data;
    if (!data.get(encoded ? encoded.get() : object)) [[unlikely]]
        return raise_wrong_type(p, object);
    Deadline deadline(timeout_ns);
    OneAtATime turn(p.caller, &deadline);
    if (turn.late) [[unlikely]]
        return raise_late(p, deadline);
    return turn.entered && usable(self) ? send_bytes(p, data, kind, deadline, nullptr, 0, before) : nullptr;
}

[[gnu::noinline]] PyObject* send_with_options(PyObject* self, PyObject* const* args, Py_ssize_t count,
                                              PyObject* names) {
    PublisherState* p = reinterpret_cast<PublisherObject*>(self)->state;
    PyObject* given[3] = {};
    static const char* const kNames[] = {"data", "kind", "timeout"};
    if (count == 1 && !names)
        given[0] = args[0];
    else if (!parse_arguments("send", args, count, names, kNames, 1, given, 3))
        return nullptr;
    std::string_view kind;
    int64_t timeout_ns = kForever;
    if (given[1] && !said_of(given[1], kind)) return nullptr;
    if (given[2] && !parse_timeout(given[2], timeout_ns)) return nullptr;
    return send_encoded(self, *p, given[0], kind, timeout_ns);
}

// The most common case by itself, with a third fewer instructions: `bytes` without a kind, and nothing to wait for. It keeps the GIL,
// so another thread need not be kept out. Nothing in it throws but the rest, which is an entry of its own: that saves 17 instructions.
PyObject* send(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    PublisherState& p = *reinterpret_cast<PublisherObject*>(self)->state;
    if (count == 1 && !names && PyBytes_CheckExact(args[0]) && p.fast_path_ok()) [[likely]] {
        std::string_view data = view_of_bytes(args[0]), sender = p.sender;
        uint64_t envelope = align_up(sender.size());
        if (data.size() < kLargeCopyBytes && data.size() + envelope <= p.largest_bytes) [[likely]] {
            Writer& w = *p.writer;
            if (w.begin() == Status::ok) [[likely]] {
                if (w.prepare(room_for(footprint(data.size(), sender.size(), 0))) == Status::ok) [[likely]] {
                    uint64_t seq = w.seq();
                    w.seal_run(&data, 1, UINT64_MAX, p.clock.now_ns(), sender, {});
                    w.commit();
                    return PyLong_FromLong(static_cast<long>(seq));
                }
                w.end();
            }
        }
    }
    return entry<send_with_options>(self, args, count, names);
}

// send_as(data, seq, time_ns, kind): with the number and time the message had elsewhere, or new ones if the number is
// negative. The data is already encoded.
PyObject* send_as(PyObject* self, PyObject* args) {
    PublisherState* p = reinterpret_cast<PublisherObject*>(self)->state;
    PyObject *object, *kind_object = nullptr;
    long long seq, time_ns;
    double timeout = -1;
    if (!PyArg_ParseTuple(args, "OLL|Od", &object, &seq, &time_ns, &kind_object, &timeout)) return nullptr;
    std::string_view kind;
    if (kind_object && !said_of(kind_object, kind)) return nullptr;
    Bytes data;
    if (!data.get(object)) return nullptr;
    Deadline deadline(timeout < 0 ? kForever : static_cast<int64_t>(timeout * 1e9));
    OneAtATime turn(p->caller, &deadline);
    uint64_t number = static_cast<uint64_t>(seq);
    if (turn.late) return raise_late(*p, deadline);
    if (!turn.entered || !usable(self)) return nullptr;
    return send_bytes(*p, data, kind, deadline, seq < 0 ? nullptr : &number, time_ns);
}

// Of the messages of a batch: one for all, or one for each.
struct Kinds {
    std::string_view all;
    std::vector<std::string_view> each;
    Ref owner;  // of the texts of `each`

    std::string_view of(size_t i) const { return each.empty() ? all : each[i]; }
    // How many messages from this one on have the same.
    size_t alike(size_t first, size_t count) const {
        size_t end = each.empty() ? count : first + 1;
        while (end < count && each[end] == each[first]) ++end;
        return end - first;
    }
    bool parse(PyObject* kind, PyObject* kinds, size_t count) {
        if (kind && !said_of(kind, all)) return false;
        if (!kinds || kinds == Py_None) return true;
        owner = Ref(PySequence_List(kinds));
        if (!owner) return false;
        if (!all.empty() || static_cast<size_t>(PyList_Size(owner.get())) != count) {
            PyErr_SetString(PyExc_ValueError,
                            "kinds= has one kind for each message, and then kind= has none");
            return false;
        }
        each.resize(count);
        for (size_t i = 0; i < count; ++i)
            if (!said_of(PyList_GetItem(owner.get(), static_cast<Py_ssize_t>(i)), each[i])) return false;
        return true;
    }
};

// As many messages as there is room for become visible together, with one reading of the clock and one wake-up. But never
// so many that they would overwrite one of their own: `tail` must not pass `commit`, or a death in the middle leaves a
// corrupt ring.
bool send_all(PublisherState& p, const std::vector<std::string_view>& batch, const Kinds& kinds,
              Deadline& deadline, uint64_t& sent) {
    Writer& w = *p.writer;
    int64_t now_ns = p.clock.now_ns();
    auto room = [&](size_t i) {
        return room_for(footprint(batch[i].size(), p.sender.size(), kinds.of(i).size()));
    };
    while (sent < batch.size()) {
        if (!start_message(p, room(sent), deadline)) return false;
        uint64_t committed = w.position(), capacity = p.ring().capacity_bytes;
        auto can_follow = [&](uint64_t next) {  // an eighth: the longest stride that a claim may run ahead
            bool fits = w.position() - committed + std::max(next, capacity / 8) <= capacity;
            return fits && w.prepare(next) == Status::ok;
        };
        do {
            sent += w.seal_run(&batch[sent], kinds.alike(sent, batch.size()),
                               committed + capacity - capacity / 8, now_ns, p.sender, kinds.of(sent));
        } while (sent < batch.size() && can_follow(room(sent)));
        w.commit();
    }
    return true;
}

PyObject* send_many(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    PublisherState* p = reinterpret_cast<PublisherObject*>(self)->state;
    PyObject* given[4] = {};
    static const char* const kNames[] = {"messages", "kind", "timeout", "kinds"};
    int64_t timeout_ns = kForever;
    if (!parse_arguments("send_many", args, count, names, kNames, 1, given, 4)) return nullptr;
    if (given[2] && !parse_timeout(given[2], timeout_ns)) return nullptr;
    Ref owner(PySequence_List(given[0]));
    PyObject* list = owner.get();
    if (!list) return nullptr;

    // Every message is checked before the first is sent.
    std::vector<std::unique_ptr<Bytes>> buffers;  // of what is not exactly `bytes`
    std::vector<std::string_view> batch(static_cast<size_t>(PyList_Size(list)));
    size_t largest = 0;
    Kinds kinds;
    if (!kinds.parse(given[1], given[3], batch.size())) return nullptr;
    for (size_t i = 0; i < batch.size(); ++i) {
        auto index = static_cast<Py_ssize_t>(i);
        PyObject* item = PyList_GetItem(list, index);
        if (p->encoder) {
            item = encode(*p, item);
            if (!item || PyList_SetItem(list, index, item) != 0) return nullptr;
        }
        if (PyBytes_CheckExact(item)) [[likely]] {
            batch[i] = view_of_bytes(item);
        } else {
            buffers.push_back(std::make_unique<Bytes>());
            if (!buffers.back()->get(item)) [[unlikely]]
                return raise_wrong_type(*p, item);
            batch[i] = {buffers.back()->data, static_cast<size_t>(buffers.back()->size)};
        }
        largest = std::max(largest, batch[i].size());
    }
    Ref number(PyLong_FromSize_t(batch.size()));
    if (!number) return nullptr;
    Deadline deadline(timeout_ns);
    OneAtATime turn(p->caller, &deadline);
    if (turn.late) return raise_late(*p, deadline);
    if (!turn.entered || !usable(self)) return nullptr;
    auto fits = [&](size_t size, std::string_view kind) {
        uint64_t envelope = align_up(p->sender.size() + kind.size());
        return size + envelope <= p->largest_bytes || raise_too_large(*p, size, envelope);
    };
    if (kinds.each.empty() && !fits(largest, kinds.all)) return nullptr;
    for (size_t i = 0; i < kinds.each.size(); ++i)
        if (!fits(batch[i].size(), kinds.each[i])) return nullptr;
    uint64_t sent = 0;
    if (!send_all(*p, batch, kinds, deadline, sent)) {
        // The error says how many were sent, so that none is sent twice or lost.
        SavedError error;
        error.normalize();
        Ref so_many(PyLong_FromUnsignedLongLong(sent));
        if (error.value && so_many) PyObject_SetAttrString(error.value, "sent", so_many.get());
        return nullptr;
    }
    return number.release();
}

PyObject* get_all_read(PyObject* self, void*) {
    PublisherState* p = usable(self);
    return p ? PyBool_FromLong(all_read(p->participant->topic_file())) : nullptr;
}

PyObject* is_closed(PyObject* self, void*) {
    const PublisherState* p = reinterpret_cast<PublisherObject*>(self)->state;
    return PyBool_FromLong(!p->participant || p->closing);
}

PyObject* next_sequence(PyObject* self, void*) {
    PublisherState* p = usable(self);
    if (!p) return nullptr;
    uint64_t commit = p->ring().header.commit.load(std::memory_order_acquire) & kPositionMask;
    return PyLong_FromUnsignedLongLong(p->ring().word_at(commit).load(std::memory_order_relaxed));
}

PyMethodDef methods[] = {
    {"send", method(send), METH_FASTCALL | METH_KEYWORDS,
     "send(data, kind='', timeout=None)\n--\n\nSend a message; returns its sequence number."},
    {"send_many", method(entry<send_many>), METH_FASTCALL | METH_KEYWORDS,
     "send_many(messages, kind='', timeout=None, kinds=None)\n--\n\nSend messages with one wake-up; returns "
     "how many."},
    {"wait_for_readers", method(entry<publisher_options::wait_for_readers>), METH_FASTCALL | METH_KEYWORDS,
     "wait_for_readers(count=1, timeout=None)\n--\n\nWait until so many readers have joined; returns how "
     "many."},
    {"_send_as", entry<send_as>, METH_VARARGS, "Send under a given sequence number and time."},
    {"_set_sender", entry<publisher_options::set_sender>, METH_O,
     "Set the sender of the messages from now on."},
    {"_arm", entry<publisher_options::arm>, METH_O, "Ring an Event when there may be room."},
    {"_open", method(entry<publisher_options::open>), METH_VARARGS | METH_KEYWORDS, "Join the topic."},
    {"_close", entry<publisher_options::close>, METH_NOARGS, "Leave the topic."},
    {"_describe", entry<publisher_options::describe>, METH_NOARGS, "An EndpointRecord."},
    {"_schema", entry<publisher_options::get_schema>, METH_NOARGS, "The topic's schema, as bytes."},
    {"_set_schema", entry<publisher_options::set_schema>, METH_O, "Replace the topic's schema."},
    {"_set_encoder", entry<publisher_options::set_encoder>, METH_VARARGS,
     "Set what turns an object into bytes."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef attributes[] = {
    {"all_read", entry<get_all_read>, nullptr, "Have all readers caught up?", nullptr},
    {"closed", entry<is_closed>, nullptr, "Is it closed?", nullptr},
    {"next_sequence", entry<next_sequence>, nullptr, "The sequence number of the next message.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(entry<create<PublisherObject>>)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy<PublisherObject>)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, attributes},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.Publisher", sizeof(PublisherObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

PyObject* send_object(PyObject* self, PyObject* object, std::string_view kind, int64_t timeout_ns,
                      BeforeCommit* before) {
    return send_encoded(self, *reinterpret_cast<PublisherObject*>(self)->state, object, kind, timeout_ns,
                        before);
}

bool add_publisher(PyObject* module) { return (publisher_type = add_type(module, spec)) != nullptr; }

}  // namespace ringmain::py
