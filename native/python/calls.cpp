// ringmain._ring.ClientEnd, Call and Waiter: calls that no thread waits for as they are sent. Futures and tasks are told of their
// outcomes by a waiter; others are waited for later.
#include "python/client.hpp"
#include "python/event.hpp"
#include "requests/sent.hpp"

namespace ringmain::py {

namespace {

struct EndObject {
    PyObject_HEAD std::shared_ptr<PyClientEnd>* end;
};
struct WaiterObject {
    PyObject_HEAD std::shared_ptr<PyWaiter>* waiter;
};
// A call, and what Python code keeps beside it. While it is listed for a waiter, the list owns a reference.
struct HeldCall : PyCall {
    PyObject* object;
    std::shared_ptr<PyClientEnd> end;
    std::shared_ptr<PyWaiter> keeps_waiter;
    Ref timeout, done;
};
struct CallObject {
    PyObject_HEAD HeldCall* call;
};

PyTypeObject *end_type, *waiter_type, *call_type;

const std::shared_ptr<PyClientEnd>& end_of(PyObject* self) {
    return *reinterpret_cast<EndObject*>(self)->end;
}
HeldCall& call_of(PyObject* self) { return *reinterpret_cast<CallObject*>(self)->call; }
PyWaiter& waiter_of(PyObject* self) { return **reinterpret_cast<WaiterObject*>(self)->waiter; }

// new_call(timeout, retry, done, waiter)
PyObject* new_call(PyObject* self, PyObject* args) {
    PyObject *timeout, *done = Py_None, *waiter = Py_None;
    int retry;
    int64_t timeout_ns;
    if (!PyArg_ParseTuple(args, "Op|OO", &timeout, &retry, &done, &waiter) ||
        !parse_timeout(timeout, timeout_ns))
        return nullptr;
    Ref object(allocate(call_type));
    if (!object) return nullptr;
    auto* call = new HeldCall;
    reinterpret_cast<CallObject*>(object.get())->call = call;
    call->object = object.get();
    call->end = end_of(self);
    call->terms = {deadline_in(timeout_ns), retry != 0};
    call->timeout = Ref::to(timeout);
    call->done = Ref::to(done);
    if (PyObject_TypeCheck(waiter, waiter_type)) {
        call->keeps_waiter = *reinterpret_cast<WaiterObject*>(waiter)->waiter;
        call->waiter = call->keeps_waiter.get();
    }
    return object.release();
}

class ListsHeld : public BeforeCommit {
    HeldCall& call_;

