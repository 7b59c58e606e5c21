// How the waits of a subscriber end, in exceptions, and what they ask of Python meanwhile; waiting/blocking_reader.hpp waits.
#include "python/roster_wait.hpp"
#include "python/subscriber.hpp"

namespace ringmain::py {

SubscriberState* usable_subscriber(PyObject* self) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    if (!s->closed && !s->closing) [[likely]]
        return s;
    raise("Closed", "the subscriber of topic '" + s->topic + "' is closed", 0, s->topic);
    return nullptr;
}

void leave_topic(SubscriberState& s) {
    s.closed = true;
    end_watches(static_cast<BlockingReader*>(&s));  // of tasks, which now meet `Closed`, and of fileno()
    if (s.event) s.event->ring();
    SubscriberHost host(nullptr, s);
    s.leave(host);
}

bool SubscriberHost::joins_again(std::string& name) {
    Ref own(PyObject_CallMethod(self_, "_participant_name", nullptr));
    std::string_view text;
    if (!own || !text_of(own.get(), text)) return false;
    name = text;
    return true;
}

bool SubscriberHost::joined() { return bool(Ref(PyObject_CallMethod(self_, "_attached", nullptr))); }

// Moves a message that was given back too often to topic `NAME.dead`.
Letter SubscriberHost::send_dead_letter(const View& view, uint32_t returns) {
    if (!self_) return Letter::not_here;
    SubscriberState& s = *reinterpret_cast<SubscriberObject*>(self_)->state;
    Ref sender(sender_of(s, view)), kind(kind_of(s, view)), extension(extension_of(view));
    Ref data(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(view.payload()), view.size));
    if (!sender || !kind || !extension || !data) return Letter::stopped;
    Ref done(PyObject_CallMethod(self_, "_send_dead_letter", "OOOOKI", data.get(), sender.get(), kind.get(),
                                 extension.get(), view.seq, returns));
    return done ? Letter::sent : Letter::stopped;
}

int result_of(SubscriberState& s, Outcome outcome) {
    switch (outcome) {
        case Outcome::ready:
            return 1;
        case Outcome::not_there:
        case Outcome::timed_out:
            return 0;
        case Outcome::taken_over:
            raise_evicted(s);
            return -1;
        case Outcome::stopped:
            if (PyErr_Occurred()) return -1;
            if (s.leases.empty()) leave_topic(s);
            raise("Closed", "the subscriber of topic '" + s.topic + "' was closed while it waited", 0,
                  s.topic);
            return -1;
        default:
            raise_corrupt(s.topic);
            return -1;
    }
}

int attach(PyObject* self, SubscriberState& s) {
    SubscriberHost host(self, s);
    return in_python(s, [&] { return s.attach(host); });
}

int another_message(SubscriberState& s, View& view) {
    SubscriberHost host(nullptr, s);
    return in_python(s, [&] { return s.another(view, host); });
}

int message_now(PyObject* self, SubscriberState& s, View& view, bool borrowing, bool taking) {
    SubscriberHost host(self, s);
    return in_python(s, [&] { return s.now(view, borrowing, taking, host); });
}

int wait_for_message(PyObject* self, SubscriberState& s, Deadline& deadline, View& view, bool borrowing) {
    if (deadline.timeout_ns() == 0) return message_now(self, s, view, borrowing, true);
    SubscriberHost host(self, s);
    return in_python(s, [&] { return s.wait(deadline, view, borrowing, host); });
}

int64_t watch_for_message(PyObject* self, SubscriberState& s, const std::shared_ptr<Event>& event) {
    SubscriberHost host(self, s);
    uint64_t token = 0;
    int found = in_python(s, [&] { return s.watch(event, token, host); });
    return found < 0 ? -1 : found == 1 ? 0 : static_cast<int64_t>(token);
}

void end_of_call(SubscriberState& s) {
    bool failed = PyErr_Occurred() != nullptr;
    SavedError error;
    s.work->end_of_call(s.reader->messages(), failed, s.leases);
}

static Note note_of(PyObject* object) {
    return {Py_NewRef(object), [](void* noted) { Py_DECREF(static_cast<PyObject*>(noted)); }};
}

void note_object(SubscriberState& s, PyObject* object) {
    if (object && !s.work->fresh.empty()) s.work->fresh.back().note = note_of(object);
}

void note_objects(SubscriberState& s, PyObject* list) {
    auto count = std::min(s.work->fresh.size(), static_cast<size_t>(PyList_Size(list)));
    for (size_t i = 0; i < count; ++i)
        s.work->fresh[i].note = note_of(PyList_GetItem(list, static_cast<Py_ssize_t>(i)));
}

bool reject(SubscriberState& s, PyObject* object) {
    for (Taken& taken : s.work->received) {
        auto* ours = static_cast<PyObject*>(taken.note.get());
        bool same = ours == object;
        if (!same && ours && Py_IS_TYPE(ours, reinterpret_cast<PyTypeObject*>(message_class))) {
            Ref data(PyObject_GetAttrString(ours, "data"));
            same = data.get() == object;
        }
        if (!same) continue;
        s.work->reject(&taken, s.leases);
        return true;
    }
    return false;
}

