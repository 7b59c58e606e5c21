// How the waits of a publisher end, in exceptions; waiting/blocking_writer.hpp waits.
#include "python/publisher.hpp"
#include "python/roster_wait.hpp"
#include "topic/writing.hpp"

namespace ringmain::py {

PyObject* raise_too_large(const PublisherState& p, uint64_t size, uint64_t envelope_bytes) {
    const TopicFile& file = p.topic_file();
    Ref advice(size <= UINT32_MAX ? PyLong_FromUnsignedLongLong(capacity_for(file, size, envelope_bytes))
                                  : Py_NewRef(Py_None));
    return raise_made("too_large", "(sKKKOi)", p.topic.c_str(), size, file.capacity_bytes,
                      p.largest_bytes - envelope_bytes, advice.get(), int{file.kept_kinds != 0});
}

static PyObject* raise_taken_over(const PublisherState& p) {
    bool removed = false;
    try {
        WithoutGil unlocked;
        removed = finish_removal(p.participant->topic_file());
    } catch (const Failure& failure) {
        return raise(failure, p.topic);
    }
    if (removed || p.topic_file().retired())
        return raise("TopicNotFound", "topic '" + p.topic + "' was removed; open it again to go on", ENOENT,
                     p.topic);
    return raise("TakenOver",
                 "another writer has taken over topic '" + p.topic + "'; this one cannot send any more",
                 ECONNABORTED, p.topic);
}

static PyObject* raise_no_room(const PublisherState& p, const Deadline& deadline) {
    Ref whom(PyList_New(0));
    if (auto obstacle = p.obstacle(); obstacle && !append(whom, waited_for(*obstacle))) return nullptr;
    return raise_made("no_room", "(sOsO)", p.topic.c_str(), seconds(deadline.timeout_ns()).get(),
                      p.describe_obstacle().c_str(), whom.get());
}

PyObject* raise_late(const PublisherState& p, const Deadline& deadline) {
    return raise_made("no_room", "(sOs)", p.topic.c_str(), seconds(deadline.timeout_ns()).get(),
                      "another thread, which is in a call to the same publisher");
}

PyObject* raise_outcome(PublisherState& p, Outcome outcome, const Deadline& deadline) {
    switch (outcome) {
        case Outcome::taken_over:
            return raise_taken_over(p);
        case Outcome::timed_out:
            return raise_no_room(p, deadline);
        case Outcome::too_few:
            return raise_made("too_few_readers", "(sOIIi)", p.topic.c_str(),
                              seconds(deadline.timeout_ns()).get(), p.readers_seen, p.min_readers, 1);
        case Outcome::stopped:
            if (PyErr_Occurred()) return nullptr;
            // A reservation that is being written outlives this wait, and refuses to be closed.
            if (!p.reserved) leave_topic(p);
            return raise("Closed", "the publisher of topic '" + p.topic + "' was closed while it waited", 0,
                         p.topic);
        default:
            return raise_corrupt(p.topic);
    }
}

// Inherited through fork: the slot is the parent's, so join again. Call inside OneAtATime: the threads of a child may all
// come here, and the first one joins for all of them.
static PublisherState* revived(PyObject* self, PublisherState& p) {
    if (p.open() || !p.participant || p.closing) return usable(self);  // another thread was first
    Ref done(PyObject_CallMethod(self, "_revive", nullptr));
    if (!done && p.closing) {  // _revive closed it, and leaves the rest to the thread inside: us
        SavedError error;
        leave_topic(p);
        p.closing = false;
    }
    return done ? usable(self) : nullptr;
}

PublisherState* usable_slow_path(PyObject* self) {
    PublisherState* p = reinterpret_cast<PublisherObject*>(self)->state;
    if (p->open() && !p->closing) {
        raise("InUse",
              "a reservation or stream of topic '" + p->topic +
                  "' is still open, or a view of one is still alive: finish it first",
              0, p->topic);
        return nullptr;
    }
    if (p->participant && !p->closing) {
        if (p->caller.is_us()) return revived(self, *p);
        OneAtATime turn(p->caller);
        return turn.entered ? revived(self, *p) : nullptr;
    }
    raise("Closed", "the publisher of topic '" + p->topic + "' is closed", 0, p->topic);
    return nullptr;
}

void leave_topic(PublisherState& p) {
    std::unique_ptr<Participant> participant = std::move(p.participant);
    p.writer.reset();
    end_watches(static_cast<BlockingWriter*>(&p));  // of tasks, which now meet `Closed`
    WithoutGil unlocked;
    participant.reset();
}

bool start_message_slow_path(PublisherState& p, uint64_t room, Deadline& deadline) {
    PythonHost host = p.host();
    try {
        Outcome outcome = p.start(room, deadline, host);
        if (outcome == Outcome::ready) return true;
        raise_outcome(p, outcome, deadline);
    } catch (const Failure& failure) {
        raise(failure, p.topic);
    } catch (const std::exception&) {
        raise_caught();
    }
    return false;
}

}  // namespace ringmain::py
