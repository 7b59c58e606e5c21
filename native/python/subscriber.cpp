// ringmain._ring.Subscriber: the hot half of a subscriber. The rest is src/ringmain/_subscriber.py.
#include "python/subscriber.hpp"

#include <cstdlib>

namespace ringmain::py {

// Before the first large `bytes`: makes glibc keep freed memory, instead of returning it to the kernel and having every
// page cleared and mapped again for the next, which costs several times the copy. It uses glibc's own rule: when a large
// block that was mapped by itself is freed, later blocks up to that size come from the heap, which keeps twice as much.
// Where the user has set these limits (mallopt, GLIBC_TUNABLES), the rule is off, and this has no effect.
static void keep_large_blocks() {
    constexpr size_t kBlock_bytes = 16 << 20;
    static const bool done = [] {
        void* volatile block = std::malloc(kBlock_bytes);  // never touched: address space, not memory
        std::free(block);
        return true;
    }();
    (void)done;
}

PyObject* copy_large(const std::byte* from, size_t size) {
    keep_large_blocks();
    PyObject* bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
    if (!bytes) return nullptr;
    char* to = PyBytes_AsString(bytes);
    WithoutGil unlocked;
    copy_out(to, from, size);
    return bytes;
}

namespace {

// ----------------------------------------------------------------------------------------------- receiving

// Copies the message out. A new reference; nullptr without an exception: it was overwritten meanwhile, try again.
[[gnu::always_inline]] inline PyObject* copy_message(SubscriberState& s, const View& view) {
    Py_ssize_t size = static_cast<Py_ssize_t>(view.size);
    PyObject* bytes;
    if (view.size < kLargeCopyBytes) [[likely]] {
        // Python makes the copy, in one call instead of three. As copy_out, it is a memcpy that is done before the next
        // look at `claim`: the compiler cannot see into another library.
        bytes = PyBytes_FromStringAndSize(reinterpret_cast<const char*>(view.payload()), size);
        if (!bytes) return nullptr;
    } else {
        bytes = copy_large(view.payload(), view.size);
        if (!bytes) return nullptr;
    }
    if (s.reader->still_whole(view)) [[likely]]
        return bytes;
    Py_DECREF(bytes);
    return nullptr;
}

// Takes ownership of `bytes`.
[[gnu::always_inline]] inline PyObject* decoded(const SubscriberState& s, PyObject* bytes, uint64_t seq) {
    if (!s.decoder) return bytes;
    PyObject* object = PyObject_CallFunctionObjArgs(s.decoder.get(), bytes, nullptr);
    Py_DECREF(bytes);
    return object ? object : raise_decode_error(s, seq);
}

// A Message of what was just taken. Takes over the references.
PyObject* new_message(SubscriberState& s, const View& view, PyObject* data, PyObject* sender, PyObject* kind,
                      uint64_t lost) {
    uint32_t redelivered = s.work ? s.work->fresh.back().returns : 0;
    return PyObject_CallFunction(message_class, "NKLNNKOI", data, view.seq, view.time_ns, sender, kind, lost,
                                 s.topic_str.get(), redelivered);
}

// The next message as a Message (`whole`), or its data. nullptr without an exception: timed out. References are counted
// by hand here and in recv_many: a Ref costs five instructions a message.
template <bool whole>
PyObject* receive(PyObject* self, SubscriberState& s, Deadline& deadline) {
    for (int laps = 0;;) {
        View view;
        int found = next_message(self, s, deadline, view);
        if (found != 1) return nullptr;
        PyObject* bytes = copy_message(s, view);
        if (!bytes && PyErr_Occurred()) return nullptr;
        if (!bytes && try_again(deadline, laps)) continue;
        if (!bytes) return nullptr;
        PyObject *sender = nullptr, *kind = nullptr;
        auto drop_all = [&](PyObject* data) {
            for (PyObject* object : {data, sender, kind}) Py_XDECREF(object);
        };
        if constexpr (whole) {
            sender = sender_of(s, view);
            kind = kind_of(s, view);
            if (!sender || !kind || !s.reader->still_whole(view)) {
                drop_all(bytes);
                if (PyErr_Occurred() || !try_again(deadline, laps)) return nullptr;
                continue;
            }
        }
        // Decoded first, and taken afterwards: Ctrl-C in a decoder must not lose the message.
        PyObject* data = decoded(s, bytes, view.seq);
        if (!data && interrupted()) [[unlikely]] {
            drop_all(nullptr);
            return nullptr;
        }
        uint64_t lost = s.reader->take(view);
        if (!s.reader->release(s.keep())) [[unlikely]] {
            drop_all(data);
            return raise_evicted(s);
        }
        if (!whole) return data;
        if (!data) {
            drop_all(nullptr);
            return nullptr;
        }
        return new_message(s, view, data, sender, kind, lost);
    }
}

// The most common case by itself: the next message as `bytes`, if it is there and small. It keeps the GIL, so another thread
// need not be kept out. nullptr without an exception: it is not this case.
[[gnu::always_inline]] inline PyObject* receive_fast_path(SubscriberState& s) {
    if (!s.fast_path_ok()) return nullptr;
    Reader& reader = *s.reader;
    View view;
    if (reader.peek(view) != Status::ok || view.size >= kLargeCopyBytes) return nullptr;
    PyObject* bytes = copy_message(s, view);
    if (!bytes) return nullptr;
    reader.take(view);
    if (reader.release()) [[likely]]
        return bytes;
    Py_DECREF(bytes);
    return raise_evicted(s);
}

template <bool whole>
[[gnu::noinline]] PyObject* receive_within(PyObject* self, PyObject* const* args, Py_ssize_t count,
                                           PyObject* names, const char* function) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    int64_t timeout_ns = kForever;
    if (count != 0 || names) {
        PyObject* given[1] = {};
        static const char* const kNames[] = {"timeout"};
        if (!parse_arguments(function, args, count, names, kNames, 0, given, 1)) return nullptr;
        if (!parse_timeout(given[0], timeout_ns)) return nullptr;
    }
    Deadline deadline(timeout_ns);
    Receiving turn(self, *s, &deadline);
    if (turn.late()) return raise_late(*s, deadline);
    if (!turn.entered() || !usable_subscriber(self)) return nullptr;
    PyObject* result = receive<whole>(self, *s, deadline);
    if (s->work) [[unlikely]]
        note_object(*s, result);
    if (!result && !PyErr_Occurred()) raise_timeout(*s, deadline);
    return result;
}

PyObject* recv(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    if (count == 0 && !names) [[likely]] {
        PyObject* bytes = receive_fast_path(*reinterpret_cast<SubscriberObject*>(self)->state);
        if (bytes || PyErr_Occurred()) [[likely]]
            return bytes;
    }
    return receive_within<false>(self, args, count, names, "recv");
}

PyObject* recv_message(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    return receive_within<true>(self, args, count, names, "recv_message");
}

template <bool whole>
PyObject* receive_now(PyObject* self) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    Deadline deadline(0);
    Receiving turn(self, *s, &deadline);
    if (turn.late()) Py_RETURN_NONE;
    if (!turn.entered() || !usable_subscriber(self)) return nullptr;
    PyObject* result = receive<whole>(self, *s, deadline);
    if (s->work) [[unlikely]]
        note_object(*s, result);
    if (result || PyErr_Occurred()) return result;
    Py_RETURN_NONE;
}

