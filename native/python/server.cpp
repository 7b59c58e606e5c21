// ringmain._ring.NativeServer and NativeRequest: the hot half of ringmain.Server and ringmain.Request. A request is taken, read and answered
// without Python code in between; all that is rare is src/ringmain/_service/.
#include "base/clock.hpp"
#include "python/publisher.hpp"
#include "python/subscriber.hpp"
#include "requests/terms.hpp"

namespace ringmain::py {

namespace {

constexpr size_t kSamples = 512;  // requests of a report whose times are measured
enum Outcome { kReplied, kFailed, kGone, kExpired, kOutcomes };

struct RequestObject;

struct ServerState {
    Ref subscriber;     // the one lane; none: there are several, or they are not native
    Ref request_class;  // what a request becomes: a subclass of NativeRequest
    Ref publishers;     // a dict: client -> publisher of its replies
    Ref last_client, last_publisher;
    bool decodes = false;  // is a request's data decoded when it is taken?
    int64_t round_ns = 0;  // how often Python code looks for what is due besides requests; 0: first of all
    int64_t upkeep_at_ns = 0, now_ns = 0;  // when it is due; and the time of the last request: monotonic
    Clock<CLOCK_MONOTONIC> clock;
    Clock<CLOCK_REALTIME> wall;
    std::vector<RequestObject*> open;  // not answered; each removes itself
    uint64_t counts[kOutcomes] = {};
    std::vector<int64_t> queue_ns, handler_ns;

