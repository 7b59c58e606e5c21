// ringmain._ring.Subscriber: what of a subscriber is hot. The rest is src/ringmain/subscriber.py.
#include "subscriber.hpp"

namespace ringmain::py {

// ------------------------------------------------------------------------------------ finding the next message

SubscriberState* usable_subscriber(PyObject* self) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    if (!s->closed && !s->closing) [[likely]]
        return s;
    raise("Closed", "the subscriber of topic '" + s->topic + "' is closed");
    return nullptr;
}

static void detach(SubscriberState& s) {
    s.lost_before = s.lost();
    s.reader.reset();
    s.leases.clear();
    if (s.seat && s.seat->segment().forked) s.seat->abandon();
    s.seat.reset();
}

// Gives the seat back for good. Only inside OneAtATime.
static void leave_topic(SubscriberState& s) {
    s.closed = true;
    if (s.event) unwatch(s.event_token);
    s.lost_before = s.lost();
    std::unique_ptr<Seat> seat = std::move(s.seat);
    s.reader.reset();
    WithoutGil unlocked;
    seat.reset();
}

// 1: attached; 0: there is no such topic yet; -1: raised.
static int attach(PyObject* self, SubscriberState& s) {
    if (s.seat) detach(s);  // inherited through fork: the slot is the parent's, take one of our own
    try {
        WithoutGil unlocked;
        if (!s.directory) s.directory = std::make_shared<Directory>(s.directory_path, true);
        s.seat = join_as_reader(s.directory, s.topic, s.name, s.observe);
        if (s.seat) {
            s.reader = std::make_unique<Reader>(ring_of(s.seat->segment()), s.seat->slot(), s.on_lap,
                                                s.conflate, observes(s.observe, s.seat->segment().contract));
            if (s.reader->attach(s.came_first ? Start::oldest : s.start, s.came_first) != Status::ok)
                throw Failure{Fault::corrupt, "the ring of topic '" + s.topic +
                                                  "' contradicts itself; unlink the topic to begin anew"};
        }
    } catch (const Failure& failure) {
        s.reader.reset();
        s.seat.reset();
        raise(failure);
        return -1;
    }
    if (!s.seat) {
        s.came_first = true;
        return 0;
    }
    PyObject* done = PyObject_CallMethod(self, "_attached", nullptr);
    if (!done) {
        detach(s);
        return -1;
    }
    Py_DECREF(done);
    return 1;
}

static bool is_one_of(const std::vector<std::string>& names, const std::byte* text, size_t size) {
    for (const std::string& name : names)
        if (name.size() == size && std::memcmp(name.data(), text, size) == 0) return true;
    return false;
}

static bool screened(const SubscriberState& s, const View& view) {
    return (!s.ignored_senders.empty() && is_one_of(s.ignored_senders, view.sender(), view.sender_size)) ||
           (!s.ignored_kinds.empty() && is_one_of(s.ignored_kinds, view.kind(), view.kind_size));
}

int message_now(PyObject* self, SubscriberState& s, View& view, bool borrowing) {
    for (;;) {
        if (!s.attached()) [[unlikely]] {
            int attached = attach(self, s);
            if (attached != 1) return attached;
        }
        Reader& reader = *s.reader;
        Status status = borrowing ? reader.borrow(view) : reader.peek(view);
        if (status == Status::ok) [[likely]] {
            if (!s.screens) [[likely]]
                return 1;
            bool unwanted = screened(s, view);
            if (!reader.still_whole(view)) continue;
            if (!unwanted) return 1;
            reader.skip(view);
            reader.release(s.keep());
            continue;
        }
        if (status == Status::corrupt) {
            raise("Corrupt",
                  "the ring of topic '" + s.topic +
                      "' contradicts itself: some process wrote where it must not. Unlink the topic "
                      "(force=True) and open it anew");
            return -1;
        }
        // Empty. If the topic has lost its name, its next life is elsewhere.
        if (!s.seat->segment().retired() || reader.has_more()) return 0;
        if (!s.leases.empty()) return 0;
        detach(s);
        s.came_first = true;
    }
}