PyObject* try_recv(PyObject* self, PyObject*) { return receive_now<false>(self); }
PyObject* try_recv_message(PyObject* self, PyObject*) { return receive_now<true>(self); }

// Iteration waits without a limit, and ends when the subscriber is closed.
PyObject* next(PyObject* self) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    PyObject* bytes = receive_fast_path(*s);
    if (bytes || PyErr_Occurred()) [[likely]]
        return bytes;
    Receiving turn(self, *s);
    if (!turn.entered() || s->closed || s->closing) return nullptr;
    Deadline deadline(kForever);
    PyObject* result = receive<false>(self, *s, deadline);
    if (s->work) [[unlikely]]
        note_object(*s, result);
    if (!result && s->closed) clear_if_closed();
    return result;
}

// Objects of unknown number that become a list, which is then made once and in its size. Owns a reference to each.
class Objects {
    std::vector<PyObject*> objects_;

  public:
    Objects() { objects_.reserve(64); }
    ~Objects() { clear(); }
    Objects(const Objects&) = delete;
    Objects& operator=(const Objects&) = delete;

    size_t size() const { return objects_.size(); }
    void add(PyObject* owned) { objects_.push_back(owned); }
    void clear() {
        for (PyObject* object : std::exchange(objects_, {})) Py_DECREF(object);
    }
    PyObject* as_list() {
        PyObject* list = PyList_New(static_cast<Py_ssize_t>(objects_.size()));
        if (!list) return nullptr;
        Py_ssize_t index = 0;
        for (PyObject* object : std::exchange(objects_, {})) PyList_SetItem(list, index++, object);
        return list;
    }
};

