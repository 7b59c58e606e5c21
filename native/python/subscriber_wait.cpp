// Finding a subscriber's next message: taking a participant once the topic is there, waiting, following the topic into its next
// life, and saying for whom it waited in vain.
#include "subscriber.hpp"

namespace ringmain::py {

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
    if (s.participant && s.participant->topic_file().forked) s.participant->abandon();
    s.participant.reset();
}

void leave_topic(SubscriberState& s) {
    s.closed = true;
    if (s.event) unwatch(s.event_token);
    s.lost_before = s.lost();
    std::unique_ptr<Participant> participant = std::move(s.participant);
    s.reader.reset();
    WithoutGil unlocked;
    participant.reset();
}

int attach(PyObject* self, SubscriberState& s) {
    if (s.participant) detach(s);  // inherited through fork: the slot is the parent's, take one of our own
    try {
        WithoutGil unlocked;
        if (!s.directory) s.directory = std::make_shared<Directory>(s.directory_path, true);
        s.participant = join_as_reader(s.directory, s.topic, s.name, s.observe);
        if (s.participant) {
            s.reader = std::make_unique<Reader>(ring_of(s.participant->topic_file()), s.participant->slot(),
                                                s.on_lap, s.conflate,
                                                observes(s.observe, s.participant->topic_file().contract));
            if (s.reader->attach(s.came_first ? Start::oldest : s.start, s.came_first) != Status::ok)
                throw Failure{Fault::corrupt, "the ring of topic '" + s.topic +
                                                  "' contradicts itself; unlink the topic to begin anew"};
        }
    } catch (const Failure& failure) {
        s.reader.reset();
        s.participant.reset();
        raise(failure);
        return -1;
    }
    if (!s.participant) {
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
        if (!s.participant->topic_file().retired() || reader.has_more()) return 0;
        if (!s.leases.empty()) return 0;
        detach(s);
        s.came_first = true;
    }
}

int next_message(PyObject* self, SubscriberState& s, Deadline& deadline, View& view, bool borrowing) {
    for (bool hurry = true;;) {
        bool listens = !s.attached() && s.directory;
        Bell appears = listens ? s.directory->bell() : Bell{};
        int found = message_now(self, s, view, borrowing);
        if (found != 0) [[likely]]
            return found;
        int64_t left = deadline.left_ns();
        if (left == 0) return 0;
        // Its life has just ended, and the next is not there yet. Listen first, then look again, or nobody would wake us.
        if (!s.attached() && !listens) continue;
        Bell bell = appears;
        if (s.attached()) {
            Reader& reader = *s.reader;
            auto has_more = [&] { return reader.has_more(); };
            if (hurry && s.spin.until(left, has_more, reader.sequence())) continue;
            bell = reader.bell();
            if (!bell.word) continue;
        }
        // Nothing came in a whole slice: looking for long again would be for nothing.
        hurry = sleep_without_gil(bell, std::min(kSlice_ns, deadline.left_ns())) != Woken::timed_out;
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
    keep = s.participant->shared();
    return s.reader->bell();
}

int64_t watch_for_message(PyObject* self, SubscriberState& s, const std::shared_ptr<Event>& event) {
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
    const TopicFile& topic_file = s.participant->topic_file();
    std::string writers;
    uint32_t used = std::min(topic_file.header().slots_used.load(std::memory_order_acquire), kSlotCount);
    for (uint32_t i = 0; i < used; ++i) {
        if (i == s.participant->slot() || !slot_taken(topic_file, i)) continue;
        ParticipantInfo participant = look_at(topic_file, i, slot_alive(topic_file, i));
        if (participant.role != Role::writer) continue;
        writers += (writers.empty() ? "" : ", ") + participant.describe() +
                   (participant.alive ? "" : ", which is dead");
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

}  // namespace ringmain::py
