#include "topic/reaping.hpp"

#include <mutex>

namespace ringmain {

using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

namespace {

bool may_have_messages(const TopicFile& topic_file, uint32_t slot) {
    // relaxed: a look, which the reaping repeats under the lock.
    return topic_file.slot(slot).taken_from.load(memory_order_relaxed) != kNoHold &&
           slot_has_role(topic_file, slot, Role::reader);
}

// A pipe's reader slot keeps its hold, so that the next reader goes on where this one stopped.
// The queue of a shared contract has a slot that no participant takes.
bool keeps_hold(const TopicFile& topic_file, uint32_t index) {
    return traits(topic_file.contract).keeps_unread && index == kOnlyReaderSlot;
}

bool turn_is_of(const TopicFile& topic_file, uint32_t index) {
    return turn_slot(topic_file.header().turn.load(memory_order_acquire), topic_file.slot_count) == index;
}

// A free slot holds nothing and does not have the turn, and a writer's slot holds nothing. If one does, a process wrote
// where it must not (or a participant that had lost its lock moved its hold after it was reaped), and nothing else would
// ever reset it.
bool holds_wrongly(const TopicFile& topic_file, uint32_t index) {
    bool free = !slot_taken(topic_file, index);
    if (!free && !slot_has_role(topic_file, index, Role::writer)) return false;
    uint64_t hold = topic_file.slot(index).hold.load(memory_order_acquire) & kPositionMask;
    return (hold != kNoHold && !keeps_hold(topic_file, index)) || (free && turn_is_of(topic_file, index));
}

}  // namespace

WorkQueue work_of(const TopicFile& s) {
    return WorkQueue({s.header(), &s.slot(0), s.data(), s.capacity_bytes, traits(s.contract), s.slot_count});
}

bool reap_dead_workers(const TopicFile& topic_file) {
    bool reaped = false;
    for (uint32_t i : taken_slots(topic_file))
        if (may_have_messages(topic_file, i)) reaped |= reap_if_dead(topic_file, i);
    return reaped;
}

bool dead_worker_has_messages(const TopicFile& topic_file) {
    return std::ranges::any_of(taken_slots(topic_file), [&](uint32_t i) {
        return may_have_messages(topic_file, i) && !slot_alive(topic_file, i);
    });
}

void drop_hold(const TopicFile& topic_file, uint32_t index) {
    if (keeps_hold(topic_file, index)) return;
    if (traits(topic_file.contract).shared) work_of(topic_file).return_taken(index);
    Slot& slot = topic_file.slot(index);
    uint64_t old = slot.hold.exchange(kNoHold, memory_order_acq_rel);
    if (old & kSleeper) wake(slot.hold.futex());  // of a pool
    ring(slot.awaited);
}

// Compared, since another writer may take the turn at the same time: its owner rested when it died.
void free_turn(const TopicFile& topic_file, uint32_t index) {
    Word<uint64_t>& turn = topic_file.header().turn;
    uint64_t seen = turn.load(memory_order_acquire);
    while (turn_slot(seen, topic_file.slot_count) == index)
        if (turn.compare_exchange(seen, turn_given_back(seen), memory_order_acq_rel))
            return wake(turn.futex());
}

bool can_be_reaped(const TopicFile& topic_file, uint32_t index) {
    return slot_dead(topic_file, index) || holds_wrongly(topic_file, index);
}

bool reap_if_dead(const TopicFile& topic_file, uint32_t index, const RosterLock&) {
    bool reaped = slot_dead(topic_file, index);
    if (!reaped && !holds_wrongly(topic_file, index)) return false;
    Slot& slot = topic_file.slot(index);
    CRASH_POINT("reap: before the hold");
    drop_hold(topic_file, index);
    if (!reaped && slot_taken(topic_file, index)) return true;  // a living writer keeps the rest
    CRASH_POINT("reap: hold gone, turn kept");
    free_turn(topic_file, index);
    CRASH_POINT("reap: turn free, slot taken");
    slot.waits_for.store(0, memory_order_relaxed);
    slot.busy.store(0, memory_order_relaxed);
    slot.state.store(static_cast<uint32_t>(SlotState::free), memory_order_release);
    CRASH_POINT("reap: slot free, not announced");
    ring_membership(topic_file);
    return true;
}

bool reap_if_dead(const TopicFile& topic_file, uint32_t slot) {
    (void)topic_file.fd();  // throws if the kernel cannot be asked any more: then a wait would not end
    if (!can_be_reaped(topic_file, slot)) return false;
    RosterLock lock(topic_file, std::try_to_lock);
    return lock.held() && reap_if_dead(topic_file, slot, lock);
}

uint32_t reap_all(const TopicFile& topic_file, const RosterLock& lock) {
    uint32_t alive = 0;
    for (uint32_t i : taken_slots(topic_file)) {
        reap_if_dead(topic_file, i, lock);
        if (slot_taken(topic_file, i)) ++alive;
    }
    return alive;
}

}  // namespace ringmain
