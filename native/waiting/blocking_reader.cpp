#include "waiting/blocking_reader.hpp"

#include "waiting/watcher.hpp"

namespace ringmain {

// Goes to the first message, or to the last of each kind where the topic keeps them.
Status BlockingReader::begin_reading() {
    Ring ring = ring_of(topic_file());
    Start from = joined_before_topic ? Start::oldest : start;
    bool finds_kept = from == Start::newest && ring.kept_kinds != 0 && !conflate;
    Status status = reader->attach(finds_kept ? Start::next : from, joined_before_topic);
    if (status != Status::ok || !finds_kept) return status;
    status = find_kept(ring, *reader, topic, participant->shared(), kept);
    if (kept) {
        after_kept = std::exchange(reader, kept->reader());
        slow_path = true;
    }
    return status;
}

// After the last kept message: the ring.
void BlockingReader::go_on_after_kept() {
    reader = std::move(after_kept);
    kept.reset();
    slow_path = needs_slow_path();
}

void BlockingReader::join(int64_t patience_ns) {
    if (!directory || !directory->intact()) directory = Directory::at(directory_path, true);
    participant = join_or_wait(directory, topic, name, observe, waiting, patience_ns);
    if (!participant) return;
    joined_before_topic |= participant->enrolled();
    bool observer = observes(observe, topic_file().contract);
    bool works = traits(topic_file().contract).shared && !observer;
    Ring ring = ring_of(topic_file());
    reader =
        std::make_unique<Reader>(ring, participant->slot(), on_lap, conflate || works, observer || works);
    if (spin.asked_for()) reader->never_pause();
    if (works) {
        reader->hold_nothing();
        work = std::make_unique<Unfinished>(ring, participant->slot());
        slow_path = true;
        reap_dead_workers(topic_file());
        WorkQueue(ring).wake_all_workers();  // those that slept alone now watch us
    }
    if (begin_reading() != Status::ok) throw Failure{Fault::corrupt, corrupt_text(topic)};
}

void BlockingReader::look_for_dead(int64_t now_ns) {
    if (now_ns - work->looked_for_dead_ns < kLookForDead_ns) return;
    work->looked_for_dead_ns = now_ns;
    try {
        reap_dead_workers(topic_file());
    } catch (const Failure&) {
        // The roster is locked by a process that has stopped. Those that need it say so.
    }
}

// After a sleep that was over although no bell rang: gives back what dead workers had. True if any had died with a message.
bool BlockingReader::give_back_of_dead() {
    uint32_t now = found_over();
    if (std::exchange(work->found_over, now) == now) return false;
    try {
        return reap_dead_workers(topic_file());
    } catch (const Failure&) {
        return false;  // as in look_for_dead
    }
}

// A file that was deleted by hand, perhaps with its directory, is not marked as retired.
static bool deleted_by_hand(const TopicFile& topic_file) {
    if (!topic_file.nameless() || topic_file.retired()) return false;
    for (uint32_t i : taken_slots(topic_file))
        if (slot_has_role(topic_file, i, Role::writer) && slot_alive(topic_file, i)) return false;
    return true;
}

bool BlockingReader::deleted() const { return deleted_by_hand(topic_file()); }

Listening BlockingReader::listen_to_directory() {
    if (!directory) return {};
    if (directory->replaced()) {
        directory.reset();  // attach() opens the new one
        return {};
    }
    return {true, directory->bell()};
}

Awaited BlockingReader::awaited(const Listening& listening, bool barrier_follows) {
    // The topic's life has just ended, and the next is not there yet. Read the directory's bell first, then look again:
    // otherwise a topic created in between would not wake us.
    if (!attached()) return {listening.bell, !listening.listens, directory};
    // We stay in a life that has ended as long as its messages are borrowed; no bell rings when they are given back.
    if (!leases.empty() && topic_file().retired()) return {{}, false};
    Bell bell = work ? work->worker.bell() : barrier_follows ? reader->arm_bell() : reader->bell();
    return {bell, !bell.word, participant->shared()};
}

Awaiting BlockingReader::awaiting(const uint32_t* word) const {
    if (!attached())
        return {word, {}, [directory = directory, topic = topic] {
                    return directory->has(topic) || directory->replaced();
                }};
    auto over = [file = participant->shared(), read = reader->position(),
                 worker = work ? std::optional(work->worker) : std::nullopt] {
        if (file->retired() || deleted_by_hand(*file)) return true;
        if (worker) return worker->has_more() || dead_worker_has_messages(*file);
        // acquire: as Reader::has_more.
        return (file->header().commit.load(std::memory_order_acquire) & kPositionMask) != read;
    };
    return {word, participant->shared(), over};
}

uint64_t BlockingReader::watch_bell(const Bell& bell, const std::shared_ptr<Event>& event) {
    return ringmain::watch({bell, event, awaiting(bell.word), this, must_poll(bell) ? kSlice_ns : 0});
}

}  // namespace ringmain
