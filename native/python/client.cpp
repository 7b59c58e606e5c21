// ringmain._ring.NativeClient: the hot half of ringmain.Client. A call that a thread waits for runs without Python code,
// also while others use the client; all else is src/ringmain/_service/_client.py.
#include "python/client.hpp"

namespace ringmain::py {

namespace {

struct ClientState {
    std::shared_ptr<PyClientEnd> end;  // none: of a backend in Python
    Ref decoder;
};

struct ClientObject {
    PyObject_HEAD ClientState* state;
};

ClientState& client_of(PyObject* self) { return *reinterpret_cast<ClientObject*>(self)->state; }

// A call on the stack of the thread that waits for it.
struct OwnCall : PyCall {
    std::shared_ptr<PyClientEnd> end;
    explicit OwnCall(std::shared_ptr<PyClientEnd> of) : end(std::move(of)) {}
    ~OwnCall() { end->drop(*this); }
};

PyObject* result_of_call(PyObject* self, const ClientState& c, const OwnCall& call, PyObject* timeout) {
    if (call.answer == Answer::result) [[likely]]
        return c.decoder ? PyObject_CallFunctionObjArgs(c.decoder.get(), call.payload.get(), nullptr)
                         : call.payload.new_ref();
    Answer answer = call.finished() ? call.answer : Answer::late;
    return PyObject_CallMethod(self, "_raise_failure", "sOKO", name_of(answer),
                               call.payload ? call.payload.get() : Py_None, call.number, timeout);
}

// `Full` names the service, too.
PyObject* not_sent(PyObject* self) {
    if (!raised("Full")) return nullptr;
    SavedError error;
    error.normalize();
    Ref service(PyObject_GetAttrString(self, "service"));
    if (!service || PyObject_SetAttrString(error.value, "service", service.get()) != 0) PyErr_Clear();
    return nullptr;
}

PyObject* call(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    ClientState& c = client_of(self);
    PyObject* given[5] = {};
    static const char* const kNames[] = {"request", "timeout", "retry", "room_timeout", "if_idle"};
    int64_t timeout_ns = kForever;
    if (!parse_arguments("call", args, count, names, kNames, 1, given, 5) ||
        (given[1] && !parse_timeout(given[1], timeout_ns)))
        return nullptr;
    PyObject *timeout = given[1] ? given[1] : Py_None, *retry = given[2] ? given[2] : Py_False;
    auto asked = [&](int i, PyObject* usual) { return given[i] && given[i] != usual; };
    if (!c.end || timeout_ns == 0 || asked(3, Py_None) || asked(4, Py_False))
        return PyObject_CallMethod(self, "_call_in_steps", "OOOOO", given[0], timeout, retry,
                                   given[3] ? given[3] : Py_None, given[4] ? given[4] : Py_False);
    if (!c.end->receiving().attached()) {  // closed, or inherited through fork
        Ref open(PyObject_CallMethod(self, "_check_open", nullptr));
        if (!open) return nullptr;
    }
    OwnCall own(c.end);
    int retries = retry == Py_False ? 0 : PyObject_IsTrue(retry);
    if (retries < 0) return nullptr;
    own.terms = {deadline_in(timeout_ns), retries != 0};
    own.end->make_room();
    CRASH_POINT("call: topic of replies made, request not sent");
    Lists lists(*own.end, own);
    Ref sent(send_object(own.end->publisher.get(), given[0], RequestSays(own.terms), timeout_ns, &lists));
    if (!sent) return not_sent(self);
    CRASH_POINT("call: request sent, reply not awaited");
    if (!wait_for_reply(*own.end, own, timeout_ns)) return nullptr;
    return result_of_call(self, c, own, timeout);
}

// connect(end, decoder|None): an end that is not native is used in steps.
PyObject* connect(PyObject* self, PyObject* args) {
    PyObject *end, *decoder;
    if (!PyArg_ParseTuple(args, "OO", &end, &decoder)) return nullptr;
    ClientState& c = client_of(self);
    c.end = client_end_of(end);
    c.decoder = Ref::to(decoder == Py_None ? nullptr : decoder);
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"call", method(entry<call>), METH_FASTCALL | METH_KEYWORDS,
     "call(request, timeout=None, retry=False, *, room_timeout=None, if_idle=False)\n--\n\nSend a request "
     "and wait for its reply."},
    {"_connect", entry<connect>, METH_VARARGS, "Set the end that calls use, and what decodes replies."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(entry<create<ClientObject>>)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy<ClientObject>)},
                       {Py_tp_methods, methods},
                       {0, nullptr}};
PyType_Spec spec = {"ringmain._ring.NativeClient", sizeof(ClientObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

void raise_stopped(PyClientEnd& end, Outcome how) {
    SubscriberState& s = end.receiving();
    if (PyErr_Occurred()) return;
    if (how == Outcome::stopped)
        raise("Closed", "the client was closed", 0, s.topic);
    else
        (void)result_of(s, how);
}

bool wait_for_reply(PyClientEnd& end, PyCall& call, int64_t left_ns) {
    SubscriberState& s = end.receiving();
    if (s.caller.is_us()) {
        raise(
            "InUse",
            "this thread is in the middle of another call to the same client: a signal handler cannot use it",
            0, s.topic);
        return false;
    }
    PyClientHost host(end);
    Outcome how = Outcome::stopped;
    try {
        how = end.wait(call, left_ns, host);
    } catch (const Failure& failure) {
        raise(failure, s.topic);
        return false;
    }
    if (how == Outcome::ready || how == Outcome::timed_out) [[likely]]
        return true;
    raise_stopped(end, how);
    if (!call.finished() || !raised("Closed")) return false;
    PyErr_Clear();  // the client was closed, and has said so to the call
    return true;
}

bool add_client(PyObject* module) { return add_calls(module) && add_type(module, spec) != nullptr; }

}  // namespace ringmain::py