// The messages that are there, as Messages (`whole`), or their data.
template <bool whole>
PyObject* receive_many(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names,
                       const char* function) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    PyObject* given[2] = {};
    static const char* const kNames[] = {"max_messages", "timeout"};
    int64_t timeout_ns = 0;
    if (!parse_arguments(function, args, count, names, kNames, 1, given, 2)) return nullptr;
    uint64_t max_messages = 0;
    if (!parse_count("max_messages", given[0], max_messages)) return nullptr;
    if (given[1] && !parse_timeout(given[1], timeout_ns)) return nullptr;
    Deadline deadline(timeout_ns);
    Receiving turn(self, *s, &deadline);
    if (turn.late()) return PyList_New(0);
    if (!turn.entered() || !usable_subscriber(self)) return nullptr;
    View view{};
    Objects taken;
    int laps = 0;
    // Only the first is waited for; the hold moves once for all of them.
    int found = max_messages ? next_message(self, *s, deadline, view) : 0;
    Reader::Mark before{};
    if (found == 1) before = s->reader->mark();
    while (found == 1) {
        PyObject* bytes = copy_message(*s, view);
        if (!bytes && PyErr_Occurred()) break;
        Ref sender, kind;
        if constexpr (whole) {
            if (bytes) {
                sender = Ref(sender_of(*s, view));
                kind = Ref(kind_of(*s, view));
                if (!sender || !kind || !s->reader->still_whole(view)) Py_CLEAR(bytes);
                if (PyErr_Occurred()) break;
            }
        }
        if (bytes) {
            PyObject* data = decoded(*s, bytes, view.seq);
            if (!data && interrupted()) {  // Ctrl-C: the next call gives all of them again
                s->reader->back_to(before);
                taken.clear();
                break;
            }
            // A message that does not decode ends the list before it, and the next call begins with it.
            uint64_t lost = data || taken.size() == 0 ? s->reader->take(view) : 0;
            if (whole && data) data = new_message(*s, view, data, sender.release(), kind.release(), lost);
            if (!data) break;
            taken.add(data);
            if (taken.size() == max_messages) break;
        } else if (taken.size() > 0 || !try_again(deadline, laps)) {
            break;
        }
        found = next_of_many(*s, view);
    }
    if (s->reader && !s->reader->release(s->keep()) && !PyErr_Occurred()) raise_evicted(*s);
    if (PyErr_Occurred() && taken.size() == 0) return nullptr;
    PyErr_Clear();  // what was taken is not discarded: the next call meets the same error first
    PyObject* list = taken.as_list();
    if (s->work && list) note_objects(*s, list);
    return list;
}

PyObject* recv_many(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    return receive_many<false>(self, args, count, names, "recv_many");
}