int next_message(PyObject* self, SubscriberState& s, Deadline& deadline, View& view, bool borrowing) {
    for (;;) {
        Bell appears = s.attached() || !s.directory ? Bell{} : s.directory->bell();
        int found = message_now(self, s, view, borrowing);
        if (found != 0) [[likely]]
            return found;
        int64_t left = deadline.left_ns();
        if (left == 0) return 0;
        Bell bell = appears;
        if (s.attached()) {
            Reader& reader = *s.reader;
            if (spin_until(std::min(s.spin_ns, left), [&] { return reader.has_more(); })) continue;
            bell = reader.bell();
            if (!bell.word) continue;
        }
        sleep_without_gil(bell, std::min(kSlice_ns, deadline.left_ns()));
        if (PyErr_CheckSignals() != 0) return -1;
        if (s.closing) {
            if (s.leases.empty()) leave_topic(s);
            raise("Closed", "the subscriber of topic '" + s.topic + "' was closed while it waited");
            return -1;
        }
    }
}

// What to sleep on until there may be something to read, and what keeps the word mapped. Empty: look again.
static Bell bell_of(SubscriberState& s, Bell appears, std::shared_ptr<const void>& keep) {
    if (!s.attached()) {
        keep = s.directory;
        return appears;
    }
    keep = s.seat->shared();
    return s.reader->bell();
}

// Watches for the next message. 0: one is there already, or nothing can be watched; -1: raised.
static int64_t watch_for_message(PyObject* self, SubscriberState& s, const std::shared_ptr<Event>& event) {
    for (;;) {
        Bell appears = s.attached() || !s.directory ? Bell{} : s.directory->bell();
        View view;
        int found = message_now(self, s, view);
        if (found != 0) return found < 0 ? -1 : 0;
        std::shared_ptr<const void> keep;
        Bell bell = bell_of(s, appears, keep);
        if (bell.word) return static_cast<int64_t>(watch(bell, event, keep, false));
        if (!s.attached()) return 0;
    }
}

void settle_descriptor(PyObject* self, SubscriberState& s) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    unwatch(s.event_token);
    s.event->take();
    int64_t token = s.closed ? 0 : watch_for_message(self, s, s.event);
    s.event_token = token > 0 ? static_cast<uint64_t>(token) : 0;
    if (token <= 0) s.event->ring(0);  // something to read, or trouble that the next call will tell
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

bool look_again(Deadline& deadline, int& laps) {
    constexpr int kAtOnce =
        1000;  // with a timeout of 0, what is "at once" while somebody writes over everything
    if (PyErr_CheckSignals() != 0) return false;
    return deadline.timeout_ns() == 0 ? ++laps < kAtOnce : deadline.left_ns() > 0;
}

PyObject* raise_timeout(const SubscriberState& s, const Deadline& deadline) {
    std::string text =
        "no message on topic '" + s.topic + "' within " + seconds(deadline.timeout_ns()) + ": ";
    if (!s.attached())
        return raise("Timeout", text + "there is no such topic (nobody has opened a publisher)");
    const Segment& segment = s.seat->segment();
    std::string writers;
    uint32_t used = std::min(segment.header().slots_used.load(std::memory_order_acquire), kSlotCount);
    for (uint32_t i = 0; i < used; ++i) {
        if (i == s.seat->slot() || !slot_taken(segment, i)) continue;
        Member member = look_at(segment, i, slot_alive(segment, i));
        if (member.role != Role::writer) continue;
        writers +=
            (writers.empty() ? "" : ", ") + member.describe() + (member.alive ? "" : ", which is dead");
    }
    return raise("Timeout", text + (writers.empty() ? "it has no writer" : "waiting for " + writers));
}

