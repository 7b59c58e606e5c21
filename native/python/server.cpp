// ringmain._ring.Taker and Task: the hot half of ringmain.Server and ringmain.Request. A request is taken, read and answered
// without Python code in between; all that is rare is src/ringmain/_service/.
#include <charconv>

#include "clock.hpp"
#include "publisher.hpp"
#include "subscriber.hpp"

namespace ringmain::py {

namespace {

constexpr int64_t kUpkeep_ns = 100'000'000;  // how often a server looks for what else is due
constexpr size_t kSamples = 512;             // requests of a report whose times are measured
enum Outcome { kReplied, kFailed, kGone, kExpired, kOutcomes };

struct TaskObject;

struct TakerState {
    Ref subscriber;     // the one lane; none: there are several, or they are not native
    Ref request_class;  // what a request becomes: a subclass of Task
    Ref publishers;     // a dict: client -> publisher of its replies
    Ref last_client, last_publisher;
    Ref last_kind;  // whose terms are these:
    int64_t last_timeout_ns = -1;
    bool last_retry = false;
    bool ready = false;  // is nothing due besides requests? Otherwise Python code looks first
    int64_t upkeep_at_ns = 0, now_ns = 0;  // when it is due; and the time of the last request
    Clock clock;
    std::vector<TaskObject*> open;  // not answered; each removes itself
    uint64_t counts[kOutcomes] = {};
    std::vector<int64_t> queue_ns, handler_ns;
};

struct TakerObject {
    PyObject_HEAD TakerState* state;
};

struct TaskState {
    Ref server;
    Ref lease;       // of a backend in Python; otherwise:
    Ref subscriber;  // of which this message is lent
    std::shared_ptr<TopicFile> topic_file;
    View view{};
    Ref sender, kind, data;
    uint32_t redelivered = 0;
    int64_t taken_ns = 0, timeout_ns = -1;  // -1: no limit
    bool retry = false, open = false;
};

struct TaskObject {
    PyObject_HEAD TaskState* state;
};

PyTypeObject *taker_type, *task_type;

TakerState& taker_of(PyObject* self) { return *reinterpret_cast<TakerObject*>(self)->state; }
TaskState& task_of(PyObject* self) { return *reinterpret_cast<TaskObject*>(self)->state; }
SubscriberState& reading(const TaskState& t) {
    return *reinterpret_cast<SubscriberObject*>(t.subscriber.get())->state;
}
bool still_there(const TaskState& t) {
    return t.subscriber && reading(t).attached() && reading(t).participant->shared() == t.topic_file;
}

// The terms of a request, from its kind: `terms_of` of Python, which is asked once for each kind.
bool read_terms(PyObject* self, TakerState& k, TaskState& t) {
    if (t.kind.get() != k.last_kind.get()) {
        Ref terms(PyObject_CallMethod(self, "_terms", "O", t.kind.get()));
        int retry = 0;
        long long timeout_ns;
        if (!terms || !PyArg_ParseTuple(terms.get(), "Lp", &timeout_ns, &retry)) return false;
        k.last_kind = Ref::to(t.kind.get());
        k.last_timeout_ns = timeout_ns;
        k.last_retry = retry;
    }
    t.timeout_ns = k.last_timeout_ns;
    t.retry = k.last_retry;
    return true;
}

// The message that was found, as a request.
PyObject* new_task(PyObject* self, TakerState& k, SubscriberState& s, const View& view, int64_t now_ns) {
    Ref task(allocate(reinterpret_cast<PyTypeObject*>(k.request_class.get())));
    if (!task) return nullptr;
    auto* t = new TaskState;
    reinterpret_cast<TaskObject*>(task.get())->state = t;
    t->sender = Ref(sender_of(s, view));
    t->kind = Ref(kind_of(s, view));
    if (!t->sender || !t->kind || !read_terms(self, k, *t)) return nullptr;
    t->server = Ref::to(self);
    t->subscriber = Ref::to(k.subscriber.get());
    t->topic_file = s.participant->shared();
    t->view = view;
    t->taken_ns = now_ns;
    CRASH_POINT("serve: request taken, not given out");
    s.reader->take(view);
    t->redelivered = lend(s, view);
    t->open = true;
    k.open.push_back(reinterpret_cast<TaskObject*>(task.get()));
    s.reader->release(s.keep());  // for what others see of us: how many messages
    return task.release();
}

bool is_due(const TaskState& t) {
    return t.redelivered == 0 && (t.timeout_ns < 0 || t.taken_ns - t.view.time_ns <= t.timeout_ns);
}

// The next request that is to be computed. 1: it is in `task`; 0: none came in time; -1: raised.
int next_task(PyObject* self, TakerState& k, SubscriberState& s, Deadline& deadline, Ref& task) {
    PyObject* subscriber = k.subscriber.get();
    for (;;) {
        View view;
        int found = wait_for_message(subscriber, s, deadline, view);
        if (found != 1) return found;
        k.now_ns = k.clock.now_ns();
        task = Ref(new_task(self, k, s, view, k.now_ns));
        if (!task) return -1;
        if (is_due(task_of(task.get()))) [[likely]]
            return 1;
        // Expired, or a server died with it: Python code decides.
        Ref due(PyObject_CallMethod(self, "_is_to_be_computed", "O", task.get()));
        int wanted = due ? PyObject_IsTrue(due.get()) : -1;
        if (wanted != 0) return wanted;
        task = Ref();
    }
}

// The next request; waits without a limit. Ends when the server is closed.
PyObject* next(PyObject* self) {
    TakerState& k = taker_of(self);
    for (;;) {
        if (!k.subscriber || !k.ready || k.now_ns >= k.upkeep_at_ns) {
            k.upkeep_at_ns = k.clock.now_ns() + kUpkeep_ns;
            Ref done(PyObject_CallMethod(self, "_begin_round", nullptr));
            if (!done) {
                clear_if_closed();
                return nullptr;
            }
            if (!k.subscriber || !k.ready) return PyObject_CallMethod(self, "_next", nullptr);
        }
        SubscriberState* s = reinterpret_cast<SubscriberObject*>(k.subscriber.get())->state;
        Receiving turn(k.subscriber.get(), *s);
        Deadline deadline(kUpkeep_ns);
        Ref task;
        int found = turn.entered() && usable_subscriber(k.subscriber.get())
                        ? next_task(self, k, *s, deadline, task)
                        : -1;
        if (found == 1) return task.release();
        if (found < 0) {
            clear_if_closed();
            return nullptr;
        }
        k.now_ns = k.upkeep_at_ns;
    }
}

// take_tasks(max_requests, timeout): a list of requests; empty if the time is up.
PyObject* take_tasks(PyObject* self, PyObject* args) {
    Py_ssize_t most;
    PyObject* timeout;
    int64_t timeout_ns;
    if (!PyArg_ParseTuple(args, "nO", &most, &timeout) || !parse_timeout(timeout, timeout_ns)) return nullptr;
    TakerState& k = taker_of(self);
    SubscriberState* s = reinterpret_cast<SubscriberObject*>(k.subscriber.get())->state;
    Receiving turn(k.subscriber.get(), *s);
    Ref list(PyList_New(0));
    if (!list || !turn.entered() || !usable_subscriber(k.subscriber.get())) return nullptr;
    for (Deadline deadline(timeout_ns); PyList_Size(list.get()) < most; deadline = Deadline(0)) {
        Ref task;
        int found = next_task(self, k, *s, deadline, task);
        if (found < 0) return nullptr;
        if (found == 0) break;
        if (!append(list, std::move(task))) return nullptr;
    }
    return list.release();
}

// set_up(subscriber|None, request_class, publishers, ready)
PyObject* set_up(PyObject* self, PyObject* args) {
    PyObject *subscriber, *request_class, *publishers;
    int ready;
    if (!PyArg_ParseTuple(args, "OOOp", &subscriber, &request_class, &publishers, &ready)) return nullptr;
    TakerState& k = taker_of(self);
    bool native = PyObject_TypeCheck(subscriber, subscriber_type);
    k.subscriber = Ref::to(native ? subscriber : nullptr);
    k.request_class = Ref::to(request_class);
    k.publishers = Ref::to(publishers);
    k.last_client = Ref();
    k.last_publisher = Ref();
    k.ready = ready;
    Py_RETURN_NONE;
}

PyObject* unanswered(PyObject* self, PyObject*) {
    Ref list(PyList_New(0));
    for (TaskObject* task : taker_of(self).open)
        if (!append(list, Ref::to(reinterpret_cast<PyObject*>(task)))) return nullptr;
    return list.release();
}

PyObject* numbers(std::vector<int64_t>& from) {
    Ref list(PyList_New(0));
    for (int64_t number : from)
        if (!append(list, Ref(PyLong_FromLongLong(number)))) return nullptr;
    from.clear();
    return list.release();
}

// statistics(): a TakerStatistics since the last call.
PyObject* statistics(PyObject* self, PyObject*) {
    TakerState& k = taker_of(self);
    Ref queue(numbers(k.queue_ns)), handler(numbers(k.handler_ns));
    if (!queue || !handler) return nullptr;
    return Py_BuildValue("{sKsKsKsKsnsOsO}", "replied", k.counts[kReplied], "failed", k.counts[kFailed],
                         "gone", k.counts[kGone], "expired", k.counts[kExpired], "in_flight",
                         static_cast<Py_ssize_t>(k.open.size()), "queue_ns", queue.get(), "handler_ns",
                         handler.get());
}

PyObject* create_taker(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* self = allocate(type);
    if (self) reinterpret_cast<TakerObject*>(self)->state = new TakerState;
    return self;
}

void destroy_taker(PyObject* self) {
    delete reinterpret_cast<TakerObject*>(self)->state;
    deallocate(self);
}

// ---------------------------------------------------------------------------------------------- requests

// The request is answered, and the message done; or another server gets it.
void end(TaskObject* self, int outcome, bool gives_back) {
    TaskState& t = *self->state;
    CRASH_POINT("serve: answered, request not done");
    t.open = false;
    TakerState& k = taker_of(t.server.get());
    auto at = std::find(k.open.begin(), k.open.end(), self);
    if (at != k.open.end()) k.open.erase(at);
    ++k.counts[outcome];
    if (k.queue_ns.size() < kSamples) {
        k.queue_ns.push_back(t.taken_ns - t.view.time_ns);
        k.handler_ns.push_back(k.clock.now_ns() - t.taken_ns);
    }
    if (still_there(t)) end_loan(reading(t), t.view.position, gives_back);
}

bool check_open(PyObject* self) {
    const TaskState& t = task_of(self);
    if (t.open) return true;
    PyErr_Format(PyExc_ValueError, "request %llu is answered already", t.view.seq);
    return false;
}

PyObject* publisher_to(TakerState& k, const Ref& client) {
    if (k.last_client.get() == client.get()) return k.last_publisher.get();
    PyObject* publisher = PyDict_GetItemWithError(k.publishers.get(), client.get());
    if (!publisher || !PyObject_TypeCheck(publisher, publisher_type)) return nullptr;
    k.last_client = Ref::to(client.get());
    k.last_publisher = Ref::to(publisher);
    return publisher;
}

PyObject* reply(PyObject* self, PyObject* value) {
    if (!check_open(self)) return nullptr;
    TaskState& t = task_of(self);
    TakerState& k = taker_of(t.server.get());
    if (PyObject* publisher = t.subscriber ? publisher_to(k, t.sender) : nullptr) {
        char number[24];
        char* last = std::to_chars(number, number + sizeof number, t.view.seq).ptr;
        Ref keep(Ref::to(publisher));
        Ref sent(send_object(publisher, value, {number, static_cast<size_t>(last - number)}, 0));
        if (sent) {
            end(reinterpret_cast<TaskObject*>(self), kReplied, false);
            Py_RETURN_NONE;
        }
        if (PyErr_ExceptionMatches(PyExc_TypeError)) return nullptr;
        PyErr_Clear();  // full, closed, too large: Python code repeats it, and knows what to do
    } else if (PyErr_Occurred()) {
        return nullptr;
    }
    return PyObject_CallMethod(self, "_reply_slowly", "O", value);
}

// finish(outcome, gives_back)
PyObject* finish(PyObject* self, PyObject* args) {
    int outcome, gives_back;
    if (!PyArg_ParseTuple(args, "ip", &outcome, &gives_back) || !check_open(self)) return nullptr;
    if (outcome < 0 || outcome >= kOutcomes) outcome = kFailed;
    end(reinterpret_cast<TaskObject*>(self), outcome, gives_back);
    Py_RETURN_NONE;
}

// abandon(): in a forked child, the request is the parent's.
PyObject* abandon(PyObject* self, PyObject*) {
    TaskState& t = task_of(self);
    t.open = false;
    if (t.server) {
        auto& open = taker_of(t.server.get()).open;
        auto at = std::find(open.begin(), open.end(), reinterpret_cast<TaskObject*>(self));
        if (at != open.end()) open.erase(at);
    }
    Py_RETURN_NONE;
}

// payload(): a copy of the request's bytes.
PyObject* payload(PyObject* self, PyObject*) {
    if (!check_open(self)) return nullptr;
    const TaskState& t = task_of(self);
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(t.view.payload()), t.view.size);
}

PyObject* get_data(PyObject* self, void*) {
    TaskState& t = task_of(self);
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
    const TaskState& t = task_of(self);
    if (t.lease) return t.lease.new_ref();
    return lease_of_lent(t.subscriber.get(), t.view);
}

PyObject* get_number(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(task_of(self).view.seq); }
PyObject* get_client(PyObject* self, void*) { return task_of(self).sender.new_ref(); }
PyObject* get_sent(PyObject* self, void*) { return PyLong_FromLongLong(task_of(self).view.time_ns); }
PyObject* get_taken(PyObject* self, void*) { return PyLong_FromLongLong(task_of(self).taken_ns); }
PyObject* get_redelivered(PyObject* self, void*) {
    return PyLong_FromUnsignedLong(task_of(self).redelivered);
}
PyObject* get_answered(PyObject* self, void*) { return PyBool_FromLong(!task_of(self).open); }
PyObject* get_retry(PyObject* self, void*) { return PyBool_FromLong(task_of(self).retry); }
PyObject* get_server(PyObject* self, void*) { return task_of(self).server.new_ref(); }
PyObject* get_lease(PyObject* self, void*) {
    const Ref& lease = task_of(self).lease;
    return Py_NewRef(lease ? lease.get() : Py_None);
}
PyObject* get_timeout(PyObject* self, void*) {
    int64_t timeout_ns = task_of(self).timeout_ns;
    if (timeout_ns < 0) Py_RETURN_NONE;
    return PyLong_FromLongLong(timeout_ns);
}

PyObject* create_task(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* self = allocate(type);
    if (self) reinterpret_cast<TaskObject*>(self)->state = new TaskState;
    return self;
}

// bind(server, lease, seq, sender, sent_ns, redelivered, taken_ns, timeout_ns, retry): of a backend in Python, or of several
// lanes.
PyObject* bind(PyObject* self, PyObject* args) {
    TaskState& t = task_of(self);
    PyObject *server, *lease, *sender;
    unsigned long long seq;
    long long sent_ns, taken_ns, timeout_ns;
    unsigned redelivered;
    int retry;
    if (!PyArg_ParseTuple(args, "O!OKULILLp", taker_type, &server, &lease, &seq, &sender, &sent_ns,
                          &redelivered, &taken_ns, &timeout_ns, &retry))
        return nullptr;
    t.server = Ref::to(server);
    t.lease = Ref::to(lease);
    t.sender = Ref::to(sender);
    t.view.seq = seq;
    t.view.time_ns = sent_ns;
    t.redelivered = redelivered;
    t.taken_ns = taken_ns;
    t.timeout_ns = timeout_ns;
    t.retry = retry;
    t.open = true;
    taker_of(server).open.push_back(reinterpret_cast<TaskObject*>(self));
    Py_RETURN_NONE;
}

void destroy_task(PyObject* self) {
    TaskState* t = reinterpret_cast<TaskObject*>(self)->state;
    if (t && t->open) {  // dropped: its client shall not wait for it
        SavedError error;
        Ref told(PyObject_CallMethod(t->server.get(), "_dropped", "OK", t->sender.get(), t->view.seq));
        if (!told) PyErr_Clear();
        end(reinterpret_cast<TaskObject*>(self), kFailed, false);
        Ref done(t->lease ? PyObject_CallMethod(t->lease.get(), "release", nullptr) : Py_NewRef(Py_None));
        if (!done) PyErr_Clear();
    }
    delete t;
    deallocate(self);
}

PyMethodDef taker_methods[] = {
    {"_take_tasks", take_tasks, METH_VARARGS, "Requests that are there, up to a number of them."},
    {"_set_up", set_up, METH_VARARGS, "Where requests come from, what they become, and where replies go."},
    {"_unanswered", unanswered, METH_NOARGS, "The requests that were taken and not answered."},
    {"_statistics", statistics, METH_NOARGS, "A TakerStatistics."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot taker_slots[] = {{Py_tp_new, reinterpret_cast<void*>(create_taker)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(destroy_taker)},
                             {Py_tp_methods, taker_methods},
                             {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
                             {Py_tp_iternext, reinterpret_cast<void*>(next)},
                             {0, nullptr}};
PyType_Spec taker_spec = {"ringmain._ring.Taker", sizeof(TakerObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, taker_slots};

PyMethodDef task_methods[] = {{"reply", reply, METH_O, "reply(value)\n--\n\nSend the result to the client."},
                              {"_finish", finish, METH_VARARGS, "The request is answered."},
                              {"_abandon", abandon, METH_NOARGS, "The request is another process's."},
                              {"_payload", payload, METH_NOARGS, "A copy of the bytes."},
                              {"_view", view_of, METH_NOARGS, "A lease of the message."},
                              {"_bind", bind, METH_VARARGS, "Set all that is known of it."},
                              {nullptr, nullptr, 0, nullptr}};

PyGetSetDef task_attributes[] = {
    {"data", get_data, nullptr, "What the client sent, as a copy.", nullptr},
    {"number", get_number, nullptr, "Its sequence number in the topic of requests.", nullptr},
    {"client", get_client, nullptr, "Which client sent it.", nullptr},
    {"sent_ns", get_sent, nullptr, "When it was sent: wall clock.", nullptr},
    {"taken_ns", get_taken, nullptr, "When it was taken: wall clock.", nullptr},
    {"redelivered", get_redelivered, nullptr, "How many servers had it before.", nullptr},
    {"answered", get_answered, nullptr, "Has it a reply?", nullptr},
    {"retry", get_retry, nullptr, "May it run a second time?", nullptr},
    {"timeout_ns", get_timeout, nullptr, "How long its client waits; None: without a limit.", nullptr},
    {"_server", get_server, nullptr, nullptr, nullptr},
    {"_lease", get_lease, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot task_slots[] = {{Py_tp_new, reinterpret_cast<void*>(create_task)},
                            {Py_tp_dealloc, reinterpret_cast<void*>(destroy_task)},
                            {Py_tp_methods, task_methods},
                            {Py_tp_getset, task_attributes},
                            {0, nullptr}};
PyType_Spec task_spec = {"ringmain._ring.Task", sizeof(TaskObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, task_slots};

}  // namespace

bool add_server(PyObject* module) {
    return (taker_type = add_type(module, taker_spec)) && (task_type = add_type(module, task_spec));
}

}  // namespace ringmain::py
