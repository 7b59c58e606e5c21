// ringmain._ring.wait: sleeps until one of several subscribers has a message.
#include <poll.h>

#include <set>
#include <tuple>

#include "frame_subscriber.hpp"
#include "watcher.hpp"

namespace ringmain::py {

namespace {

// The subscribers of one wait() that have nothing to receive: what they sleep on, each bell once, however many share it. The
// list of subscribers outlives this.
class Sleep {
    using Life = std::tuple<uint64_t, uint64_t, bool>;
    struct Resting {
        std::shared_ptr<const TopicFile> file;
        uint64_t position;  // of the next message
    };
    static constexpr int kPolls = 16;  // before threads are asked to watch

    std::vector<Awaited> bells_;
    std::set<Life> lives_;  // whose bells we have
    std::vector<Resting> resting_;
    std::vector<Sleepers*> entered_;  // so that close() wakes us
    bool brisk_ = false;

    static Life of(const std::shared_ptr<Directory>& directory) { return {directory->inode(), 0, false}; }
    static Life of(const SubscriberState& s) {
        if (!s.attached()) return of(s.directory);
        const TopicFile& file = s.participant->topic_file();
        return {file.inode, file.epoch, s.work != nullptr};
    }

    bool unchanged() const {
        // acquire: as Reader::rests.
        return std::ranges::all_of(resting_, [](const Resting& r) {
            return r.file->header().commit.load(std::memory_order_acquire) == r.position;
        });
    }

    Woken sleep_on_all(int64_t timeout_ns) const {
        if (bells_.empty()) return sleep({}, timeout_ns);
        Bell bells[kMaxBells];
        size_t count = std::min(bells_.size(), kMaxBells);
        for (size_t i = 0; i < count; ++i) bells[i] = bells_[i].bell;
        return sleep_on_any(bells, count, timeout_ns);
    }

    // More bells than the kernel takes in one call: threads watch them, each as many as it takes. Empty: no thread is to be had.
    std::shared_ptr<Event> watched() const try {
        auto event = std::make_shared<Event>();
        std::vector<Watch> watches;
        for (const Awaited& awaited : bells_)
            watches.push_back({awaited.bell, event, [keep = awaited.mapped] { return false; }, this});
        watch_all(watches);
        return event;
    } catch (const Failure&) {
        end_watches(this);
        return {};
    }

    static Woken sleep_on_event(const Event& event, int64_t timeout_ns) {
        pollfd ready{event.fd(), POLLIN, 0};
        timespec timeout = to_timespec(timeout_ns);
        int count = ppoll(&ready, 1, &timeout, nullptr);
        return count == 0 ? Woken::timed_out : count > 0 ? Woken::changed : Woken::interrupted;
    }

  public:
    Sleep() = default;
    Sleep(const Sleep&) = delete;
    Sleep& operator=(const Sleep&) = delete;
    ~Sleep() {
        for (Sleepers* each : entered_) each->leave();
    }

    void add(SubscriberState& s, const Awaited& awaited) {
        bool rests = s.attached() && !s.work;
        if (rests) resting_.push_back({s.participant->shared(), s.reader->position()});
        brisk_ |= !s.attached() || works_with_others(s);  // only a long look finds what it waits for
        if (!awaited.bell.word) return;
        s.sleepers.enter(awaited.bell.word, awaited.mapped);
        entered_.push_back(&s.sleepers);
        if (lives_.insert(of(s)).second) bells_.push_back(awaited);
    }
    void add(const std::shared_ptr<Directory>& directory) {
        Bell bell = directory->bell();
        if (bell.word && lives_.insert(of(directory)).second) bells_.push_back({bell, false, directory});
    }

    // Without the GIL. `polls`: how often this wait has polled.
    Woken for_slices(Deadline& deadline, Slices& slices, int& polls) {
        bool too_many = bells_.size() > kMaxBells;
        if (too_many && polls++ < kPolls) return sleep_on_all(std::min(kPoll_ns, deadline.left_ns()));
        std::shared_ptr<Event> event = too_many ? watched() : nullptr;
        Woken how;
        do {
            int64_t slice_ns = slices.next(deadline.left_ns(), brisk_);
            how = event      ? sleep_on_event(*event, slice_ns)
                  : too_many ? sleep_on_all(std::min(kPoll_ns, slice_ns))
                             : sleep_on_all(slice_ns);
        } while (how == Woken::timed_out && slices.are_short() && !brisk_ && deadline.left_ns() > 0 &&
                 unchanged());
        if (event) end_watches(this);
        return how;
    }
};

// wait(subscribers, timeout, directory_seen): those that have a message. If a `_directory_count()` is given, also returns,
// perhaps with none, when topics were created or removed since.
PyObject* wait(PyObject*, PyObject* args) {
    PyObject *sequence, *timeout = nullptr;
    int64_t timeout_ns;
    long long directory_seen = -1;
    if (!PyArg_ParseTuple(args, "O|OL", &sequence, &timeout, &directory_seen) ||
        !parse_timeout(timeout, timeout_ns))
        return nullptr;
    Ref list(PySequence_List(sequence)), ready(PyList_New(0));
    if (!list || !ready) return nullptr;
    Py_ssize_t count = PyList_Size(list.get());
    Deadline deadline(timeout_ns);
    Slices slices;
    int polls = 0;
    for (bool slice_is_over = false;;) {
        Sleep sleep;
        bool look_again = false, directory_changed = false;
        for (Py_ssize_t i = 0; i < count; ++i) {
            PyObject* item = PyList_GetItem(list.get(), i);
            PyObject* subscriber = subscriber_in(item);
            if (!subscriber) {
                PyErr_Format(PyExc_TypeError, "wait() takes subscribers, not %R", item);
                return nullptr;
            }
            SubscriberState* s = reinterpret_cast<SubscriberObject*>(subscriber)->state;
            OneAtATime turn(s->caller);
            if (!turn.entered || !usable_subscriber(subscriber)) return nullptr;
            if (slice_is_over) leave_if_deleted(*s);
            Listening listening = listen(*s);
            if (directory_seen >= 0 && i == 0 && s->directory) {
                sleep.add(s->directory);
                directory_changed = s->directory->changes() != directory_seen;
            }
            View view;
            int found = message_now(subscriber, *s, view);
            if (found < 0 || (found == 1 && PyList_Append(ready.get(), item) != 0)) return nullptr;
            if (found == 1) continue;
            Awaited next = awaited(*s, listening);
            look_again |= next.at_once;
            sleep.add(*s, next);
        }
        if (PyList_Size(ready.get()) > 0 || directory_changed) return Py_NewRef(ready.get());
        int64_t left = deadline.left_ns();
        if (left == 0) return Py_NewRef(ready.get());
        if (!look_again) {
            WithoutGil unlocked;
            slice_is_over = sleep.for_slices(deadline, slices, polls) == Woken::timed_out;
        }
        if (PyErr_CheckSignals() != 0) return nullptr;
    }
}

PyMethodDef functions[] = {{"wait", wait, METH_VARARGS, "The subscribers that have a message."},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_wait(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace ringmain::py