PyObject* raise_evicted(const SubscriberState& s) {
    return raise(
        "TakenOver",
        "this subscriber's place in topic '" + s.topic +
            "' was given to another: its lock was lost, as happens when a process closes all descriptors",
        ECONNABORTED);
}

static PyObject* cached_text(std::string& last, PyObject*& last_str, const std::byte* text, size_t size) {
    if (size == 0) return Py_NewRef(empty_str);
    char copy[kMaxEnvelopeNameBytes];
    copy_out(copy, text, size);
    if (!last_str || last.size() != size || std::memcmp(last.data(), copy, size) != 0) {
        PyObject* str = PyUnicode_DecodeUTF8(copy, static_cast<Py_ssize_t>(size), "replace");
        if (!str) return nullptr;
        Py_XDECREF(last_str);
        last_str = str;
        last.assign(copy, size);
    }
    return Py_NewRef(last_str);
}

PyObject* sender_of(SubscriberState& s, const View& view) {
    return cached_text(s.last_sender, s.last_sender_str, view.sender(), view.sender_size);
}

PyObject* kind_of(SubscriberState& s, const View& view) {
    return cached_text(s.last_kind, s.last_kind_str, view.kind(), view.kind_size);
}

PyObject* raise_decode_error(const SubscriberState& s, uint64_t seq) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject* reason = value ? PyObject_Str(value) : nullptr;
    PyObject* errors = PyImport_ImportModule("ringmain.errors");
    PyObject* error_class = errors ? PyObject_GetAttrString(errors, "DecodeError") : nullptr;
    PyObject* error = error_class && reason
                          ? PyObject_CallFunction(error_class, "sKO", s.topic.c_str(), seq, reason)
                          : nullptr;
    if (error) PyErr_SetObject(error_class, error);
    Py_XDECREF(error);
    Py_XDECREF(error_class);
    Py_XDECREF(errors);
    Py_XDECREF(reason);
    PyObject *new_type, *new_value, *new_traceback;
    PyErr_Fetch(&new_type, &new_value, &new_traceback);
    PyErr_NormalizeException(&new_type, &new_value, &new_traceback);
    if (new_value && value) PyException_SetCause(new_value, Py_NewRef(value));
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    PyErr_Restore(new_type, new_value, new_traceback);
    return nullptr;
}

namespace {

// ----------------------------------------------------------------------------------------------- receiving

// Copies the message out. A new reference; nullptr without an exception: it was overwritten meanwhile, look again.
PyObject* copy_message(SubscriberState& s, const View& view) {
    PyObject* bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(view.size));
    if (!bytes) return nullptr;
    char* to = PyBytes_AsString(bytes);
    if (view.size < kLargeCopyBytes) [[likely]] {
        copy_out(to, view.payload(), view.size);
    } else {
        WithoutGil unlocked;
        copy_out(to, view.payload(), view.size);
    }
    if (s.reader->still_whole(view)) [[likely]]
        return bytes;
    Py_DECREF(bytes);
    return nullptr;
}

// Takes ownership of `bytes`.
PyObject* decoded(const SubscriberState& s, PyObject* bytes, uint64_t seq) {
    if (!s.decoder) return bytes;
    PyObject* object = PyObject_CallFunctionObjArgs(s.decoder, bytes, nullptr);
    Py_DECREF(bytes);
    return object ? object : raise_decode_error(s, seq);
}

