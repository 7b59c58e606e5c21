// ringmain._ring.NativeClient: the hot half of ringmain.Client. One call whose reply comes within a slice, while no other thread uses
// the client, runs without Python code; all else is src/ringmain/_service/_client.py.
#include <charconv>

#include "python/publisher.hpp"
#include "python/subscriber.hpp"
#include "python/terms.hpp"

namespace ringmain::py {

namespace {

constexpr int64_t kFirstSlice_ns = 10'000'000;  // then Python code looks whether the server lives

struct ClientState {
    Ref publisher, subscriber, decoder;
    bool fast_path_ok = false;  // no other thread or task receives replies
};

struct ClientObject {
    PyObject_HEAD ClientState* state;
};

ClientState& client_of(PyObject* self) { return *reinterpret_cast<ClientObject*>(self)->state; }

// The reply to request `number`, if it is the next message. nullptr without an exception: it is not, and was not taken.
PyObject* receive_reply(ClientState& c, SubscriberState& s, uint64_t number, Deadline& deadline) {
    char text[24];
    size_t length = static_cast<size_t>(std::to_chars(text, text + sizeof text, number).ptr - text);
    View view;
    if (next_message(c.subscriber.get(), s, deadline, view) != 1) return nullptr;
    if (view.kind_size != length || std::memcmp(view.kind(), text, length) != 0) return nullptr;
    Ref bytes(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(view.payload()),
                                        static_cast<Py_ssize_t>(view.size)));
    if (!bytes) return nullptr;
    CRASH_POINT("call: reply read, not taken");
    s.reader->take(view);
    if (!s.reader->release(s.keep())) return raise_evicted(s);
    CRASH_POINT("call: reply taken, not returned");
    return c.decoder ? PyObject_CallFunctionObjArgs(c.decoder.get(), bytes.get(), nullptr) : bytes.release();
}

PyObject* call(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    ClientState& c = client_of(self);
    PyObject* given[5] = {};
    static const char* const kNames[] = {"request", "timeout", "retry", "room_timeout", "if_idle"};
    int64_t timeout_ns = kForever;
    if (!parse_arguments("call", args, count, names, kNames, 1, given, 5) ||
        (given[1] && !parse_timeout(given[1], timeout_ns)))
        return nullptr;
    PyObject* timeout = given[1] ? given[1] : Py_None;
    SubscriberState* s =
        c.fast_path_ok ? reinterpret_cast<SubscriberObject*>(c.subscriber.get())->state : nullptr;
    // Another thread that receives would have to know of this call: then Python code keeps the list of them.
    auto asked = [&](int i, PyObject* usual) { return given[i] && given[i] != usual; };
    if (!s || s->caller.inside() || !s->attached() || timeout_ns == 0 || asked(2, Py_False) ||
        asked(3, Py_None) || asked(4, Py_False))
        return PyObject_CallMethod(self, "_call_slow_path", "OOOOO", given[0], timeout,
                                   given[2] ? given[2] : Py_False, given[3] ? given[3] : Py_None,
                                   given[4] ? given[4] : Py_False);
    Ref known;
    {
        Receiving turn(c.subscriber.get(), *s);
        if (!turn.entered() || !usable_subscriber(c.subscriber.get())) return nullptr;
        CRASH_POINT("call: topic of replies made, request not sent");
        CallKind kind(timeout_ns);
        Ref sent(send_object(c.publisher.get(), given[0], kind, timeout_ns));
        if (!sent) return nullptr;
        uint64_t number = PyLong_AsUnsignedLongLong(sent.get());
        CRASH_POINT("call: request sent, reply not awaited");
        int64_t slice_ns = std::min(timeout_ns, kFirstSlice_ns);
        Deadline deadline(slice_ns);
        PyObject* reply = receive_reply(c, *s, number, deadline);
        if (reply || PyErr_Occurred()) return reply;  // raised: a reply that no call waits for is ignored
        // Before another thread may receive: from now on our call is on the list.
        known = Ref(PyObject_CallMethod(self, "_add_call", "KOL", number, timeout,
                                        static_cast<long long>(kind.deadline_ns())));
        if (!known) return nullptr;
    }
    return PyObject_CallMethod(self, "_outcome", "O", known.get());
}

// connect(publisher, subscriber, decoder|None, fast_path_ok)
PyObject* connect(PyObject* self, PyObject* args) {
    PyObject *publisher, *subscriber, *decoder;
    int fast_path_ok;
    if (!PyArg_ParseTuple(args, "OOOp", &publisher, &subscriber, &decoder, &fast_path_ok)) return nullptr;
    ClientState& c = client_of(self);
    bool native =
        PyObject_TypeCheck(publisher, publisher_type) && PyObject_TypeCheck(subscriber, subscriber_type);
    c.publisher = Ref::to(publisher);
    c.subscriber = Ref::to(subscriber);
    c.decoder = Ref::to(decoder == Py_None ? nullptr : decoder);
    c.fast_path_ok = fast_path_ok && native;
    Py_RETURN_NONE;
}

PyObject* create(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* self = allocate(type);
    if (self) reinterpret_cast<ClientObject*>(self)->state = new ClientState;
    return self;
}

void destroy(PyObject* self) {
    delete reinterpret_cast<ClientObject*>(self)->state;
    deallocate(self);
}

PyMethodDef methods[] = {
    {"call", method(call), METH_FASTCALL | METH_KEYWORDS,
     "call(request, timeout=None, retry=False, *, room_timeout=None, if_idle=False)\n--\n\nSend a request "
     "and wait for its reply."},
    {"_connect", connect, METH_VARARGS, "Set the endpoints, and whether a call may take the fast path."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(create)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_methods, methods},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.NativeClient", sizeof(ClientObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

bool add_client(PyObject* module) { return add_type(module, spec) != nullptr; }

}  // namespace ringmain::py
