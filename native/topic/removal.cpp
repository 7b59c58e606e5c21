#include "topic/removal.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topic/reaping.hpp"

namespace ringmain {

using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_seq_cst;

constexpr int64_t kFinishMessage_ns = 1'000'000'000;  // how long a writer may take to finish a message

// Waits until the slot's writer, if it lives, is not inside a publish. False: it did not finish in time.
static bool wait_until_rests(const TopicFile& s, uint32_t slot, int64_t deadline_ns) {
    // [IDLE] acquire: we see what the writer committed last. Pairs with [RELEASE] in Writer::rest.
    while (s.slot(slot).busy.load(memory_order_acquire) != 0 && slot_locked(s, slot)) {
        if (monotonic_ns() > deadline_ns) return false;
        usleep(100);
    }
    return true;
}

uint32_t wait_until_idle(const TopicFile& s, uint32_t newcomer) {
    int64_t deadline = monotonic_ns() + kFinishMessage_ns;
    bool fenced = false;
    for (uint32_t i : taken_slots(s)) {  // slots change under the roster lock, which we have
        if (i == newcomer || !slot_has_role(s, i, Role::writer) || !slot_alive(s, i)) continue;
        if (!fenced) process_barrier::make_or_wait();
        fenced = true;
        if (!wait_until_rests(s, i, deadline)) return i;
    }
    return kNoSlot;
}

void stop_writers(const TopicFile& topic_file, const RosterLock&) {
    Word<uint64_t>& turn = topic_file.header().turn;
    auto give_up = [&](uint32_t owner) {
        throw Failure{Fault::timed_out, "topic '" + topic_file.topic + "' cannot be removed: " +
                                            look_at(topic_file, owner, true).describe() +
                                            " is in the middle of a message and does not finish it"};
    };
    if (traits(topic_file.contract).one_writer) {
        uint64_t before = turn.exchange(kTurnOver, memory_order_seq_cst);
        uint32_t unfinished = wait_until_idle(topic_file, kNoSlot);
        if (unfinished == kNoSlot) return;
        turn.exchange(before, memory_order_seq_cst);
        give_up(unfinished);
    }
    int64_t deadline = monotonic_ns() + kFinishMessage_ns;
    uint64_t seen = turn.load(memory_order_acquire);
    while (!turn_over(seen)) {
        uint32_t owner = turn_slot(seen, topic_file.slot_count);
        if (owner != kNoSlot) {  // otherwise it is free, or no slot's number
            // [ASKED] as in Writer::ask. Where the owner dies in the middle, there is no message to wait for.
            if (!turn.compare_exchange(seen, seen | kTurnAsked, memory_order_acq_rel)) continue;
            seen |= kTurnAsked;
            process_barrier::make_or_wait();
            if (!wait_until_rests(topic_file, owner, deadline)) give_up(owner);
        }
        if (turn.compare_exchange(seen, kTurnOver, memory_order_acq_rel)) return;
        if (owner != kNoSlot && monotonic_ns() > deadline) give_up(owner);
    }
}

bool disposable(const TopicFile& topic_file) {
    if (topic_file.persists()) return false;
    if (topic_file.kind() == FileKind::pool) {
        // A pool stays as long as its topic, whose readers may still have descriptors to read.
        struct stat st;
        return fstatat(topic_file.directory->fd(), file_name(topic_file.topic).c_str(), &st,
                       AT_SYMLINK_NOFOLLOW) != 0;
    }
    if (!traits(topic_file.contract).keeps_unread) return true;
    if (traits(topic_file.contract).shared) return !work_of(topic_file).unfinished();
    uint64_t read = topic_file.slot(kOnlyReaderSlot).hold.load(memory_order_acquire) & kPositionMask;
    return read == (topic_file.header().commit.load(memory_order_acquire) & kPositionMask);
}

bool retire_if_dead(TopicFile& topic_file, const RosterLock& lock) {
    if (topic_file.retired()) return false;
    // As in find_slot: in a large roster, one that lives is answer enough.
    auto lives = [&](uint32_t slot) { return slot_alive(topic_file, slot); };
    if (topic_file.slots_used() > kDefaultSlotCount && std::ranges::any_of(taken_slots(topic_file), lives))
        return false;
    // Reaped first: a dead worker gives its message back, and then the topic is not disposable.
    if (reap_all(topic_file, lock) != 0 || !disposable(topic_file)) return false;
    // If a writer only seems dead (it has lost its lock), its next message must fail: no process would read it.
    topic_file.header().turn.exchange(kTurnOver, memory_order_acq_rel);
    topic_file.retire();
    retire_dead_beside(topic_file);
    return true;
}

void retire_dead_beside(const TopicFile& ring) {
    if (ring.kind() != FileKind::ring) return;
    for (FileKind kind : {FileKind::pool, FileKind::waiting}) {
        try {
            std::shared_ptr<TopicFile> beside =
                TopicFile::open(ring.directory, ring.topic, Access::read, kind);
            RosterLock lock(*beside);
            retire_if_dead(*beside, lock);
        } catch (const Failure&) {
            // Most topics have none. If it cannot be read, `clean` reports it.
        }
    }
}

}  // namespace ringmain