// The next message as an object. `whole` gives a Message, otherwise its data. nullptr without an exception: time is up.
PyObject* receive(PyObject* self, SubscriberState& s, Deadline& deadline, bool whole) {
    for (int laps = 0;;) {
        View view;
        int found = next_message_quickly(self, s, deadline, view);
        if (found != 1) return nullptr;
        PyObject* bytes = copy_message(s, view);
        if (!bytes && PyErr_Occurred()) return nullptr;
        if (!bytes && look_again(deadline, laps)) continue;
        if (!bytes) return nullptr;
        PyObject *sender = nullptr, *kind = nullptr;
        if (whole) {
            sender = sender_of(s, view);
            kind = kind_of(s, view);
            if (!sender || !kind || !s.reader->still_whole(view)) {
                Py_XDECREF(sender);
                Py_XDECREF(kind);
                Py_DECREF(bytes);
                if (PyErr_Occurred() || !look_again(deadline, laps)) return nullptr;
                continue;
            }
        }
        uint64_t lost = s.reader->take(view);
        if (!s.reader->release(s.keep())) [[unlikely]] {
            Py_XDECREF(sender);
            Py_XDECREF(kind);
            Py_DECREF(bytes);
            return raise_evicted(s);
        }
        PyObject* data = decoded(s, bytes, view.seq);
        if (!whole) return data;
        PyObject* message = data ? PyObject_CallFunction(message_class, "NKLNNK", data, view.seq,
                                                         view.time_ns, sender, kind, lost)
                                 : nullptr;
        if (!data) {
            Py_DECREF(sender);
            Py_DECREF(kind);
        }
        return message;
    }
}

PyObject* receive_within(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names, bool whole,
                         const char* function) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    int64_t timeout_ns = kForever;
    if (count != 0 || names) {
        PyObject* given[1] = {};
        static const char* const kNames[] = {"timeout"};
        if (!parse_arguments(function, args, count, names, kNames, 0, given, 1)) return nullptr;
        if (!parse_timeout(given[0], timeout_ns)) return nullptr;
    }
    Receiving turn(self, *s);
    if (!turn.entered() || !usable_subscriber(self)) return nullptr;
    Deadline deadline(timeout_ns);
    PyObject* result = receive(self, *s, deadline, whole);
    if (!result && !PyErr_Occurred()) raise_timeout(*s, deadline);
    return result;
}

PyObject* recv(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    return receive_within(self, args, count, names, false, "recv");
}

PyObject* recv_message(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    return receive_within(self, args, count, names, true, "recv_message");
}

PyObject* receive_now(PyObject* self, bool whole) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    Receiving turn(self, *s);
    if (!turn.entered() || !usable_subscriber(self)) return nullptr;
    Deadline deadline(0);
    PyObject* result = receive(self, *s, deadline, whole);
    if (result || PyErr_Occurred()) return result;
    Py_RETURN_NONE;
}

PyObject* try_recv(PyObject* self, PyObject*) { return receive_now(self, false); }
PyObject* try_recv_message(PyObject* self, PyObject*) { return receive_now(self, true); }

// Iteration waits for ever, and ends when the subscriber is closed.
PyObject* next(PyObject* self) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    Receiving turn(self, *s);
    if (!turn.entered() || s->closed || s->closing) return nullptr;
    Deadline deadline(kForever);
    PyObject* result = receive(self, *s, deadline, false);
    if (!result && s->closed) PyErr_Clear();  // closed while it waited: so a loop over messages ends
    return result;
}

PyObject* recv_many(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    PyObject* given[2] = {};
    static const char* const kNames[] = {"max_messages", "timeout"};
    int64_t timeout_ns = 0;
    if (!parse_arguments("recv_many", args, count, names, kNames, 1, given, 2)) return nullptr;
    uint64_t most = 0;
    if (!parse_count("max_messages", given[0], most)) return nullptr;
    if (given[1] && !parse_timeout(given[1], timeout_ns)) return nullptr;
    Receiving turn(self, *s);
    if (!turn.entered() || !usable_subscriber(self)) return nullptr;
    PyObject* list = PyList_New(0);
    if (!list) return nullptr;
    Deadline deadline(timeout_ns);
    View view;
    uint64_t taken = 0;
    int laps = 0;
    // Only the first is waited for; the hold moves once for all of them.
    int found = most ? next_message(self, *s, deadline, view) : 0;
    while (found == 1) {
        PyObject* bytes = copy_message(*s, view);
        if (!bytes && PyErr_Occurred()) break;
        if (bytes) {
            PyObject* data = decoded(*s, bytes, view.seq);
            // One that does not decode ends the list before it, and is what the next call begins with.
            if (data || taken == 0) s->reader->take(view);
            int added = data ? PyList_Append(list, data) : -1;
            Py_XDECREF(data);
            if (added != 0 || ++taken == most) break;
        } else if (taken > 0 || !look_again(deadline, laps)) {
            break;
        }
        Deadline now(0);
        found = next_message_quickly(self, *s, now, view);
    }
    if (s->reader && !s->reader->release(s->keep()) && !PyErr_Occurred()) raise_evicted(*s);
    if (!PyErr_Occurred()) return list;
    if (taken > 0) {  // what was taken is not thrown away: the next call meets the same trouble first
        PyErr_Clear();
        return list;
    }
    Py_DECREF(list);
    return nullptr;
}

