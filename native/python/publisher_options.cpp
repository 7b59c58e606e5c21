// The methods of a publisher that do not send: opening, closing, options, waiting for readers, and what it says of itself.
#include "python/event.hpp"
#include "python/publisher.hpp"
#include "python/roster_wait.hpp"
#include "topic/writing.hpp"

namespace ringmain::py::publisher_options {

// set_sender(name): the sender of messages from now on.
PyObject* set_sender(PyObject* self, PyObject* name) {
    PublisherState* p = reinterpret_cast<PublisherObject*>(self)->state;
    std::string_view sender;
    if (!text_of(name, sender)) return nullptr;
    if (sender.size() > kMaxEnvelopeNameBytes) {
        PyErr_Format(PyExc_ValueError, "sender is at most %zu bytes of UTF-8, this one has %zu",
                     kMaxEnvelopeNameBytes, sender.size());
        return nullptr;
    }
    OneAtATime turn(p->caller);
    if (!turn.entered || !usable(self)) return nullptr;
    p->sender = sender;
    Py_RETURN_NONE;
}

// arm(event): after Full, rings the event when there may be room. Returns its token; 0: try again now.
PyObject* arm(PyObject* self, PyObject* event) {
    PublisherState* p = usable(self);
    if (!p || !check_event(event)) return nullptr;
    try {
        return PyLong_FromUnsignedLongLong(p->watch_for_room(event_of(event)));
    } catch (const Failure& failure) {
        return raise(failure);
    }
}

// open(*, directory, ...): each by its name, as _ring.pyi types them; `replaces` is (epoch, slot, generation). What the
// publisher had before, inherited through fork, is replaced at the end: until then other threads find it forked, and wait.
PyObject* open(PyObject* self, PyObject* args, PyObject* named) {
    static const char* const kNames[] = {"directory",
                                         "topic",
                                         "contract",
                                         "capacity",
                                         "mode",
                                         "persist",
                                         "takeover",
                                         "schema",
                                         "name",
                                         "sender",
                                         "spin_ns",
                                         "min_readers",
                                         "replaces",
                                         "max_participants",
                                         "keep_last_per_kind",
                                         "frames",
                                         nullptr};
    PublisherState* p = reinterpret_cast<PublisherObject*>(self)->state;
    const char *directory, *topic, *contract, *schema, *name, *sender;
    PyObject *capacity, *mode, *replaces, *slot_count;
    unsigned min_readers, kept_kinds;
    int persist, takeover, frames;
    Py_ssize_t schema_size;
    long long spin_ns;
    if (!PyArg_ParseTupleAndKeywords(args, named, "sszOOppy#ssLIOOIp", const_cast<char**>(kNames), &directory,
                                     &topic, &contract, &capacity, &mode, &persist, &takeover, &schema,
                                     &schema_size, &name, &sender, &spin_ns, &min_readers, &replaces,
                                     &slot_count, &kept_kinds, &frames))
        return nullptr;
    WriterRequest request;
    if (contract) {
        request.contract = contract_named(contract);
        if (!request.contract) {
            std::string names;
            for (const ContractTraits& row : kContracts) {
                if (&row != kContracts) names += &row + 1 != std::end(kContracts) ? ", " : " or ";
                names += std::string("'") + row.name + "'";
            }
            PyErr_Format(PyExc_ValueError, "contract is %s, not '%s'", names.c_str(), contract);
            return nullptr;
        }
    }
    if (capacity != Py_None) {
        request.capacity_bytes = PyLong_AsUnsignedLongLong(capacity);
        if (PyErr_Occurred()) return nullptr;
    }
    if (mode != Py_None) {
        request.mode = static_cast<uint32_t>(PyLong_AsUnsignedLong(mode));
        if (PyErr_Occurred()) return nullptr;
    }
    if (slot_count != Py_None) {
        request.slot_count = static_cast<uint32_t>(PyLong_AsUnsignedLong(slot_count));
        if (PyErr_Occurred()) return nullptr;
    }
    if (replaces != Py_None) {
        unsigned long long epoch, generation;
        unsigned slot;
        if (!PyArg_ParseTuple(replaces, "KIK", &epoch, &slot, &generation)) return nullptr;
        request.replaces = {epoch, slot, generation};
    }
    if (kept_kinds != 0) request.kept_kinds = kept_kinds;
    request.frames = frames;
    request.persist = persist;
    request.takeover = takeover;
    request.schema.assign(schema, static_cast<size_t>(schema_size));
    request.name = name;
    p->topic = topic;
    p->sender = sender;
    p->spin.set(spin_ns);
    p->min_readers = min_readers;
    p->enough_at = PublisherState::kNeverEnough;
    p->lacks_readers = false;
    std::shared_ptr<Directory> opened;
    std::unique_ptr<Participant> participant;
    std::unique_ptr<Writer> writer;
    bool joined = with_roster(topic, [&](int64_t patience_ns) {
        request.patience_ns = patience_ns;
        participant = join_as_writer_in(directory, opened, topic, request);
        writer = std::make_unique<Writer>(ring_of(participant->topic_file()), participant->slot());
        bool attached =
            traits(participant->topic_file().contract).one_writer ? writer->attach() == Status::ok : true;
        if (!attached) throw Failure{Fault::corrupt, corrupt_text(topic)};
    });
    if (!joined) return nullptr;
    p->largest_bytes = largest_payload(participant->topic_file());
    p->reserved = false;  // after a fork, the reservation is the parent's
    p->directory.swap(opened);
    p->writer.swap(writer);
    p->participant.swap(participant);
    p->closing = false;
    Py_RETURN_NONE;
}

PyObject* close(PyObject* self, PyObject*) {
    PublisherState* p = reinterpret_cast<PublisherObject*>(self)->state;
    if (!p->participant) Py_RETURN_NONE;
    if (p->reserved)
        return raise("InUse",
                     "topic '" + p->topic +
                         "' cannot be closed: a reservation or stream is open, or a view of one is alive");
    Closing closing(p->closing);  // a thread that waits inside gives up, and closes for us
    p->sleepers.wake();
    if (p->caller.is_us()) return closing.stays();
    OneAtATime turn(p->caller);
    if (turn.entered && p->participant && !p->reserved) leave_topic(*p);
    closing.over();
    if (!turn.entered) return nullptr;
    if (p->participant) return close(self, nullptr);  // reserved meanwhile: raises
    Py_RETURN_NONE;
}

PyObject* wait_for_readers(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    PublisherState* p = usable(self);
    PyObject* given[2] = {};
    static const char* const kNames[] = {"count", "timeout"};
    int64_t timeout_ns = kForever;
    if (!p || !parse_arguments("wait_for_readers", args, count, names, kNames, 0, given, 2)) return nullptr;
    if (given[1] && !parse_timeout(given[1], timeout_ns)) return nullptr;
    long wanted = given[0] ? PyLong_AsLong(given[0]) : 1;
    if (wanted == -1 && PyErr_Occurred()) return nullptr;
    // Another thread may close the publisher meanwhile, or make a reservation.
    struct Host : PythonHost {
        PyObject* self;
        bool goes_on() { return PyErr_CheckSignals() == 0 && usable(self); }
    } host{p->host(), self};
    std::shared_ptr<TopicFile> file = p->participant->shared();
    Deadline deadline(timeout_ns);
    uint32_t readers = 0;
    switch (ringmain::wait_for_readers(file, wanted, readers, deadline, host)) {
        case Outcome::ready:
            return PyLong_FromUnsignedLong(readers);
        case Outcome::timed_out:
            return raise_made("too_few_readers", "(sOIli)", p->topic.c_str(), seconds(timeout_ns).get(),
                              readers, wanted, 0);
        default:
            return nullptr;
    }
}

PyObject* describe(PyObject* self, PyObject*) {
    PublisherState* p = usable(self);
    if (!p) return nullptr;
    const TopicFile& s = p->participant->topic_file();
    return Py_BuildValue("{sssKsKsKsIsKsO}", "contract", traits(s.contract).name, "capacity_bytes",
                         s.capacity_bytes, "epoch", s.epoch, "max_message_bytes", p->largest_bytes, "slot",
                         p->participant->slot(), "generation", p->participant->generation(), "frames",
                         s.has_frames() ? Py_True : Py_False);
}

PyObject* get_schema(PyObject* self, PyObject*) {
    PublisherState* p = usable(self);
    return p ? schema_of(p->participant->topic_file()) : nullptr;
}

PyObject* set_schema(PyObject* self, PyObject* schema) {
    PublisherState* p = usable(self);
    Bytes data;
    if (!p || !data.get(schema)) return nullptr;
    std::shared_ptr<TopicFile> file = p->participant->shared();  // another thread may close us meanwhile
    bool done = with_roster(file->topic, [&](int64_t patience_ns) {
        RosterLock lock(*file, patience_ns);
        file->set_schema({data.data, static_cast<size_t>(data.size)});
    });
    if (!done) return nullptr;
    Py_RETURN_NONE;
}

// set_encoder(encode, accepts): what turns an object into bytes, and the classes it accepts, or None for any.
PyObject* set_encoder(PyObject* self, PyObject* args) {
    PublisherState* p = reinterpret_cast<PublisherObject*>(self)->state;
    PyObject *encoder, *accepts;
    if (!PyArg_ParseTuple(args, "OO", &encoder, &accepts)) return nullptr;
    p->encoder = Ref::to(encoder);
    p->accepts = Ref::to(accepts == Py_None ? nullptr : accepts);
    Py_RETURN_NONE;
}

}  // namespace ringmain::py::publisher_options