    ServerState() {  // room for all, since a request that is dropped cannot say that there is none
        queue_ns.reserve(kSamples);
        handler_ns.reserve(kSamples);
    }
};

struct ServerObject {
    PyObject_HEAD ServerState* state;
};

struct RequestState {
    Ref server;
    Ref lease;       // of a backend in Python; otherwise:
    Ref subscriber;  // of which this message is lent
    std::shared_ptr<TopicFile> topic_file;
    View view{};
    Ref sender, data;
    uint32_t redelivered = 0;
    int64_t taken_ns = 0, begun_ns = 0;  // the same moment: for people, and monotonic
    Terms terms;
    bool open = false;
};

struct RequestObject {
    PyObject_HEAD RequestState* state;
};

PyTypeObject *server_type, *request_type;

ServerState& server_of(PyObject* self) { return *reinterpret_cast<ServerObject*>(self)->state; }
RequestState& request_of(PyObject* self) { return *reinterpret_cast<RequestObject*>(self)->state; }
SubscriberState& reading(const RequestState& t) {
    return *reinterpret_cast<SubscriberObject*>(t.subscriber.get())->state;
}
bool still_there(const RequestState& t) {
    return t.subscriber && reading(t).attached() && reading(t).participant->shared() == t.topic_file;
}

// The message that was found, as a request.
PyObject* new_request(PyObject* self, ServerState& k, SubscriberState& s, const View& view, int64_t now_ns) {
    auto* type = reinterpret_cast<PyTypeObject*>(k.request_class.get());
    Ref request(create<RequestObject>(type, nullptr, nullptr));
    if (!request) return nullptr;
    RequestState* t = &request_of(request.get());
    t->sender = Ref(sender_of(s, view));
    if (!t->sender) return nullptr;
    t->server = Ref::to(self);
    t->subscriber = Ref::to(k.subscriber.get());
    t->topic_file = s.participant->shared();
    t->view = view;
    t->taken_ns = k.wall.now_ns();
    t->begun_ns = now_ns;
    t->terms = terms_of(view.said().extension);
    make_room(k.open);  // first: from here on nothing fails
    s.work->lent.make_room();
    CRASH_POINT("serve: request taken, not given out");
    s.reader->take(view);
    t->redelivered = s.work->lend();
    t->open = true;
    k.open.push_back(reinterpret_cast<RequestObject*>(request.get()));
    s.reader->release(s.keep());  // for what others see of us: how many messages
    return request.release();
}

bool is_due(const RequestState& t) { return t.redelivered == 0 && t.begun_ns <= t.terms.deadline_ns; }

PyObject* get_data(PyObject* self, void*);

// Is it to be computed? 0: no, and it is answered; -1: raised.
int is_wanted(PyObject* self, ServerState& k, PyObject* request) {
    if (is_due(request_of(request))) [[likely]] {
        if (!k.decodes || Ref(get_data(request, nullptr))) return 1;
        if (!raised("DecodeError")) return -1;
        PyErr_Clear();
    }
    // Expired, not readable, or a server died with it: Python code decides.
    Ref due(PyObject_CallMethod(self, "_is_to_be_computed", "O", request));
    return due ? PyObject_IsTrue(due.get()) : -1;
}

// The next request that is to be computed. 1: it is in `request`; 0: none came in time; -1: raised.
int next_request(PyObject* self, ServerState& k, SubscriberState& s, Deadline& deadline, Ref& request) {
    PyObject* subscriber = k.subscriber.get();
    for (;;) {
        View view;
        int found = wait_for_message(subscriber, s, deadline, view);
        if (found != 1) return found;
        k.now_ns = k.clock.now_ns();
        request = Ref(new_request(self, k, s, view, k.now_ns));
        if (!request) return -1;
        int wanted = is_wanted(self, k, request.get());
        if (wanted != 0) return wanted;
        request = Ref();
    }
}

// `Closed` ends a loop over requests if it is the server that is closed. That of something else passes, which a signal handler may
// have raised.
void clear_if_server_closed(PyObject* self) {
    if (!raised("Closed")) return;
    bool closed = false;
    {
        SavedError error;
        Ref answer(PyObject_GetAttrString(self, "closed"));
        closed = answer && PyObject_IsTrue(answer.get()) == 1;
        if (!answer) clear_or_raise_later();
    }
    if (closed) PyErr_Clear();
}

// The next request; waits without a limit. Ends when the server is closed.
PyObject* next(PyObject* self) {
    ServerState& k = server_of(self);
    for (;;) {
        if (!k.subscriber || k.round_ns == 0 || k.now_ns >= k.upkeep_at_ns) {
            k.upkeep_at_ns = k.clock.now_ns() + k.round_ns;
            Ref done(PyObject_CallMethod(self, "_begin_round", nullptr));
            if (!done) {
                clear_if_server_closed(self);
                return nullptr;
            }
            if (!k.subscriber || k.round_ns == 0) return PyObject_CallMethod(self, "_next", nullptr);
        }
        SubscriberState* s = reinterpret_cast<SubscriberObject*>(k.subscriber.get())->state;
        Receiving turn(k.subscriber.get(), *s);
        Deadline deadline(k.round_ns);
        Ref request;
        int found = turn.entered() && usable_subscriber(k.subscriber.get())
                        ? next_request(self, k, *s, deadline, request)
                        : -1;
        if (found == 1) return request.release();
        if (found < 0) {
            clear_if_server_closed(self);
            return nullptr;
        }
        k.now_ns = k.upkeep_at_ns;
    }
}

// take_requests(max_requests, timeout): a list of requests; empty if the time is up.
PyObject* take_requests(PyObject* self, PyObject* args) {
    Py_ssize_t most;
    PyObject* timeout;
    int64_t timeout_ns;
    if (!PyArg_ParseTuple(args, "nO", &most, &timeout) || !parse_timeout(timeout, timeout_ns)) return nullptr;
    ServerState& k = server_of(self);
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(k.subscriber.get())->state;
    Deadline deadline(timeout_ns);
    Receiving turn(k.subscriber.get(), *s, &deadline);
    Ref list(PyList_New(0));
    if (turn.late() || !list) return list.release();
    if (!turn.entered() || !usable_subscriber(k.subscriber.get())) return nullptr;
    for (; PyList_Size(list.get()) < most; deadline = Deadline(0)) {
        Ref request;
        int found = next_request(self, k, *s, deadline, request);
        if (found < 0) return nullptr;
        if (found == 0) break;
        if (!append(list, std::move(request))) return nullptr;
    }
    return list.release();
}

// set_up(subscriber|None, request_class, publishers, round_ns, decodes): are requests taken here?
PyObject* set_up(PyObject* self, PyObject* args) {
    PyObject *subscriber, *request_class, *publishers;
    long long round_ns;
    int decodes;
    if (!PyArg_ParseTuple(args, "OOOLp", &subscriber, &request_class, &publishers, &round_ns, &decodes))
        return nullptr;
    ServerState& k = server_of(self);
    bool native = PyObject_TypeCheck(subscriber, subscriber_type);
    k.subscriber = Ref::to(native ? subscriber : nullptr);
    k.request_class = Ref::to(request_class);
    k.publishers = Ref::to(publishers);
    k.last_client = Ref();
    k.last_publisher = Ref();
    k.round_ns = round_ns;
    k.decodes = decodes;
    k.upkeep_at_ns = std::min(k.upkeep_at_ns, k.now_ns + k.round_ns);
    return PyBool_FromLong(native);
}

PyObject* unanswered(PyObject* self, PyObject*) {
    Ref list(PyList_New(0));
    for (RequestObject* request : server_of(self).open)
        if (!append(list, Ref::to(reinterpret_cast<PyObject*>(request)))) return nullptr;
    return list.release();
}

PyObject* numbers(std::vector<int64_t>& from) {
    Ref list(PyList_New(0));
    for (int64_t number : from)
        if (!append(list, Ref(PyLong_FromLongLong(number)))) return nullptr;
    from.clear();
    return list.release();
}

// statistics(): a ServerStatistics since the last call.
PyObject* statistics(PyObject* self, PyObject*) {
    ServerState& k = server_of(self);
    Ref queue(numbers(k.queue_ns)), handler(numbers(k.handler_ns));
    if (!queue || !handler) return nullptr;
    return Py_BuildValue("{sKsKsKsKsnsOsO}", "replied", k.counts[kReplied], "failed", k.counts[kFailed],
                         "gone", k.counts[kGone], "expired", k.counts[kExpired], "in_flight",
                         static_cast<Py_ssize_t>(k.open.size()), "queue_ns", queue.get(), "handler_ns",
                         handler.get());
}

// ---------------------------------------------------------------------------------------------- requests

// The request is answered, and the message done; or another server gets it.
void end(RequestObject* self, int outcome, bool gives_back) {
    RequestState& t = *self->state;
    CRASH_POINT("serve: answered, request not done");
    t.open = false;
    ServerState& k = server_of(t.server.get());
    auto at = std::find(k.open.begin(), k.open.end(), self);
    if (at != k.open.end()) k.open.erase(at);
    ++k.counts[outcome];
    if (k.queue_ns.size() < kSamples) {
        k.queue_ns.push_back(t.taken_ns - t.view.time_ns);
        k.handler_ns.push_back(k.clock.now_ns() - t.begun_ns);
    }
    if (still_there(t)) reading(t).work->end_loan(t.view.position, gives_back, reading(t).leases);
}

bool check_open(PyObject* self) {
    const RequestState& t = request_of(self);
    if (t.open) return true;
    PyErr_Format(PyExc_ValueError, "request %llu is answered already", t.view.seq);
    return false;
}

PyObject* publisher_to(ServerState& k, const Ref& client) {
    if (k.last_client.get() == client.get()) return k.last_publisher.get();
    PyObject* publisher = PyDict_GetItemWithError(k.publishers.get(), client.get());
    if (!publisher || !PyObject_TypeCheck(publisher, publisher_type)) return nullptr;
    k.last_client = Ref::to(client.get());
    k.last_publisher = Ref::to(publisher);
    return publisher;
}

PyObject* reply(PyObject* self, PyObject* value) {
    if (!check_open(self)) return nullptr;
    RequestState& t = request_of(self);
    ServerState& k = server_of(t.server.get());
    if (PyObject* publisher = t.subscriber ? publisher_to(k, t.sender) : nullptr) {
        Ref keep(Ref::to(publisher));
        Ref sent(send_object(publisher, value, ReplySays(t.view.seq), 0));
        if (sent) {
            end(reinterpret_cast<RequestObject*>(self), kReplied, false);
            Py_RETURN_NONE;
        }
        if (!raised("RingmainError")) return nullptr;  // of the encoder, or Ctrl-C
        PyErr_Clear();  // full, closed, too large: Python code repeats it, and knows what to do
    } else if (PyErr_Occurred()) {
        return nullptr;
    }
    return PyObject_CallMethod(self, "_reply_slow_path", "O", value);
}

// finish(outcome, gives_back)
PyObject* finish(PyObject* self, PyObject* args) {
    int outcome, gives_back;
    if (!PyArg_ParseTuple(args, "ip", &outcome, &gives_back) || !check_open(self)) return nullptr;
    if (outcome < 0 || outcome >= kOutcomes) outcome = kFailed;
    end(reinterpret_cast<RequestObject*>(self), outcome, gives_back);
    Py_RETURN_NONE;
}

// abandon(): in a forked child, the request is the parent's.
PyObject* abandon(PyObject* self, PyObject*) {
    RequestState& t = request_of(self);
    t.open = false;
    if (t.server) {
        auto& open = server_of(t.server.get()).open;
        auto at = std::find(open.begin(), open.end(), reinterpret_cast<RequestObject*>(self));
        if (at != open.end()) open.erase(at);
    }
    Py_RETURN_NONE;
}

// payload(): a copy of the request's bytes.
PyObject* payload(PyObject* self, PyObject*) {
    if (!check_open(self)) return nullptr;
    const RequestState& t = request_of(self);
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(t.view.payload()), t.view.size);
}

PyObject* get_data(PyObject* self, void*) {
    RequestState& t = request_of(self);
    if (t.data) return t.data.new_ref();
    if (!t.subscriber) {
        t.data = Ref(PyObject_CallMethod(self, "_read", nullptr));
        return t.data ? t.data.new_ref() : nullptr;
    }
    Ref bytes(payload(self, nullptr));
    if (!bytes) return nullptr;
    if (const Ref& decoder = reading(t).decoder) {
        PyObject* object = PyObject_CallFunctionObjArgs(decoder.get(), bytes.get(), nullptr);
        if (!object) return raise_decode_error(reading(t), t.view.seq);
        t.data = Ref(object);
    } else {
        t.data = std::move(bytes);
    }
    return t.data.new_ref();
}

// view(): a Lease of the message, to read it in place.
PyObject* view_of(PyObject* self, PyObject*) {
    if (!check_open(self)) return nullptr;
    const RequestState& t = request_of(self);
    if (t.lease) return t.lease.new_ref();
    return lease_of_lent(t.subscriber.get(), t.view);
}

PyObject* get_number(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(request_of(self).view.seq); }
PyObject* get_client(PyObject* self, void*) { return request_of(self).sender.new_ref(); }
PyObject* get_sent(PyObject* self, void*) { return PyLong_FromLongLong(request_of(self).view.time_ns); }
PyObject* get_taken(PyObject* self, void*) { return PyLong_FromLongLong(request_of(self).taken_ns); }
PyObject* get_redelivered(PyObject* self, void*) {
    return PyLong_FromUnsignedLong(request_of(self).redelivered);
}
PyObject* get_answered(PyObject* self, void*) { return PyBool_FromLong(!request_of(self).open); }
PyObject* get_retry(PyObject* self, void*) { return PyBool_FromLong(request_of(self).terms.retry); }
PyObject* get_server(PyObject* self, void*) { return request_of(self).server.new_ref(); }
PyObject* get_lease(PyObject* self, void*) {
    const Ref& lease = request_of(self).lease;
    return Py_NewRef(lease ? lease.get() : Py_None);
}
PyObject* get_deadline(PyObject* self, void*) {
    int64_t deadline_ns = request_of(self).terms.deadline_ns;
    if (deadline_ns == kForever) Py_RETURN_NONE;
    return PyLong_FromLongLong(deadline_ns);
}

// bind(server, lease, seq, sender, extension, sent_ns, redelivered, taken_ns, begun_ns): of a backend in Python, or of several lanes.
PyObject* bind(PyObject* self, PyObject* args) {
    RequestState& t = request_of(self);
    PyObject *server, *lease, *sender;
    unsigned long long seq;
    const char* extension;
    Py_ssize_t extension_size;
    long long sent_ns, taken_ns, begun_ns;
    unsigned redelivered;
    if (!PyArg_ParseTuple(args, "O!OKUy#LILL", server_type, &server, &lease, &seq, &sender, &extension,
                          &extension_size, &sent_ns, &redelivered, &taken_ns, &begun_ns))
        return nullptr;
    t.server = Ref::to(server);
    t.lease = Ref::to(lease);
    t.sender = Ref::to(sender);
    t.view.seq = seq;
    t.view.time_ns = sent_ns;
    t.redelivered = redelivered;
    t.taken_ns = taken_ns;
    t.begun_ns = begun_ns;
    t.terms = terms_of({extension, static_cast<size_t>(extension_size)});
    t.open = true;
    server_of(server).open.push_back(reinterpret_cast<RequestObject*>(self));
    Py_RETURN_NONE;
}

void destroy_request(PyObject* self) {
    RequestState* t = reinterpret_cast<RequestObject*>(self)->state;
    if (t && t->open) {  // dropped: its client shall not wait for it
        SavedError error;
        Ref told(PyObject_CallMethod(t->server.get(), "_dropped", "OK", t->sender.get(), t->view.seq));
        if (!told) clear_or_raise_later();
        end(reinterpret_cast<RequestObject*>(self), kFailed, false);
        Ref done(t->lease ? PyObject_CallMethod(t->lease.get(), "release", nullptr) : Py_NewRef(Py_None));
        if (!done) clear_or_raise_later();
    }
    delete t;
    deallocate(self);
}

PyMethodDef server_methods[] = {
    {"_take_requests", entry<take_requests>, METH_VARARGS,
     "Requests that are there, up to a number of them."},
    {"_set_up", entry<set_up>, METH_VARARGS,
     "Where requests come from, what they become, and where replies go."},
    {"_unanswered", entry<unanswered>, METH_NOARGS, "The requests that were taken and not answered."},
    {"_statistics", entry<statistics>, METH_NOARGS, "A ServerStatistics."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot server_slots[] = {{Py_tp_new, reinterpret_cast<void*>(entry<create<ServerObject>>)},
                              {Py_tp_dealloc, reinterpret_cast<void*>(destroy<ServerObject>)},
                              {Py_tp_methods, server_methods},
                              {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
                              {Py_tp_iternext, reinterpret_cast<void*>(entry<next>)},
                              {0, nullptr}};
PyType_Spec server_spec = {"ringmain._ring.NativeServer", sizeof(ServerObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, server_slots};

PyMethodDef request_methods[] = {
    {"reply", entry<reply>, METH_O, "reply(value)\n--\n\nSend the result to the client."},
    {"_finish", entry<finish>, METH_VARARGS, "The request is answered."},
    {"_abandon", entry<abandon>, METH_NOARGS, "The request is another process's."},
    {"_payload", entry<payload>, METH_NOARGS, "A copy of the bytes."},
    {"_view", entry<view_of>, METH_NOARGS, "A lease of the message."},
    {"_bind", entry<bind>, METH_VARARGS, "Set all that is known of it."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef request_attributes[] = {
    {"data", entry<get_data>, nullptr, "What the client sent, as a copy.", nullptr},
    {"number", entry<get_number>, nullptr, "Its sequence number in the topic of requests.", nullptr},
    {"client", entry<get_client>, nullptr, "Which client sent it.", nullptr},
    {"sent_ns", entry<get_sent>, nullptr, "When it was sent: wall clock.", nullptr},
    {"taken_ns", entry<get_taken>, nullptr, "When it was taken: wall clock.", nullptr},
    {"redelivered", entry<get_redelivered>, nullptr, "How many servers had it before.", nullptr},
    {"answered", entry<get_answered>, nullptr, "Has it a reply?", nullptr},
    {"retry", entry<get_retry>, nullptr, "May it run a second time?", nullptr},
    {"deadline_ns", entry<get_deadline>, nullptr,
     "Until when its client waits, as time.monotonic_ns(); None: without a limit.", nullptr},
    {"_server", entry<get_server>, nullptr, nullptr, nullptr},
    {"_lease", entry<get_lease>, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot request_slots[] = {{Py_tp_new, reinterpret_cast<void*>(entry<create<RequestObject>>)},
                               {Py_tp_dealloc, reinterpret_cast<void*>(destroy_request)},
                               {Py_tp_methods, request_methods},
                               {Py_tp_getset, request_attributes},
                               {0, nullptr}};
PyType_Spec request_spec = {"ringmain._ring.NativeRequest", sizeof(RequestObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, request_slots};

}  // namespace

bool add_server(PyObject* module) {
    return (server_type = add_type(module, server_spec)) && (request_type = add_type(module, request_spec));
}

}  // namespace ringmain::py