PyObject* recv_into(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    PyObject* given[2] = {};
    static const char* const kNames[] = {"buffer", "timeout"};
    int64_t timeout_ns = kForever;
    if (!parse_arguments("recv_into", args, count, names, kNames, 1, given, 2)) return nullptr;
    if (given[1] && !parse_timeout(given[1], timeout_ns)) return nullptr;
    Py_buffer buffer;
    if (PyObject_GetBuffer(given[0], &buffer, PyBUF_WRITABLE) != 0) return nullptr;
    struct Release {
        Py_buffer& buffer;
        ~Release() { PyBuffer_Release(&buffer); }
    } release{buffer};
    Receiving turn(self, *s);
    if (!turn.entered() || !usable_subscriber(self)) return nullptr;
    Deadline deadline(timeout_ns);
    for (int laps = 0;;) {
        View view;
        int found = next_message(self, *s, deadline, view);
        if (found == 0) return raise_timeout(*s, deadline);
        if (found < 0) return nullptr;
        if (view.size > static_cast<size_t>(buffer.len)) {
            PyErr_Format(PyExc_ValueError,
                         "the next message of topic '%s' has %u bytes and the buffer %zd; it was not taken",
                         s->topic.c_str(), view.size, buffer.len);
            return nullptr;
        }
        if (view.size < kLargeCopyBytes) {
            copy_out(buffer.buf, view.payload(), view.size);
        } else {
            WithoutGil unlocked;
            copy_out(buffer.buf, view.payload(), view.size);
        }
        if (!s->reader->still_whole(view)) {
            if (look_again(deadline, laps)) continue;
            return PyErr_Occurred() ? nullptr : raise_timeout(*s, deadline);
        }
        s->reader->take(view);
        if (!s->reader->release(s->keep())) return raise_evicted(*s);
        return PyLong_FromUnsignedLong(view.size);
    }
}

// ------------------------------------------------------------------------------------- opening and closing

bool parse_start(const char* name, const char* text, Start& start) {
    std::string_view value = text;
    if (value != "latest" && value != "oldest") {
        PyErr_Format(PyExc_ValueError, "%s is 'latest' or 'oldest', not '%s'", name, text);
        return false;
    }
    start = value == "latest" ? Start::latest : Start::oldest;
    return true;
}

bool parse_observe(const char* text, Observe& observe) {
    std::string_view value = text;
    if (value != "never" && value != "pipes" && value != "always") {
        PyErr_Format(PyExc_ValueError, "observe is 'never', 'pipes' or 'always', not '%s'", text);
        return false;
    }
    observe = value == "never" ? Observe::never : value == "pipes" ? Observe::pipes : Observe::always;
    return true;
}

// open(directory, topic, start, on_lap, conflate, name, spin_ns, observe)
PyObject* open(PyObject* self, PyObject* args) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    const char *directory, *topic, *start, *on_lap, *name, *observe = "never";
    int conflate;
    long long spin_ns;
    if (!PyArg_ParseTuple(args, "sssspsL|s", &directory, &topic, &start, &on_lap, &conflate, &name, &spin_ns,
                          &observe) ||
        !parse_start("start", start, s->start) || !parse_start("on_lap", on_lap, s->on_lap) ||
        !parse_observe(observe, s->observe))
        return nullptr;
    s->directory_path = directory;
    s->topic = topic;
    s->name = name;
    s->conflate = conflate;
    s->spin_ns = spin_ns;
    s->closing = false;
    s->closed = false;  // already now: _attached() may ask what it has joined
    if (attach(self, *s) >= 0) Py_RETURN_NONE;
    s->closed = true;
    return nullptr;
}