PyObject* recv_messages(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    return receive_many<true>(self, args, count, names, "recv_messages");
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
    Deadline deadline(timeout_ns);
    Receiving turn(self, *s, &deadline);
    if (turn.late()) return raise_late(*s, deadline);
    if (!turn.entered() || !usable_subscriber(self)) return nullptr;
    for (int laps = 0;;) {
        View view;
        int found = wait_for_message(self, *s, deadline, view);
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
            if (try_again(deadline, laps)) continue;
            return PyErr_Occurred() ? nullptr : raise_timeout(*s, deadline);
        }
        s->reader->take(view);
        if (!s->reader->release(s->keep())) return raise_evicted(*s);
        return PyLong_FromUnsignedLong(view.size);
    }
}

// ------------------------------------------------------------------------------------- opening and closing

bool parse_start(const char* text, Start& start) {
    std::string_view value = text;
    if (value != "next" && value != "oldest" && value != "newest") {
        PyErr_Format(PyExc_ValueError, "start is 'next', 'oldest' or 'newest', not '%s'", text);
        return false;
    }
    start = value == "next" ? Start::next : value == "oldest" ? Start::oldest : Start::newest;
    return true;
}

bool parse_on_lap(const char* text, Start& on_lap) {
    std::string_view value = text;
    if (value != "next" && value != "oldest") {
        PyErr_Format(PyExc_ValueError, "on_lap is 'next' or 'oldest', not '%s'", text);
        return false;
    }
    on_lap = value == "next" ? Start::next : Start::oldest;
    return true;
}

bool parse_observe(const char* text, ObserveMode& observe) {
    std::string_view value = text;
    if (value != "never" && value != "pipes" && value != "always") {
        PyErr_Format(PyExc_ValueError, "observe is 'never', 'pipes' or 'always', not '%s'", text);
        return false;
    }
    observe = value == "never"   ? ObserveMode::never
              : value == "pipes" ? ObserveMode::pipes
                                 : ObserveMode::always;
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
        !parse_start(start, s->start) || !parse_on_lap(on_lap, s->on_lap) ||
        !parse_observe(observe, s->observe))
        return nullptr;
    s->topic_str = Ref(PyUnicode_FromString(topic));
    if (!s->topic_str) return nullptr;
    s->directory_path = directory;
    s->topic = topic;
    s->name = name;
    s->conflate = conflate;
    s->spin.set(spin_ns);
    s->closing = false;
    s->closed = false;  // before attach(), which calls _attached()
    int attached;
    int64_t end_ns = monotonic_ns() + RosterLock::kPatience_ns;
    do attached = PyErr_CheckSignals() == 0 ? attach(self, *s) : -1;
    while (attached == 0 && !s->roster_locked.empty() && monotonic_ns() < end_ns);
    if (attached == 1 || (attached == 0 && s->roster_locked.empty())) Py_RETURN_NONE;
    s->closed = true;
    if (attached == 0) raise("Timeout", s->roster_locked, 0, s->topic);
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
    s->closing = true;  // a thread that waits inside gives up, and closes for us
    s->sleepers.wake();
    if (s->caller.is_us()) Py_RETURN_NONE;
    OneAtATime turn(s->caller);
    bool refused = turn.entered && !s->closed && lent();
    if (turn.entered && !s->closed && !refused) leave_topic(*s);
    s->closing = false;
    if (refused) return refuse();
    if (!turn.entered) return nullptr;
    Py_RETURN_NONE;
}

bool read_names(PyObject* iterable, std::vector<std::string>& names) {
    Ref iterator(PyObject_GetIter(iterable));
    if (!iterator) return false;
    std::vector<std::string> read;
    while (Ref item{PyIter_Next(iterator.get())}) {
        std::string_view text;
        if (!text_of(item.get(), text)) return false;
        read.emplace_back(text);
    }
    if (PyErr_Occurred()) return false;
    names = std::move(read);
    return true;
}

