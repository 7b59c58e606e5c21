// Waiting for a subscriber's next message: joins the topic once it is there, follows it into its next life, and on a
// timeout names the writers it waited for.
#include "subscriber.hpp"

namespace ringmain::py {

SubscriberState* usable_subscriber(PyObject* self) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    if (!s->closed && !s->closing) [[likely]]
        return s;
    raise("Closed", "the subscriber of topic '" + s->topic + "' is closed");
    return nullptr;
}

static void forget_readers(SubscriberState& s) {
    s.reader.reset();
    s.after_kept.reset();
    s.kept.reset();
    s.work.reset();
}

static void detach(SubscriberState& s) {
    s.lost_before = s.lost();
    forget_readers(s);
    s.screens = s.looks_closer();
    s.leases.clear();
    if (s.participant && s.participant->topic_file().forked) s.participant->abandon();
    s.participant.reset();
}

void leave_topic(SubscriberState& s) {
    s.closed = true;
    end_watches(&s);  // of tasks, which now meet `Closed`, and of fileno()
    if (s.event) s.event->ring(0);
    if (s.work && s.attached()) finish_received(s);
    s.lost_before = s.lost();
    std::unique_ptr<Participant> participant = std::move(s.participant);
    forget_readers(s);
    WithoutGil unlocked;
    participant.reset();
    stop_waiting(s.waiting);
}

// Goes to the first message, or to the last of each kind where the topic keeps them.
static Status begin_reading(SubscriberState& s) {
    Ring ring = ring_of(s.participant->topic_file());
    Start start = s.came_first ? Start::oldest : s.start;
    bool finds_kept = start == Start::last && ring.kept_kinds != 0 && !s.conflate;
    Status status = s.reader->attach(finds_kept ? Start::latest : start, s.came_first);
    if (status != Status::ok || !finds_kept) return status;
    status = find_kept(ring, *s.reader, s.topic, s.participant->shared(), s.kept);
    if (s.kept) {
        s.after_kept = std::exchange(s.reader, s.kept->reader());
        s.screens = true;
    }
    return status;
}

// After the last kept message: the ring.
static void go_on_after_kept(SubscriberState& s) {
    s.reader = std::move(s.after_kept);
    s.kept.reset();
    s.screens = s.looks_closer();
}

int attach(PyObject* self, SubscriberState& s) {
    if (s.participant) {  // inherited through fork: the slot is the parent's, so join again, under our own name
        detach(s);
        Ref name(PyObject_CallMethod(self, "_participant_name", nullptr));
        std::string_view text;
        if (!name || !text_of(name.get(), text)) return -1;
        s.name = text;
    }
    try {
        WithoutGil unlocked;
        if (!s.directory || !s.directory->intact())
            s.directory = std::make_shared<Directory>(s.directory_path, true);
        s.participant = join_or_wait(s.directory, s.topic, s.name, s.observe, s.waiting);
        if (s.participant) {
            s.came_first |= s.participant->enrolled();
            const TopicFile& topic_file = s.participant->topic_file();
            bool observer = observes(s.observe, topic_file.contract);
            bool works = traits(topic_file.contract).shared && !observer;
            s.reader = std::make_unique<Reader>(ring_of(topic_file), s.participant->slot(), s.on_lap,
                                                s.conflate || works, observer || works);
            if (s.spin.asked_for()) s.reader->never_pause();
            if (works) {
                s.reader->only_counts();
                s.work = std::make_unique<Work>(ring_of(topic_file), s.participant->slot());
                s.screens = true;
                reap_dead_workers(topic_file);
                WorkQueue(ring_of(topic_file)).rouse();  // those that slept alone now watch us
            }
            if (begin_reading(s) != Status::ok) throw Failure{Fault::corrupt, corrupt_text(s.topic)};
        }
    } catch (const Failure& failure) {
        forget_readers(s);
        s.participant.reset();
        raise(failure);
        return -1;
    }
    if (!s.participant) {
        s.came_first = true;
        return 0;
    }
    Ref done(PyObject_CallMethod(self, "_attached", nullptr));
    if (!done) detach(s);
    s.came_first &= !done;  // a forked child joins this same life once more: it was not here before it
    return done ? 1 : -1;
}

static bool is_one_of(const std::vector<std::string>& names, const std::byte* text, size_t size) {
    for (const std::string& name : names)
        if (name.size() == size && std::memcmp(name.data(), text, size) == 0) return true;
    return false;
}

bool Screen::skips(const std::byte* text, size_t size) const {
    return is_one_of(ignored, text, size) || (only && !is_one_of(*only, text, size));
}

static size_t bare_kind_size(const View& view) {
    return ringmain::bare_kind_size(reinterpret_cast<const char*>(view.kind()), view.kind_size);
}

bool screened(const SubscriberState& s, const View& view) {
    return (s.senders.active() && s.senders.skips(view.sender(), view.sender_size)) ||
           (s.kinds.active() && s.kinds.skips(view.kind(), bare_kind_size(view)));
}