PyObject* close(PyObject* self, PyObject*) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    if (s->closed) Py_RETURN_NONE;
    auto lent = [s] { return !s->leases.empty() && s->attached(); };
    auto refuse = [s] {
        return raise("InUse", "topic '" + s->topic +
                                  "' cannot be closed: a borrowed message, or a view of one, is still "
                                  "in use");
    };
    if (lent()) return refuse();
    s->closing = true;  // whoever waits inside gives up, and closes for us
    if (s->occupant.is_us()) Py_RETURN_NONE;
    OneAtATime turn(s->occupant);
    bool refused = turn.entered && !s->closed && lent();
    if (turn.entered && !s->closed && !refused) leave_topic(*s);
    s->closing = false;
    if (refused) return refuse();
    if (!turn.entered) return nullptr;
    Py_RETURN_NONE;
}

bool read_names(PyObject* iterable, std::vector<std::string>& names) {
    PyObject* iterator = PyObject_GetIter(iterable);
    if (!iterator) return false;
    std::vector<std::string> read;
    while (PyObject* item = PyIter_Next(iterator)) {
        std::string_view text;
        if (text_of(item, text)) read.emplace_back(text);
        Py_DECREF(item);
        if (PyErr_Occurred()) break;
    }
    Py_DECREF(iterator);
    if (PyErr_Occurred()) return false;
    names = std::move(read);
    return true;
}

PyObject* screen(PyObject* self, PyObject* args) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    PyObject *senders, *kinds;
    if (!PyArg_ParseTuple(args, "OO", &senders, &kinds) || !read_names(senders, s->ignored_senders) ||
        !read_names(kinds, s->ignored_kinds))
        return nullptr;
    s->screens = !s->ignored_senders.empty() || !s->ignored_kinds.empty();
    Py_RETURN_NONE;
}

PyObject* set_decoder(PyObject* self, PyObject* decoder) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    PyObject* old = s->decoder;
    s->decoder = decoder == Py_None ? nullptr : Py_NewRef(decoder);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

PyObject* describe(PyObject* self, PyObject*) {
    SubscriberState* s = usable_subscriber(self);
    if (!s) return nullptr;
    if (!s->attached()) Py_RETURN_NONE;
    const Segment& segment = s->seat->segment();
    return Py_BuildValue("sKKI", contract_name(segment.contract), segment.capacity_bytes, segment.epoch,
                         s->seat->slot());
}

PyObject* get_schema(PyObject* self, PyObject*) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    if (!s->attached()) return PyBytes_FromStringAndSize("", 0);
    try {
        std::string schema = s->seat->segment().schema();
        return PyBytes_FromStringAndSize(schema.data(), static_cast<Py_ssize_t>(schema.size()));
    } catch (const Failure& failure) {
        return raise(failure);
    }
}

PyObject* fileno(PyObject* self, PyObject*) {
    SubscriberState* s = usable_subscriber(self);
    if (!s) return nullptr;
    if (!s->event) {
        try {
            s->event = std::make_shared<Event>();
        } catch (const Failure& failure) {
            return raise(failure);
        }
        Receiving settles(self, *s);
    }
    return PyLong_FromLong(s->event->fd());
}

// directory_count(): how often topics have come and gone, modulo 2^32; for wait().
PyObject* directory_count(PyObject* self, PyObject*) {
    SubscriberState* s = usable_subscriber(self);
    if (!s) return nullptr;
    return PyLong_FromUnsignedLong(s->directory ? s->directory->bell().value : 0);
}

