#include "work.hpp"

#include "subscriber.hpp"

namespace ringmain::py {

namespace {

constexpr int64_t kLookForDead_ns =
    100'000'000;  // how often a worker that is never idle looks for workers that died

void release(SubscriberState& s) { s.work->worker.release(s.work->keep(s.leases)); }

void give_back(SubscriberState& s, TakenMessages& taken, size_t from, bool counts) {
    for (size_t i = from; i < taken.size(); ++i) s.work->worker.give_back(taken[i].view, counts);
    taken.keep_only(from);
}

// Moves a message that was given back too often to topic `NAME.dead`. 1: done; 0: not here, another call must; -1: raised.
int bury(PyObject* self, SubscriberState& s, const View& view, uint32_t returns) {
    if (!self) return 0;
    Ref sender(sender_of(s, view)), kind(kind_of(s, view));
    Ref data(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(view.payload()), view.size));
    if (!sender || !kind || !data) return -1;
    Ref done(
        PyObject_CallMethod(self, "_bury", "OOOKI", data.get(), sender.get(), kind.get(), view.seq, returns));
    return done ? 1 : -1;
}

void look_for_dead(SubscriberState& s, int64_t now_ns) {
    if (now_ns - s.work->looked_for_dead_ns < kLookForDead_ns) return;
    s.work->looked_for_dead_ns = now_ns;
    try {
        reap_dead_workers(s.participant->topic_file());
    } catch (const Failure&) {
        // The roster is locked by a process that has stopped. Those that need it say so.
    }
}

}  // namespace

uint64_t Work::keep(const std::vector<uint64_t>& leases) const {
    uint64_t first = std::min({unfinished.first(), fresh.first(), lent.first()});
    for (uint64_t position : leases) first = std::min(first, position);
    return first;
}

void finish_received(SubscriberState& s) {
    for (const Taken& taken : s.work->unfinished) s.work->worker.finish(taken.view);
    s.work->unfinished.clear();  // the hold moves when the next message is taken
}

int take_work(PyObject* self, SubscriberState& s, View& view) {
    Work& work = *s.work;
    Slot& own = s.participant->own();
    for (;;) {
        int64_t now_ns = wall_ns();
        look_for_dead(s, now_ns);
        Status status = work.worker.take(view, [&s](const View& v) { return !screened(s, v); });
        if (status == Status::ok) {
            uint32_t returns = work.worker.returns(view);
            if (work.fresh.empty()) work.consumed_before = s.reader->messages();
            if (work.unfinished.empty() && work.fresh.empty() && work.lent.empty())
                own.taken_ns.store(static_cast<uint64_t>(now_ns),
                                   std::memory_order_relaxed);  // relaxed: statistics
            work.fresh.add({view, returns, Ref()});
        }
        bool ours = work.worker.release(work.keep(s.leases));
        work.worker.pass_on(status == Status::ok);
        if (!ours || status == Status::corrupt) {
            ours ? raise_corrupt(s.topic) : raise_evicted(s);
            return -1;
        }
        if (status == Status::empty) return 0;
        uint32_t returns = work.fresh.back().returns;
        if (s.max_deliveries == 0 || returns < s.max_deliveries) {
            if (returns != 0) own.redelivered.fetch_add(1, std::memory_order_relaxed);  // relaxed: statistics
            return 1;
        }
        int buried = bury(self, s, view, returns);
        if (buried != 1) return buried;  // end_of_call() gives it back, uncounted
        work.worker.finish(view);
        work.fresh.remove_last();
    }
}

void end_of_call(SubscriberState& s) {
    Work& work = *s.work;
    if (work.fresh.empty()) return;
    // Reader::take() was called for each message that the caller gets, in this order.
    size_t consumed =
        std::min(work.fresh.size(), static_cast<size_t>(s.reader->messages() - work.consumed_before));
    bool failed = PyErr_Occurred() != nullptr;
    SavedError error;
    give_back(s, work.fresh, consumed, false);
    if (failed) give_back(s, work.fresh, 0, true);
    for (Taken& taken : work.fresh) work.unfinished.add(std::move(taken));
    work.fresh.clear();
    release(s);
}

void note_object(SubscriberState& s, PyObject* object) {
    if (object && !s.work->fresh.empty()) s.work->fresh.back().object = Ref::to(object);
}

void note_objects(SubscriberState& s, PyObject* list) {
    auto count = std::min(s.work->fresh.size(), static_cast<size_t>(PyList_Size(list)));
    for (size_t i = 0; i < count; ++i)
        s.work->fresh[i].object = Ref::to(PyList_GetItem(list, static_cast<Py_ssize_t>(i)));
}

uint32_t lend(SubscriberState& s, const View&) {
    s.work->lent.add(s.work->fresh.remove_last());
    return s.work->lent.back().returns;
}

void end_loan(SubscriberState& s, uint64_t position, bool failed) {
    TakenMessages& lent = s.work->lent;
    auto at =
        std::find_if(lent.begin(), lent.end(), [&](const Taken& t) { return t.view.position == position; });
    if (at == lent.end()) return;
    if (failed)
        s.work->worker.give_back(at->view, true);
    else
        s.work->worker.finish(at->view);
    lent.remove(at);
    release(s);
}

bool works_with_others(const SubscriberState& s) {
    if (!s.work) return false;
    const TopicFile& topic_file = s.participant->topic_file();
    for (uint32_t slot : taken_slots(topic_file))
        if (slot != s.participant->slot() && slot_has_role(topic_file, slot, Role::reader)) return true;
    return false;
}

bool reject(SubscriberState& s, PyObject* object) {
    TakenMessages& received = s.work->unfinished;
    for (auto at = received.begin(); at != received.end(); ++at) {
        PyObject* ours = at->object.get();
        bool same = ours == object;
        if (!same && ours && Py_IS_TYPE(ours, reinterpret_cast<PyTypeObject*>(message_class))) {
            Ref data(PyObject_GetAttrString(ours, "data"));
            same = data.get() == object;
        }
        if (!same) continue;
        s.work->worker.give_back(at->view, true);
        received.remove(at);
        release(s);
        return true;
    }
    return false;
}

void give_back_received(SubscriberState& s) {
    give_back(s, s.work->unfinished, 0, true);
    release(s);
}

}  // namespace ringmain::py