bool read_screen(PyObject* ignored, PyObject* only, Screen& screen) {
    Screen read;
    if (!read_names(ignored, read.ignored)) return false;
    if (only != Py_None && !read_names(only, read.only.emplace())) return false;
    screen = std::move(read);
    return true;
}

// screen(ignored_senders, ignored_kinds, only_senders, only_kinds); only_...: None for all
PyObject* screen(PyObject* self, PyObject* args) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    PyObject *senders, *kinds, *only_senders, *only_kinds;
    if (!PyArg_ParseTuple(args, "OOOO", &senders, &kinds, &only_senders, &only_kinds) ||
        !read_screen(senders, only_senders, s->senders) || !read_screen(kinds, only_kinds, s->kinds))
        return nullptr;
    s->slow_path = s->needs_slow_path();
    if (s->work) s->work->worker.look_again();
    Py_RETURN_NONE;
}

PyObject* set_max_deliveries(PyObject* self, PyObject* count) {
    uint64_t most = 0;
    if (!parse_count("max_deliveries", count, most)) return nullptr;
    reinterpret_cast<SubscriberObject*>(self)->state->max_deliveries = static_cast<uint32_t>(most);
    Py_RETURN_NONE;
}

// reject(object): gives back a message that was received; False: it is none of them.
PyObject* reject_received(PyObject* self, PyObject* object) {
    SubscriberState* s = usable_subscriber(self);
    if (!s) return nullptr;
    OneAtATime turn(s->caller);
    if (!turn.entered || !usable_subscriber(self)) return nullptr;
    return PyBool_FromLong(s->work && s->attached() && reject(*s, object));
}

PyObject* give_back_all(PyObject* self, PyObject*) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    // While a thread is inside a receiving call there is nothing: the call finished what came before it.
    if (!s->closed && s->work && s->attached() && !s->work->received.empty())
        s->work->give_back_received(s->leases);
    Py_RETURN_NONE;
}

PyObject* set_decoder(PyObject* self, PyObject* decoder) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    s->decoder = Ref::to(decoder == Py_None ? nullptr : decoder);
    Py_RETURN_NONE;
}

PyObject* describe(PyObject* self, PyObject*) {
    SubscriberState* s = usable_subscriber(self);
    if (!s) return nullptr;
    if (!s->attached()) Py_RETURN_NONE;
    const TopicFile& topic_file = s->participant->topic_file();
    return Py_BuildValue("{sssKsKsIsKsO}", "contract", traits(topic_file.contract).name, "capacity_bytes",
                         topic_file.capacity_bytes, "epoch", topic_file.epoch, "slot", s->participant->slot(),
                         "generation", s->participant->generation(), "frames",
                         topic_file.has_frames() ? Py_True : Py_False);
}

PyObject* get_schema(PyObject* self, PyObject*) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    return s->attached() ? schema_of(s->participant->topic_file()) : PyBytes_FromStringAndSize("", 0);
}

PyObject* fileno(PyObject* self, PyObject*) {
    SubscriberState* s = usable_subscriber(self);
    if (!s) return nullptr;
    if (!s->event) {
        OneAtATime turn(s->caller);
        if (!turn.entered || !usable_subscriber(self)) return nullptr;
        try {
            auto event = std::make_shared<Event>();
            int64_t token = watch_for_message(self, *s, event);
            if (token < 0) return nullptr;
            if (token == 0) event->ring(0);
            s->event_token = static_cast<uint64_t>(token);
            s->event = std::move(event);
        } catch (const Failure& failure) {
            return raise(failure);
        }
    }
    return PyLong_FromLong(s->event->fd());
}

// directory_count(): how often topics were created or removed, modulo 2^32; for wait().
PyObject* directory_count(PyObject* self, PyObject*) {
    SubscriberState* s = usable_subscriber(self);
    if (!s) return nullptr;
    return PyLong_FromUnsignedLong(s->directory ? s->directory->changes() : 0);
}