// 1: a message, not yet taken; 0: none; -1: raised.
[[gnu::always_inline]] static inline int look(SubscriberState& s, View& view, bool borrowing,
                                              bool releasing) {
    for (;;) {
        Reader& reader = *s.reader;
        Status status = borrowing ? reader.borrow(view) : reader.peek(view);
        if (status == Status::empty && s.kept && releasing) {
            go_on_after_kept(s);
            continue;
        }
        if (status == Status::empty) return 0;
        if (status == Status::corrupt || status == Status::taken_over) {
            status == Status::corrupt ? raise_corrupt(s.topic) : raise_evicted(s);
            return -1;
        }
        if (!s.screens) [[likely]]
            return 1;
        bool unwanted = screened(s, view);
        if (!reader.still_whole(view)) continue;
        if (!unwanted) return 1;
        reader.skip(view);
        if (releasing) reader.release(s.keep());
    }
}

int another_message(SubscriberState& s, View& view) {
    return s.work ? take_work(nullptr, s, view) : look(s, view, false, false);
}

static bool has_more(const SubscriberState& s) {
    return s.kept || (s.work ? s.work->worker.has_more() : s.reader->has_more());
}

int message_now(PyObject* self, SubscriberState& s, View& view, bool borrowing, bool taking) {
    for (;;) {
        if (!s.attached()) [[unlikely]] {
            int attached = attach(self, s);
            if (attached != 1) return attached;
        }
        int found = !s.work  ? look(s, view, borrowing, true)
                    : taking ? take_work(self, s, view)
                             : has_more(s);
        if (found != 0) [[likely]]
            return found;
        // Empty. If the file has lost its name, the topic's next life is another file.
        if (!s.participant->topic_file().retired() || has_more(s)) return 0;
        if (!s.leases.empty()) return 0;
        detach(s);
        s.came_first = true;
    }
}

// A file that was deleted by hand, perhaps with its directory, is not marked as retired.
static bool deleted(const TopicFile& topic_file) {
    if (!topic_file.nameless() || topic_file.retired()) return false;
    for (uint32_t i : taken_slots(topic_file))
        if (slot_has_role(topic_file, i, Role::writer) && slot_alive(topic_file, i)) return false;
    return true;
}

void leave_if_deleted(SubscriberState& s) {
    if (!s.attached() || !s.leases.empty() || has_more(s) || !deleted(s.participant->topic_file())) return;
    detach(s);
    s.came_first = true;
}

Listening listen_to_directory(SubscriberState& s) {
    if (!s.directory) return {};
    if (s.directory->replaced()) {
        s.directory.reset();  // attach() opens the new one
        return {};
    }
    return {true, s.directory->bell()};
}

Awaited awaited(SubscriberState& s, const Listening& listening) {
    // The topic's life has just ended, and the next is not there yet. Read the directory's bell first, then look again:
    // otherwise a topic created in between would not wake us.
    if (!s.attached()) return {listening.bell, !listening.listens, s.directory};
    // We stay in a life that has ended as long as its messages are borrowed; no bell rings when they are given back.
    if (s.participant->topic_file().retired() && !s.leases.empty()) return {{}, false};
    Bell bell = s.work ? s.work->worker.bell() : s.reader->bell();
    return {bell, !bell.word, s.participant->shared()};
}

constexpr int kLooksForOne = 8;  // in vain: then messages do not come in a stream

int wait_for_message(PyObject* self, SubscriberState& s, Deadline& deadline, View& view, bool borrowing) {
    Slices slices;
    for (bool spin = true;;) {
        Listening listening = listen(s);
        int found = message_now(self, s, view, borrowing, true);
        if (found != 0) [[likely]]
            return found;
        int64_t left = deadline.left_ns();
        if (left == 0) return 0;
        if (spin && s.attached()) {
            auto comes = [&, looks = 0]() mutable {
                if (++looks > kLooksForOne) s.work ? s.work->worker.expect_one() : s.reader->expect_one();
                return has_more(s);
            };
            auto stop = [&] {
                return PyErr_CheckSignals() != 0 || s.closing || s.participant->topic_file().retired();
            };
            if (s.spin.until(left, comes, stop)) continue;
            if (PyErr_Occurred()) return -1;
        }
        Awaited next = awaited(s, listening);
        if (next.at_once) continue;
        // Nothing came in a whole slice: do not spin again.
        auto unchanged = [&s] { return s.attached() && !s.work && s.reader->rests(); };
        spin = sleep_until_closed(s.sleepers, s.closing, next.bell, next.mapped, deadline, slices,
                                  works_with_others(s), unchanged) != Woken::timed_out;
        if (s.work && spin) s.work->worker.woken();
        bool stops = PyErr_CheckSignals() != 0;
        if (s.work && (stops || s.closing))
            s.work->worker.pass_on(true);  // the message that woke us is for another
        if (stops) return -1;
        if (s.closing) {
            if (s.leases.empty()) leave_topic(s);
            raise("Closed", "the subscriber of topic '" + s.topic + "' was closed while it waited");
            return -1;
        }
        if (!spin) leave_if_deleted(s);
    }
}