  public:
    explicit ListsHeld(HeldCall& call) : call_(call) {}
    void numbered(uint64_t seq) override {
        if (call_.waiter) Py_INCREF(call_.object);
        call_.end->add(call_, seq);
    }
};

bool check_new(const HeldCall& call) {
    if (!call.listed && !call.finished()) return true;
    PyErr_SetString(PyExc_ValueError, "the call was sent already");
    return false;
}

// send(request, call, room_s)
PyObject* send(PyObject*, PyObject* args) {
    PyObject *request, *object, *room;
    int64_t room_ns;
    if (!PyArg_ParseTuple(args, "OO!O", &request, call_type, &object, &room) ||
        !parse_timeout(room, room_ns) || !check_new(call_of(object)))
        return nullptr;
    HeldCall& call = call_of(object);
    call.end->make_room();
    ListsHeld lists(call);
    return send_object(call.end->publisher.get(), request, RequestSays(call.terms), room_ns, &lists);
}

// commit(reservation, call): of a request that was written in place.
PyObject* commit(PyObject* self, PyObject* args) {
    PyObject *reservation, *object;
    if (!PyArg_ParseTuple(args, "O!O!", reservation_type, &reservation, call_type, &object) ||
        !check_new(call_of(object)))
        return nullptr;
    HeldCall& call = call_of(object);
    const PublisherState& p = end_of(self)->sending();
    if (!p.open() || !p.reserved) return PyObject_CallMethod(reservation, "commit", nullptr);  // says why not
    call.end->make_room();
    ListsHeld(call).numbered(p.writer->seq());  // no other writes until it is committed
    PyObject* sent = PyObject_CallMethod(reservation, "commit", nullptr);
    if (sent) return sent;
    call.end->drop(call);
    if (call.waiter) Py_DECREF(object);
    return nullptr;
}

// wait(call): until it is finished, or late.
PyObject* wait(PyObject*, PyObject* object) {
    if (!PyObject_TypeCheck(object, call_type)) return PyErr_Format(PyExc_TypeError, "wait() takes a Call");
    HeldCall& call = call_of(object);
    if (!wait_for_reply(*call.end, call, call.left_ns())) return nullptr;
    Py_RETURN_NONE;
}

// drop(call): no one waits for it any more.
PyObject* drop(PyObject*, PyObject* object) {
    if (!PyObject_TypeCheck(object, call_type)) return PyErr_Format(PyExc_TypeError, "drop() takes a Call");
    HeldCall& call = call_of(object);
    bool owned = call.listed && call.waiter;
    call.end->drop(call);
    if (owned) Py_DECREF(object);
    Py_RETURN_NONE;
}

// request_state(number)
PyObject* request_state_of(PyObject* self, PyObject* number) {
    const PublisherState& p = end_of(self)->sending();
    uint64_t seq = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return nullptr;
    return PyUnicode_FromString(
        name_of(p.open() ? request_state(p.participant->topic_file(), seq) : RequestState::done));
}

// withdraw(number): if no server has taken it.
PyObject* withdraw_one(PyObject* self, PyObject* number) {
    PublisherState& p = end_of(self)->sending();
    uint64_t seq = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return nullptr;
    if (!p.open()) Py_RETURN_NONE;
    std::shared_ptr<Directory> directory = p.directory;
    std::string topic = p.topic;
    uint64_t epoch = p.participant->topic_file().epoch;
    try {
        WithoutGil unlocked;
        withdraw(directory, topic, epoch, {seq});
    } catch (const Failure& failure) {
        return raise(failure, topic);
    }
    Py_RETURN_NONE;
}

// ---------------------------------------------------------------------------------------------------- waiters

PyObject* new_waiter(PyObject*, PyObject*) {
    Ref self(allocate(waiter_type));
    if (self)
        reinterpret_cast<WaiterObject*>(self.get())->waiter =
            new std::shared_ptr<PyWaiter>(std::make_shared<PyWaiter>());
    return self.release();
}

// The calls, whose references we take over. Those for which there is no memory stay, and are taken later.
PyObject* taken(PyClientEnd& end, PyWaiter& waiter) {
    Ref list(PyList_New(0));
    while (list && waiter.first) {
        PyObject* call = static_cast<HeldCall*>(waiter.first)->object;
        if (PyList_Append(list.get(), call) != 0) {
            if (PyList_Size(list.get()) == 0) return nullptr;
            PyErr_Clear();
            break;
        }
        end.take(waiter);
        Py_DECREF(call);
    }
    return list.release();
}

PyObject* check_waiter(PyObject* object) {
    if (PyObject_TypeCheck(object, waiter_type)) return object;
    return PyErr_Format(PyExc_TypeError, "not a Waiter");
}

// `receive(end, host)` says how it went. Returns the calls that are finished. If any are, another way to go wrong than what is
// raised here is met again, and that the client is closed, too.
template <class Receive>
PyObject* receive_for(PyObject* self, PyWaiter& waiter, Receive receive) {
    std::shared_ptr<PyClientEnd> end = end_of(self);
    PyClientHost host(*end);
    Outcome how = Outcome::stopped;
    try {
        how = receive(*end, host);
    } catch (const Failure& failure) {
        return raise(failure, end->receiving().topic);
    }
    if (waiter.first && PyErr_Occurred() && raised("Closed")) PyErr_Clear();
    if (!waiter.first && how != Outcome::ready && how != Outcome::timed_out) raise_stopped(*end, how);
    return PyErr_Occurred() ? nullptr : taken(*end, waiter);
}

// wait_for_any(waiter): its calls that are finished.
PyObject* wait_for_any(PyObject* self, PyObject* object) {
    if (!check_waiter(object)) return nullptr;
    PyWaiter& waiter = waiter_of(object);
    return receive_for(self, waiter,
                       [&](PyClientEnd& end, PyClientHost& host) { return end.wait_for_any(waiter, host); });
}

// receive_now(waiter, looks): the same, without waiting. `looks`: also for servers that died.
PyObject* receive_now(PyObject* self, PyObject* args) {
    PyObject* object;
    int looks;
    if (!PyArg_ParseTuple(args, "O!p", waiter_type, &object, &looks)) return nullptr;
    PyWaiter& waiter = waiter_of(object);
    return receive_for(self, waiter, [&](PyClientEnd& end, PyClientHost& host) {
        return end.receive_now(waiter, looks != 0, host);
    });
}

// arm(waiter, event): rings the event when there may be something for receive_now(). Its tokens; none: there is something now.
PyObject* arm(PyObject* self, PyObject* args) {
    PyObject *object, *event;
    if (!PyArg_ParseTuple(args, "O!O!", waiter_type, &object, event_type, &event)) return nullptr;
    const std::shared_ptr<PyWaiter>& waiter = *reinterpret_cast<WaiterObject*>(object)->waiter;
    std::shared_ptr<PyClientEnd> end = end_of(self);
    PyClientHost host(*end);
    Ref tokens(PyList_New(0));
    int64_t message = -2;  // not watched: another thread receives
    try {
        Outcome how = end->with_free_turn(*waiter, host, [&] {
            message = watch_for_message(end->subscriber.get(), end->receiving(), event_of(event));
            return message < 0 ? Outcome::stopped : Outcome::ready;
        });
        if (how != Outcome::ready && how != Outcome::timed_out) raise_stopped(*end, how);
        if (!tokens || PyErr_Occurred()) return nullptr;
        Bell bell = message == 0 ? Bell{} : end->arm(*waiter);
        if (!bell.word) {
            unwatch(static_cast<uint64_t>(std::max<int64_t>(message, 0)));
            return tokens.release();
        }
        uint64_t told =
            watch({bell, event_of(event), {bell.word, {}, [keep = waiter] { return !keep; }}, end.get()});
        if (!append(tokens, Ref(PyLong_FromUnsignedLongLong(told)))) return nullptr;
    } catch (const Failure& failure) {
        return raise(failure);
    }
    if (message > 0 && !append(tokens, Ref(PyLong_FromLongLong(message)))) return nullptr;
    return tokens.release();
}

// forget(waiter): no one takes what it is told. Its calls.
PyObject* forget(PyObject* self, PyObject* object) {
    if (!check_waiter(object)) return nullptr;
    end_of(self)->forget(waiter_of(object));
    return taken(*end_of(self), waiter_of(object));
}

PyObject* close(PyObject* self, PyObject*) {
    end_of(self)->close();
    Py_RETURN_NONE;
}

PyObject* get_in_flight(PyObject* self, void*) { return PyLong_FromSize_t(end_of(self)->in_flight()); }
PyObject* get_slept(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(end_of(self)->slept()); }

PyObject* create_end(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject *publisher, *subscriber;
    if (!PyArg_ParseTuple(args, "O!O!", publisher_type, &publisher, subscriber_type, &subscriber))
        return nullptr;
    Ref self(allocate(type));
    if (self)
        reinterpret_cast<EndObject*>(self.get())->end =
            new std::shared_ptr<PyClientEnd>(std::make_shared<PyClientEnd>(publisher, subscriber));
    return self.release();
}

void destroy_end(PyObject* self) {
    delete reinterpret_cast<EndObject*>(self)->end;
    deallocate(self);
}
void destroy_waiter(PyObject* self) {
    delete reinterpret_cast<WaiterObject*>(self)->waiter;
    deallocate(self);
}
void destroy_call(PyObject* self) {
    if (HeldCall* call = reinterpret_cast<CallObject*>(self)->call) {
        if (call->listed) call->end->drop(*call);
        delete call;
    }
    deallocate(self);
}

PyObject* get_number(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(call_of(self).number); }
PyObject* get_timeout(PyObject* self, void*) { return call_of(self).timeout.new_ref(); }
PyObject* get_done(PyObject* self, void*) { return call_of(self).done.new_ref(); }
PyObject* get_answer(PyObject* self, void*) { return PyUnicode_FromString(name_of(call_of(self).answer)); }
PyObject* get_payload(PyObject* self, void*) {
    const Ref& payload = call_of(self).payload;
    return Py_NewRef(payload ? payload.get() : Py_None);
}
PyObject* get_deadline(PyObject* self, void*) {
    int64_t deadline_ns = call_of(self).terms.deadline_ns;
    if (deadline_ns == kForever) Py_RETURN_NONE;
    return PyLong_FromLongLong(deadline_ns);
}
PyObject* get_retry(PyObject* self, void*) { return PyBool_FromLong(call_of(self).terms.retry); }
PyObject* get_sent(PyObject* self, void*) {
    const HeldCall& call = call_of(self);
    return PyBool_FromLong(call.listed || call.finished());
}

PyMethodDef end_methods[] = {
    {"new_call", entry<new_call>, METH_VARARGS, "A call that is yet to be sent."},
    {"send", entry<send>, METH_VARARGS, "Send the request of a call."},
    {"commit", entry<commit>, METH_VARARGS, "Send the request of a call, which was written in place."},
    {"wait", entry<wait>, METH_O, "Wait until a call is finished, or late."},
    {"drop", entry<drop>, METH_O, "No one waits for the call any more."},
    {"request_state", entry<request_state_of>, METH_O, "What has become of a request."},
    {"withdraw", entry<withdraw_one>, METH_O, "Take a request back, if no server has taken it."},
    {"new_waiter", entry<new_waiter>, METH_NOARGS,
     "Is told of the outcomes of calls that no thread waits for."},
    {"wait_for_any", entry<wait_for_any>, METH_O, "Wait until calls of a waiter are finished."},
    {"receive_now", entry<receive_now>, METH_VARARGS, "The same without waiting."},
    {"arm", entry<arm>, METH_VARARGS, "Ring an Event when there may be something for receive_now()."},
    {"forget", entry<forget>, METH_O, "No one takes what the waiter is told."},
    {"close", entry<close>, METH_NOARGS, "All calls are finished: the client closes."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef end_attributes[] = {
    {"in_flight", entry<get_in_flight>, nullptr, "Requests that have no reply yet.", nullptr},
    {"slept", entry<get_slept>, nullptr, "How often a thread slept because another received.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot end_slots[] = {{Py_tp_new, reinterpret_cast<void*>(entry<create_end>)},
                           {Py_tp_dealloc, reinterpret_cast<void*>(destroy_end)},
                           {Py_tp_methods, end_methods},
                           {Py_tp_getset, end_attributes},
                           {0, nullptr}};
PyType_Spec end_spec = {"ringmain._ring.ClientEnd", sizeof(EndObject), 0, Py_TPFLAGS_DEFAULT, end_slots};

PyType_Slot waiter_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy_waiter)}, {0, nullptr}};
PyType_Spec waiter_spec = {"ringmain._ring.Waiter", sizeof(WaiterObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, waiter_slots};

PyGetSetDef call_attributes[] = {
    {"number", entry<get_number>, nullptr, "The sequence number of its request.", nullptr},
    {"timeout", entry<get_timeout>, nullptr, "Seconds, or None.", nullptr},
    {"deadline_ns", entry<get_deadline>, nullptr, "When it is late, as time.monotonic_ns(); or None.",
     nullptr},
    {"retry", entry<get_retry>, nullptr, "May it run a second time?", nullptr},
    {"done", entry<get_done>, nullptr, "What its waiter calls.", nullptr},
    {"answer", entry<get_answer>, nullptr, "What it has come to; empty while it is in flight.", nullptr},
    {"payload", entry<get_payload>, nullptr, "Of its reply.", nullptr},
    {"sent", entry<get_sent>, nullptr, "Was it sent?", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot call_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy_call)}, {Py_tp_getset, call_attributes}, {0, nullptr}};
PyType_Spec call_spec = {"ringmain._ring.Call", sizeof(CallObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, call_slots};

}  // namespace

const char* name_of(Answer answer) {
    constexpr const char* kNames[] = {"", "result", "failed", "gone", "lost", "late", "closed"};
    return kNames[static_cast<size_t>(answer)];
}

std::shared_ptr<PyClientEnd> client_end_of(PyObject* object) {
    return PyObject_TypeCheck(object, end_type) ? end_of(object) : nullptr;
}

bool add_calls(PyObject* module) {
    return (end_type = add_type(module, end_spec)) && (waiter_type = add_type(module, waiter_spec)) &&
           (call_type = add_type(module, call_spec));
}

}  // namespace ringmain::py
