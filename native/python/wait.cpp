// ringmain._ring.wait: sleeps until one of several subscribers has a message.
#include <poll.h>

#include <set>
#include <tuple>

#include "python/frame_subscriber.hpp"
#include "waiting/watcher.hpp"

namespace ringmain::py {

namespace {

// The subscribers of one wait() that have nothing to receive: what they sleep on, each bell once, however many share it. The
// list of subscribers outlives this.
class Sleep {
    using Life = std::tuple<uint64_t, uint64_t, bool>;
    // Together, as one of them is to a sleep on one bell.
    struct DeathWatches {
        std::vector<std::unique_ptr<DeathWatch>> each;

        bool over() const {
            return std::ranges::any_of(each, [](const auto& deaths) { return deaths->over(); });
        }
        int64_t slice_ns() const {
            int64_t least_ns = kForever;
            for (const auto& deaths : each) least_ns = std::min(least_ns, deaths->slice_ns());
            return least_ns;
        }
    };
    static constexpr int kPolls = 16;  // before threads are asked to watch

    std::vector<Bell> bells_;
    std::vector<Awaiting> awaiting_;  // on each of them
    std::set<Life> lives_;            // whose bells we have
    // Topics that subscribers wait for: all share the directory's bell.
    using Missing = std::vector<std::pair<std::shared_ptr<const Directory>, std::string>>;
    std::shared_ptr<Missing> missing_ = std::make_shared<Missing>();
    std::vector<Sleepers*> entered_;  // so that close() wakes us
    bool polls_ = false;              // one of the subscribers must

    static Life of(const SubscriberState& s) {
        const TopicFile& file = s.participant->topic_file();
        return {file.inode, file.epoch, s.work != nullptr};
    }

    bool too_many() const { return bells_.size() > kMaxBells; }

    Woken sleep_on_all(int64_t timeout_ns) const {
        if (bells_.empty()) return sleep({}, timeout_ns);
        return sleep_on_any(bells_.data(), std::min(bells_.size(), kMaxBells), timeout_ns);
    }

    // More bells than the kernel takes in one call: threads watch them, each as many as it takes. Empty: no thread is to be had.
    std::shared_ptr<Event> watched() const try {
        auto event = std::make_shared<Event>();
        std::vector<Watch> watches;
        for (size_t i = 0; i < bells_.size(); ++i) watches.push_back({bells_[i], event, awaiting_[i], this});
        watch_all(watches);
        return event;
    } catch (const Failure&) {
        end_watches(this);
        return {};
    }

    void add(Bell bell, Awaiting awaiting) {
        bells_.push_back(bell);
        awaiting_.push_back(std::move(awaiting));
    }

    Woken watched_by_threads(Deadline& deadline, int& polls) const {
        std::shared_ptr<Event> event = polls++ < kPolls ? nullptr : watched();
        if (!event) return sleep_on_all(std::min(kPoll_ns, deadline.left_ns()));
        Woken how =
            sleep_on_event(*event, std::min(polls_ ? kSlice_ns : kLongestSlice_ns, deadline.left_ns()));
        end_watches(this);
        return how;
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
        polls_ |= s.must_poll(awaited.bell);
        if (!awaited.bell.word) return;
        s.sleepers.enter(awaited.bell.word, awaited.mapped);
        entered_.push_back(&s.sleepers);
        if (!s.attached()) {
            missing_->emplace_back(s.directory, s.topic);
            add(s.directory, awaited.bell);
        } else if (lives_.insert(of(s)).second) {
            add(awaited.bell, s.awaiting(awaited.bell.word));
        }
    }
    void add(const std::shared_ptr<Directory>& directory, Bell bell) {
        if (!bell.word || !lives_.insert({directory->inode(), 0, false}).second) return;
        auto over = [directory, missing = missing_] {
            return directory->replaced() || std::ranges::any_of(*missing, [](const auto& each) {
                       return each.first->has(each.second);
                   });
        };
        add(bell, {bell.word, {}, over});
    }

    // Without the GIL. `polls`: how often this wait has polled.
    Woken once(Deadline& deadline, bool& briefly, int& polls) {
        if (too_many()) return watched_by_threads(deadline, polls);
        auto sleep = [this](int64_t timeout_ns) { return sleep_on_all(timeout_ns); };
        if (polls_) return sleep(std::min(kSlice_ns, deadline.left_ns()));
        auto watch = [this] {
            DeathWatches deaths;
            for (const Awaiting& each : awaiting_) deaths.each.push_back(std::make_unique<DeathWatch>(each));
            return deaths;
        };
        return sleep_watched(deadline, briefly, watch, sleep);
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
    bool briefly = true;
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
            SubscriberHost host(subscriber, *s);
            if (slice_is_over) s->leave_if_deleted(host);
            Listening listening = s->listen();
            if (directory_seen >= 0 && i == 0 && s->directory) {
                sleep.add(s->directory, s->directory->bell());
                directory_changed = s->directory->changes() != directory_seen;
            }
            View view;
            int found = message_now(subscriber, *s, view);
            if (found < 0 || (found == 1 && PyList_Append(ready.get(), item) != 0)) return nullptr;
            if (found == 1) continue;
            Awaited next = s->awaited(listening);
            look_again |= next.at_once;
            sleep.add(*s, next);
        }
        if (PyList_Size(ready.get()) > 0 || directory_changed) return Py_NewRef(ready.get());
        int64_t left = deadline.left_ns();
        if (left == 0) return Py_NewRef(ready.get());
        if (!look_again) {
            WithoutGil unlocked;
            slice_is_over = sleep.once(deadline, briefly, polls) == Woken::timed_out;
        }
        if (PyErr_CheckSignals() != 0) return nullptr;
    }
}

PyMethodDef functions[] = {{"wait", wait, METH_VARARGS, "The subscribers that have a message."},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_wait(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace ringmain::py