// raise_timeout(timeout): what recv(timeout) would raise, for whoever did the waiting elsewhere.
PyObject* timed_out(PyObject* self, PyObject* timeout) {
    int64_t timeout_ns;
    if (!parse_timeout(timeout, timeout_ns)) return nullptr;
    return raise_timeout(*reinterpret_cast<SubscriberObject*>(self)->state, Deadline(timeout_ns));
}

// arm(event): have the event rung when there may be something to read. The token it will give; 0: there is already.
PyObject* arm(PyObject* self, PyObject* event) {
    SubscriberState* s = usable_subscriber(self);
    if (!s) return nullptr;
    if (!PyObject_TypeCheck(event, event_type)) {
        PyErr_SetString(PyExc_TypeError, "arm() takes an Event");
        return nullptr;
    }
    OneAtATime turn(s->occupant);
    if (!turn.entered || !usable_subscriber(self)) return nullptr;
    int64_t token = watch_for_message(self, *s, event_of(event));
    return token < 0 ? nullptr : PyLong_FromLongLong(token);
}

// ----------------------------------------------------------------------------------------- waiting for several

// wait(subscribers, timeout, directory_seen): those with something to read. If a `_directory_count()` is given, also
// returns, with nothing, when topics have come or gone since.
PyObject* wait(PyObject*, PyObject* args) {
    PyObject *sequence, *timeout = nullptr;
    int64_t timeout_ns;
    long long directory_seen = -1;
    if (!PyArg_ParseTuple(args, "O|OL", &sequence, &timeout, &directory_seen) ||
        !parse_timeout(timeout, timeout_ns))
        return nullptr;
    struct Owner {
        PyObject* object;
        ~Owner() { Py_XDECREF(object); }
    } list{PySequence_List(sequence)}, ready{PyList_New(0)};
    if (!list.object || !ready.object) return nullptr;
    Py_ssize_t count = PyList_Size(list.object);
    Deadline deadline(timeout_ns);
    for (;;) {
        std::vector<Bell> bells;
        bool look_again = false, directory_changed = false;
        for (Py_ssize_t i = 0; i < count; ++i) {
            PyObject* item = PyList_GetItem(list.object, i);
            if (!PyObject_TypeCheck(item, subscriber_type)) {
                PyErr_Format(PyExc_TypeError, "wait() takes subscribers, not %R", item);
                return nullptr;
            }
            SubscriberState* s = reinterpret_cast<SubscriberObject*>(item)->state;
            OneAtATime turn(s->occupant);
            if (!turn.entered || !usable_subscriber(item)) return nullptr;
            if (directory_seen >= 0 && i == 0 && s->directory) {
                if (Bell bell = s->directory->bell(); bell.word) bells.push_back(bell);
                directory_changed = !bells.empty() && bells[0].value != directory_seen;
            }
            Bell bell = s->attached() || !s->directory ? Bell{} : s->directory->bell();
            View view;
            int found = message_now(item, *s, view);
            if (found < 0 || (found == 1 && PyList_Append(ready.object, item) != 0)) return nullptr;
            if (found == 1) continue;
            if (s->attached()) {
                bell = s->reader->bell();
                look_again |= !bell.word;
            }
            if (bell.word && bells.size() < kMaxBells) bells.push_back(bell);
        }
        if (PyList_Size(ready.object) > 0 || directory_changed) return Py_NewRef(ready.object);
        int64_t left = deadline.left_ns();
        if (left == 0) return Py_NewRef(ready.object);
        if (!look_again) {
            // Beyond the kernel's limit the rest is looked at every millisecond.
            bool all = static_cast<size_t>(count) <= kMaxBells;
            int64_t most = std::min(all ? kSlice_ns : int64_t{1'000'000}, left);
            WithoutGil unlocked;
            if (bells.empty())
                usleep(static_cast<useconds_t>(most / 1000));
            else
                sleep_on_any(bells.data(), bells.size(), most);
        }
        if (PyErr_CheckSignals() != 0) return nullptr;
    }
}

