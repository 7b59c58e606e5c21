// The methods of a subscriber that do not receive: opening, closing, options, and what it says of itself.
#include "python/subscriber.hpp"

namespace ringmain::py {

namespace {

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

}  // namespace

namespace subscriber_options {

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
    Closing closing(s->closing);  // a thread that waits inside gives up, and closes for us
    s->sleepers.wake();
    if (s->caller.is_us()) return closing.stays();
    OneAtATime turn(s->caller);
    bool refused = turn.entered && !s->closed && lent();
    if (turn.entered && !s->closed && !refused) leave_topic(*s);
    closing.over();
    if (refused) return refuse();
    if (!turn.entered) return nullptr;
    Py_RETURN_NONE;
}

// screen(ignored_senders, ignored_kinds, only_senders, only_kinds); only_...: None for all
PyObject* screen(PyObject* self, PyObject* args) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    PyObject *senders, *kinds, *only_senders, *only_kinds;
    Screen of_senders, of_kinds;
    if (!PyArg_ParseTuple(args, "OOOO", &senders, &kinds, &only_senders, &only_kinds) ||
        !read_screen(senders, only_senders, of_senders) || !read_screen(kinds, only_kinds, of_kinds))
        return nullptr;
    s->senders = std::move(of_senders);
    s->kinds = std::move(of_kinds);
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
            if (token == 0) event->ring();
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

// pass_on(): who armed it has given up.
PyObject* pass_on(PyObject* self, PyObject*) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    if (!s->caller.inside()) s->pass_on();  // a thread that is inside looks itself
    Py_RETURN_NONE;
}

}  // namespace subscriber_options

}  // namespace ringmain::py