// raise_timeout(timeout): raises what recv(timeout) would, for a caller that waited elsewhere.
PyObject* timed_out(PyObject* self, PyObject* timeout) {
    int64_t timeout_ns;
    if (!parse_timeout(timeout, timeout_ns)) return nullptr;
    return raise_timeout(*reinterpret_cast<SubscriberObject*>(self)->state, Deadline(timeout_ns));
}

// arm(event): rings the event when there may be a message. Returns its token; 0: there is one already.
PyObject* arm(PyObject* self, PyObject* event) {
    SubscriberState* s = usable_subscriber(self);
    if (!s) return nullptr;
    if (!check_event(event)) return nullptr;
    OneAtATime turn(s->caller);
    if (!turn.entered || !usable_subscriber(self)) return nullptr;
    int64_t token = watch_for_message(self, *s, event_of(event));
    return token < 0 ? nullptr : PyLong_FromLongLong(token);
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
    PyObject* self = allocate(type);
    if (self) reinterpret_cast<SubscriberObject*>(self)->state = new SubscriberState;
    return self;
}

void destroy(PyObject* self) {
    delete reinterpret_cast<SubscriberObject*>(self)->state;
    deallocate(self);
}

PyMethodDef methods[] = {
    {"recv", method(recv), METH_FASTCALL | METH_KEYWORDS,
     "recv(timeout=None)\n--\n\nThe next message's data. Raises Timeout if none comes in time."},
    {"try_recv", try_recv, METH_NOARGS, "try_recv()\n--\n\nThe next message's data, or None at once."},
    {"recv_message", method(recv_message), METH_FASTCALL | METH_KEYWORDS,
     "recv_message(timeout=None)\n--\n\nThe next Message: its data and its envelope."},
    {"try_recv_message", try_recv_message, METH_NOARGS,
     "try_recv_message()\n--\n\nThe next Message, or None at once."},
    {"recv_messages", method(recv_messages), METH_FASTCALL | METH_KEYWORDS,
     "recv_messages(max_messages, timeout=0)\n--\n\nThe messages that are there, up to max_messages, with "
     "their "
     "envelopes."},
    {"recv_many", method(recv_many), METH_FASTCALL | METH_KEYWORDS,
     "recv_many(max_messages, timeout=0)\n--\n\nThe messages that are there, up to max_messages, of one "
     "life of the topic. Waits, if at all, only for the first; an empty list if none comes in time, where "
     "recv "
     "raises Timeout."},
    {"recv_into", method(recv_into), METH_FASTCALL | METH_KEYWORDS,
     "recv_into(buffer, timeout=None)\n--\n\nCopy the next message into a buffer; returns its size."},
    {"fileno", fileno, METH_NOARGS,
     "fileno()\n--\n\nA descriptor that is readable while a message is there, for select and event loops."},
    {"_raise_timeout", timed_out, METH_O, "Raise what recv(timeout) would."},
    {"_arm", arm, METH_O, "Ring an Event when there may be a message."},
    {"_open", open, METH_VARARGS, "Join the topic, if it is there."},
    {"_close", close, METH_NOARGS, "Leave the topic."},
    {"_screen", screen, METH_VARARGS, "Set which senders and kinds to skip."},
    {"_set_max_deliveries", set_max_deliveries, METH_O,
     "After how many deliveries to call _send_dead_letter; 0: never."},
    {"_reject", reject_received, METH_O, "Give back a message that was received."},
    {"_give_back_all", give_back_all, METH_NOARGS, "Give back all that was received and not finished."},
    {"_set_decoder", set_decoder, METH_O, "Set what turns bytes into an object, or None."},
    {"_describe", describe, METH_NOARGS, "An EndpointRecord, or None before the topic exists."},
    {"_directory_count", directory_count, METH_NOARGS,
     "Changes when topics are created or removed; for wait()."},
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

}  // namespace

bool add_subscriber(PyObject* module) { return (subscriber_type = add_type(module, spec)) != nullptr; }

}  // namespace ringmain::py