// ------------------------------------------------------------------------------------------------ the type

PyObject* get_lost(PyObject* self, void*) {
    return PyLong_FromUnsignedLongLong(reinterpret_cast<SubscriberObject*>(self)->state->lost());
}
PyObject* get_closed(PyObject* self, void*) {
    const SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    return PyBool_FromLong(s->closed || s->closing);
}
PyObject* get_attached(PyObject* self, void*) {
    return PyBool_FromLong(reinterpret_cast<SubscriberObject*>(self)->state->attached());
}

PyObject* create(PyTypeObject* type, PyObject*, PyObject*) {
    auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
    PyObject* self = allocate(type, 0);
    if (self) reinterpret_cast<SubscriberObject*>(self)->state = new SubscriberState;
    return self;
}

void destroy(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    Py_XDECREF(s->decoder);
    Py_XDECREF(s->last_sender_str);
    Py_XDECREF(s->last_kind_str);
    delete s;
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"recv", method(recv), METH_FASTCALL | METH_KEYWORDS,
     "recv(timeout=None)\n--\n\nThe next message's data. Raises Timeout when nothing came in time."},
    {"try_recv", try_recv, METH_NOARGS, "try_recv()\n--\n\nThe next message's data, or None at once."},
    {"recv_message", method(recv_message), METH_FASTCALL | METH_KEYWORDS,
     "recv_message(timeout=None)\n--\n\nThe next Message: its data and all that is known of it."},
    {"try_recv_message", try_recv_message, METH_NOARGS,
     "try_recv_message()\n--\n\nThe next Message, or None at once."},
    {"recv_many", method(recv_many), METH_FASTCALL | METH_KEYWORDS,
     "recv_many(max_messages, timeout=0)\n--\n\nWhat is there, up to max_messages; waits only for the "
     "first."},
    {"recv_into", method(recv_into), METH_FASTCALL | METH_KEYWORDS,
     "recv_into(buffer, timeout=None)\n--\n\nCopy the next message into a buffer; returns its size."},
    {"fileno", fileno, METH_NOARGS,
     "fileno()\n--\n\nA descriptor that is readable while a message is there, for select and event loops."},
    {"_raise_timeout", timed_out, METH_O, "Raise what recv(timeout) would."},
    {"_arm", arm, METH_O, "Have an Event rung when there may be something to read."},
    {"_open", open, METH_VARARGS, "Take a seat in the topic, or wait for it to appear."},
    {"_close", close, METH_NOARGS, "Leave the topic."},
    {"_screen", screen, METH_VARARGS, "Set which senders and kinds are passed over."},
    {"_set_decoder", set_decoder, METH_O, "What turns bytes into an object, or None."},
    {"_describe", describe, METH_NOARGS,
     "(contract, capacity, epoch, slot), or None before the topic exists"},
    {"_directory_count", directory_count, METH_NOARGS, "Changes when topics come or go; for wait()."},
    {"_schema", get_schema, METH_NOARGS, "The topic's schema, as bytes."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef attributes[] = {{"lost", get_lost, nullptr, "Messages lost since it was opened.", nullptr},
                            {"closed", get_closed, nullptr, "Is it closed?", nullptr},
                            {"attached", get_attached, nullptr, "Has the topic appeared?", nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(create)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, attributes},
                       {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
                       {Py_tp_iternext, reinterpret_cast<void*>(next)},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.Subscriber", sizeof(SubscriberObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

PyMethodDef functions[] = {
    {"wait", wait, METH_VARARGS, "Those of the subscribers that have something to read."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_subscriber(PyObject* module) {
    subscriber_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return subscriber_type && PyModule_AddFunctions(module, functions) == 0 &&
           PyModule_AddObjectRef(module, "Subscriber", reinterpret_cast<PyObject*>(subscriber_type)) == 0;
}

}  // namespace ringmain::py