void update_descriptor(PyObject* self, SubscriberState& s) {
    SavedError error;
    unwatch(s.event_token);
    s.event->silence();
    int64_t token = s.closed ? 0 : watch_for_message(self, s, s.event);
    s.event_token = token > 0 ? static_cast<uint64_t>(token) : 0;
    if (token <= 0) s.event->ring();  // a message, or an error that the next call will raise
    clear_or_raise_later();
}

bool try_again(Deadline& deadline, int& laps) {
    constexpr int kMaxLaps = 1000;  // with a timeout of 0, while a writer keeps overwriting what we copy
    if (PyErr_CheckSignals() != 0) return false;
    return deadline.timeout_ns() == 0 ? ++laps < kMaxLaps : deadline.left_ns() > 0;
}

PyObject* raise_timeout(const SubscriberState& s, const Deadline& deadline) {
    Ref timeout = seconds(deadline.timeout_ns()), participants(PyList_New(0));
    if (!s.attached())
        return raise_made("no_message", "(sOsOi)", s.topic.c_str(), timeout.get(),
                          s.roster_locked.empty() ? "there is no such topic (no publisher has been opened)"
                                                  : s.roster_locked.c_str(),
                          participants.get(), 0);
    const TopicFile& topic_file = s.participant->topic_file();
    std::string writers;
    for (uint32_t i : taken_slots(topic_file)) {
        if (!slot_has_role(topic_file, i, Role::writer)) continue;
        ParticipantInfo writer = look_at(topic_file, i, slot_alive(topic_file, i));
        writers +=
            (writers.empty() ? "" : ", ") + writer.describe() + (writer.alive ? "" : ", which has died");
        if (!append(participants, waited_for(writer))) return nullptr;
    }
    std::string reason = writers.empty() ? "it has no writer" : "waiting for " + writers;
    // Lost: lapped, and what was left in the ring was screened or passed over.
    return raise_made("no_message", "(sOsOK)", s.topic.c_str(), timeout.get(), reason.c_str(),
                      participants.get(), s.reader->pending_lost);
}

PyObject* raise_late(const SubscriberState& s, const Deadline& deadline) {
    return raise_made("no_message", "(sOs()i)", s.topic.c_str(), seconds(deadline.timeout_ns()).get(),
                      "another thread was in a call to the same subscriber", 0);
}

PyObject* raise_evicted(const SubscriberState& s) {
    return raise(
        "TakenOver",
        "this subscriber's slot in topic '" + s.topic +
            "' was given to another participant: its lock was lost, which happens when a process closes all "
            "of its descriptors",
        ECONNABORTED, s.topic);
}

static PyObject* cached_text(std::string& last, Ref& last_str, const std::byte* text, size_t size) {
    if (size == 0) return Py_NewRef(empty_str);
    char copy[kMaxEnvelopeNameBytes];
    copy_out(copy, text, size);
    if (!last_str || last.size() != size || std::memcmp(last.data(), copy, size) != 0) {
        Ref str(PyUnicode_DecodeUTF8(copy, static_cast<Py_ssize_t>(size), "replace"));
        if (!str) return nullptr;
        last.assign(copy, size);  // first: it may throw
        last_str = std::move(str);
    }
    return last_str.new_ref();
}

PyObject* sender_of(SubscriberState& s, const View& view) {
    return cached_text(s.last_sender, s.last_sender_str, view.sender(), view.sender_size);
}

PyObject* kind_of(SubscriberState& s, const View& view) {
    std::string_view kind = view.said().kind;
    return cached_text(s.last_kind, s.last_kind_str, reinterpret_cast<const std::byte*>(kind.data()),
                       kind.size());
}

PyObject* extension_of(const View& view) {
    std::string_view extension = view.said().extension;
    char copy[kMaxEnvelopeNameBytes];
    copy_out(copy, reinterpret_cast<const std::byte*>(extension.data()), extension.size());
    return PyBytes_FromStringAndSize(copy, static_cast<Py_ssize_t>(extension.size()));
}

void clear_if_closed() {
    if (raised("Closed")) PyErr_Clear();
}

PyObject* raise_decode_error(const SubscriberState& s, uint64_t seq) {
    if (interrupted()) return nullptr;
    Ref cause;
    {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        Ref owned_type(type), owned_traceback(traceback);
        cause = Ref(value);
    }
    Ref reason(cause ? PyObject_Str(cause.get()) : nullptr);
    Ref errors(PyImport_ImportModule("ringmain.errors"));
    Ref error_class(errors ? PyObject_GetAttrString(errors.get(), "DecodeError") : nullptr);
    Ref error(error_class && reason
                  ? PyObject_CallFunction(error_class.get(), "sKO", s.topic.c_str(), seq, reason.get())
                  : nullptr);
    if (error) PyErr_SetObject(error_class.get(), error.get());
    SavedError raised;
    raised.normalize();
    if (raised.value && cause) PyException_SetCause(raised.value, cause.release());
    return nullptr;
}

}  // namespace ringmain::py