// For the thread that watches: has the wait ended although no bell rang? The process that should have rung may have died,
// and in a directory that we may not write there is no bell.
static std::function<bool()> ended_unrung(const SubscriberState& s) {
    if (!s.attached())
        return [directory = s.directory, topic = s.topic] {
            return directory->has(topic) || directory->replaced();
        };
    // acquire: as Reader::has_more.
    return [file = s.participant->shared(), works = s.work != nullptr, read = s.reader->position()] {
        uint64_t commit = file->header().commit.load(std::memory_order_acquire) & kPositionMask;
        if (file->retired() || deleted(*file)) return true;
        if (!works) return commit != read;
        try {
            return reap_dead_workers(*file) || WorkQueue(ring_of(*file)).cursor() != commit;
        } catch (const Failure&) {
            return true;  // the task meets it
        }
    };
}

int64_t watch_for_message(PyObject* self, SubscriberState& s, const std::shared_ptr<Event>& event) {
    for (;;) {
        leave_if_deleted(s);
        Listening listening = listen(s);
        View view;
        int found = message_now(self, s, view);
        if (found != 0) return found < 0 ? -1 : 0;
        Awaited next = awaited(s, listening);
        if (next.at_once) continue;
        try {
            return static_cast<int64_t>(watch({next.bell, event, ended_unrung(s), &s, works_with_others(s)}));
        } catch (const Failure& failure) {
            raise(failure);
            return -1;
        }
    }
}

void update_descriptor(PyObject* self, SubscriberState& s) {
    SavedError error;
    unwatch(s.event_token);
    s.event->take();
    int64_t token = s.closed ? 0 : watch_for_message(self, s, s.event);
    s.event_token = token > 0 ? static_cast<uint64_t>(token) : 0;
    if (token <= 0) s.event->ring(0);  // a message, or an error that the next call will raise
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
    PyErr_Clear();
}

bool try_again(Deadline& deadline, int& laps) {
    constexpr int kMaxLaps = 1000;  // with a timeout of 0, while a writer keeps overwriting what we copy
    if (PyErr_CheckSignals() != 0) return false;
    return deadline.timeout_ns() == 0 ? ++laps < kMaxLaps : deadline.left_ns() > 0;
}

PyObject* raise_timeout(const SubscriberState& s, const Deadline& deadline) {
    std::string text =
        "no message on topic '" + s.topic + "' within " + seconds(deadline.timeout_ns()) + ": ";
    if (!s.attached())
        return raise("Timeout", text + "there is no such topic (no publisher has been opened)");
    const TopicFile& topic_file = s.participant->topic_file();
    std::string writers;
    for (uint32_t i : taken_slots(topic_file)) {
        if (!slot_has_role(topic_file, i, Role::writer)) continue;
        ParticipantInfo writer = look_at(topic_file, i, slot_alive(topic_file, i));
        writers +=
            (writers.empty() ? "" : ", ") + writer.describe() + (writer.alive ? "" : ", which has died");
    }
    return raise("Timeout", text + (writers.empty() ? "it has no writer" : "waiting for " + writers));
}

PyObject* raise_evicted(const SubscriberState& s) {
    return raise(
        "TakenOver",
        "this subscriber's slot in topic '" + s.topic +
            "' was given to another participant: its lock was lost, which happens when a process closes all "
            "of its descriptors",
        ECONNABORTED);
}

static PyObject* cached_text(std::string& last, Ref& last_str, const std::byte* text, size_t size) {
    if (size == 0) return Py_NewRef(empty_str);
    char copy[kMaxEnvelopeNameBytes];
    copy_out(copy, text, size);
    if (!last_str || last.size() != size || std::memcmp(last.data(), copy, size) != 0) {
        Ref str(PyUnicode_DecodeUTF8(copy, static_cast<Py_ssize_t>(size), "replace"));
        if (!str) return nullptr;
        last_str = std::move(str);
        last.assign(copy, size);
    }
    return last_str.new_ref();
}

PyObject* sender_of(SubscriberState& s, const View& view) {
    return cached_text(s.last_sender, s.last_sender_str, view.sender(), view.sender_size);
}

PyObject* kind_of(SubscriberState& s, const View& view) {
    return cached_text(s.last_kind, s.last_kind_str, view.kind(), view.kind_size);
}

void clear_if_closed() {
    Ref errors;
    {
        SavedError raised;
        errors = Ref(PyImport_ImportModule("ringmain.errors"));
        PyErr_Clear();
    }
    Ref closed(errors ? PyObject_GetAttrString(errors.get(), "Closed") : nullptr);
    if (closed && PyErr_ExceptionMatches(closed.get())) PyErr_Clear();
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
