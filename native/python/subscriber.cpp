// ringmain._ring.Subscriber: the hot half of a subscriber. The rest is src/ringmain/_subscriber.py.
// Here it receives; subscriber_options.cpp has its other methods.
#include "python/subscriber.hpp"

#include <cstdlib>
#include <type_traits>

namespace ringmain::py {

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

// What a message says besides its data, as new references.
struct EnvelopeObjects {
    PyObject *sender = nullptr, *kind = nullptr;
    PyObject* extension = nullptr;  // none: there is none

    // False: there is no memory, or it was overwritten meanwhile.
    bool read(SubscriberState& s, const View& view) {
        sender = sender_of(s, view);
        kind = kind_of(s, view);
        if (view.kind_size != 0 && !view.said().extension.empty()) [[unlikely]]
            if (!(extension = extension_of(view))) return false;
        return sender && kind && s.reader->still_whole(view);
    }
    EnvelopeObjects taken() { return std::exchange(*this, EnvelopeObjects{}); }
    void drop() {
        for (PyObject* object : {sender, kind, extension}) Py_XDECREF(object);
    }
};

struct OwnedEnvelope : EnvelopeObjects {
    ~OwnedEnvelope() { drop(); }
};

// A Message of what was just taken. Takes over the references.
PyObject* new_message(SubscriberState& s, const View& view, PyObject* data, const EnvelopeObjects& said,
                      uint64_t lost) {
    uint32_t redelivered = s.work ? s.work->fresh.back().returns : 0;
    return PyObject_CallFunction(message_class, said.extension ? "NKLNNKOIN" : "NKLNNKOI", data, view.seq,
                                 view.time_ns, said.sender, said.kind, lost, s.topic_str.get(), redelivered,
                                 said.extension);
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
        EnvelopeObjects said;
        auto drop_all = [&](PyObject* data) {
            Py_XDECREF(data);
            said.drop();
        };
        if constexpr (whole) {
            if (!said.read(s, view)) {
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
        Reader::Mark before = s.reader->mark();
        uint64_t lost = s.reader->take(view);
        if (whole && data) {
            data = new_message(s, view, data, said.taken(), lost);
            if (!data) [[unlikely]] {  // there is no memory: the next call gives the message again
                s.reader->back_to(before);
                return nullptr;
            }
        }
        if (!s.reader->release(s.keep())) [[unlikely]] {
            drop_all(data);
            return raise_evicted(s);
        }
        if (!data) drop_all(nullptr);
        return data;
    }
}

// The most common case by itself: the next message as `bytes`, if it is there and small. It keeps the GIL, so another thread
// need not be kept out. nullptr without an exception: it is not this case.
[[gnu::always_inline]] inline PyObject* receive_fast_path(SubscriberState& s) {
    Reader& reader = *s.reader;
    View view;
    if (reader.peek(view) != Status::ok || view.size >= kLargeCopyBytes) return nullptr;
    PyObject* bytes = copy_message(s, view);
    if (!bytes) return nullptr;
    reader.take(view);
    if (reader.release()) [[likely]]
        return bytes;
    Py_DECREF(bytes);
    return entry<raise_evicted>(s);
}

template <bool whole>
PyObject* receive_within(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names,
                         const char* function) {
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

PyObject* recv_slow_path(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    return receive_within<false>(self, args, count, names, "recv");
}
PyObject* recv_without_limit(PyObject* self) { return recv_slow_path(self, nullptr, 0, nullptr); }

PyObject* recv(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    if (count != 0 || names) return entry<recv_slow_path>(self, args, count, names);
    SubscriberState& s = *reinterpret_cast<SubscriberObject*>(self)->state;
    if (s.fast_path_ok()) [[likely]] {
        PyObject* bytes = receive_fast_path(s);
        if (bytes || PyErr_Occurred()) [[likely]]
            return bytes;
    }
    return entry<recv_without_limit>(self);
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

// Nothing there is as common as a message: a program looks at one topic after another.
PyObject* try_recv(PyObject* self, PyObject*) {
    SubscriberState& s = *reinterpret_cast<SubscriberObject*>(self)->state;
    if (s.may_look()) [[likely]] {
        if (!s.reader->has_more()) {
            if (!s.topic_file().retired()) [[likely]]
                Py_RETURN_NONE;
        } else if (!s.decoder) {
            PyObject* bytes = receive_fast_path(s);
            if (bytes || PyErr_Occurred()) [[likely]]
                return bytes;
        }
    }
    return entry<receive_now<false>>(self);
}
PyObject* try_recv_message(PyObject* self, PyObject*) { return receive_now<true>(self); }

// Iteration waits without a limit, and ends when the subscriber is closed.
PyObject* next_slow_path(PyObject* self) {
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(self)->state;
    Receiving turn(self, *s);
    if (!turn.entered() || s->closed || s->closing) return nullptr;
    Deadline deadline(kForever);
    PyObject* result = receive<false>(self, *s, deadline);
    if (s->work) [[unlikely]]
        note_object(*s, result);
    if (!result && s->closed) clear_if_closed();
    return result;
}

PyObject* next(PyObject* self) {
    SubscriberState& s = *reinterpret_cast<SubscriberObject*>(self)->state;
    if (s.fast_path_ok()) [[likely]] {
        PyObject* bytes = receive_fast_path(s);
        if (bytes || PyErr_Occurred()) [[likely]]
            return bytes;
    }
    return entry<next_slow_path>(self);
}

// Objects of unknown number that become a list, which is then made once and in its size. Owns a reference to each. There is always
// room for one more, so that none is taken for which there is no memory.
class Objects {
    static constexpr size_t kFirst = 64;
    PyObject* first_[kFirst];
    PyObject** objects_ = first_;
    size_t size_ = 0, room_ = kFirst;

    [[gnu::noinline]] bool grow() {
        bool moves = objects_ == first_;
        void* grown = std::realloc(moves ? nullptr : objects_, 2 * room_ * sizeof(PyObject*));
        if (!grown) return false;
        if (moves) std::memcpy(grown, first_, sizeof first_);
        objects_ = static_cast<PyObject**>(grown);
        room_ *= 2;
        return true;
    }

  public:
    Objects() = default;
    ~Objects() {
        clear();
        if (objects_ != first_) std::free(objects_);
    }
    Objects(const Objects&) = delete;
    Objects& operator=(const Objects&) = delete;

    size_t size() const { return size_; }
    // False: there is no room for another.
    bool add(PyObject* owned) {
        objects_[size_++] = owned;
        return size_ < room_ || grow();
    }
    void clear() {
        while (size_ > 0) Py_DECREF(objects_[--size_]);
    }
    PyObject* as_list() {
        PyObject* list = PyList_New(static_cast<Py_ssize_t>(size_));
        if (!list) return nullptr;
        size_t count = std::exchange(size_, 0);
        for (size_t i = 0; i < count; ++i) PyList_SetItem(list, static_cast<Py_ssize_t>(i), objects_[i]);
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
        std::conditional_t<whole, OwnedEnvelope, EnvelopeObjects> said;
        if constexpr (whole) {
            if (bytes) {
                if (!said.read(*s, view)) Py_CLEAR(bytes);
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
            Reader::Mark here = s->reader->mark();
            uint64_t lost = data || taken.size() == 0 ? s->reader->take(view) : 0;
            if (whole && data) {
                data = new_message(*s, view, data, said.taken(), lost);
                if (!data) s->reader->back_to(here);
            }
            if (!data || !taken.add(data) || taken.size() == max_messages) break;
        } else if (taken.size() > 0 || !try_again(deadline, laps)) {
            break;
        }
        found = next_of_many(*s, view);
    }
    bool some = taken.size() > 0;
    if (some) PyErr_Clear();  // what was taken is not discarded: the next call meets the same error first
    Ref list(PyErr_Occurred() ? nullptr : taken.as_list());
    if (!list && some) s->reader->back_to(before);
    if (s->reader && !s->reader->release(s->keep()) && !PyErr_Occurred()) raise_evicted(*s);
    if (!list || (!some && PyErr_Occurred())) return nullptr;
    PyErr_Clear();
    if (s->work) note_objects(*s, list.get());
    return list.release();
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
        Ref size(PyLong_FromUnsignedLong(view.size));
        if (!size) return nullptr;
        s->reader->take(view);
        return s->reader->release(s->keep()) ? size.release() : raise_evicted(*s);
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

PyMethodDef methods[] = {
    {"recv", method(recv), METH_FASTCALL | METH_KEYWORDS,
     "recv(timeout=None)\n--\n\nThe next message's data. Raises Timeout if none comes in time."},
    {"try_recv", try_recv, METH_NOARGS, "try_recv()\n--\n\nThe next message's data, or None at once."},
    {"recv_message", method(entry<recv_message>), METH_FASTCALL | METH_KEYWORDS,
     "recv_message(timeout=None)\n--\n\nThe next Message: its data and its envelope."},
    {"try_recv_message", entry<try_recv_message>, METH_NOARGS,
     "try_recv_message()\n--\n\nThe next Message, or None at once."},
    {"recv_messages", method(entry<recv_messages>), METH_FASTCALL | METH_KEYWORDS,
     "recv_messages(max_messages, timeout=0)\n--\n\nThe messages that are there, up to max_messages, with "
     "their "
     "envelopes."},
    {"recv_many", method(entry<recv_many>), METH_FASTCALL | METH_KEYWORDS,
     "recv_many(max_messages, timeout=0)\n--\n\nThe messages that are there, up to max_messages, of one "
     "life of the topic. Waits, if at all, only for the first; an empty list if none comes in time, where "
     "recv "
     "raises Timeout."},
    {"recv_into", method(entry<recv_into>), METH_FASTCALL | METH_KEYWORDS,
     "recv_into(buffer, timeout=None)\n--\n\nCopy the next message into a buffer; returns its size."},
    {"fileno", entry<subscriber_options::fileno>, METH_NOARGS,
     "fileno()\n--\n\nA descriptor that is readable while a message is there, for select and event loops."},
    {"_raise_timeout", entry<subscriber_options::timed_out>, METH_O, "Raise what recv(timeout) would."},
    {"_arm", entry<subscriber_options::arm>, METH_O, "Ring an Event when there may be a message."},
    {"_pass_on", entry<subscriber_options::pass_on>, METH_NOARGS, "The wait for that event was given up."},
    {"_open", entry<subscriber_options::open>, METH_VARARGS, "Join the topic, if it is there."},
    {"_close", entry<subscriber_options::close>, METH_NOARGS, "Leave the topic."},
    {"_screen", entry<subscriber_options::screen>, METH_VARARGS, "Set which senders and kinds to skip."},
    {"_set_max_deliveries", entry<subscriber_options::set_max_deliveries>, METH_O,
     "After how many deliveries to call _send_dead_letter; 0: never."},
    {"_reject", entry<subscriber_options::reject_received>, METH_O, "Give back a message that was received."},
    {"_give_back_all", entry<subscriber_options::give_back_all>, METH_NOARGS,
     "Give back all that was received and not finished."},
    {"_set_decoder", entry<subscriber_options::set_decoder>, METH_O,
     "Set what turns bytes into an object, or None."},
    {"_describe", entry<subscriber_options::describe>, METH_NOARGS,
     "An EndpointRecord, or None before the topic exists."},
    {"_directory_count", entry<subscriber_options::directory_count>, METH_NOARGS,
     "Changes when topics are created or removed; for wait()."},
    {"_schema", entry<subscriber_options::get_schema>, METH_NOARGS, "The topic's schema, as bytes."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef attributes[] = {{"lost", entry<get_lost>, nullptr, "Messages lost since it was opened.", nullptr},
                            {"closed", entry<get_closed>, nullptr, "Is it closed?", nullptr},
                            {"attached", entry<get_attached>, nullptr, "Has the topic appeared?", nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(entry<create<SubscriberObject>>)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy<SubscriberObject>)},
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
