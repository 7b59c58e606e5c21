// Who takes part in a topic, and who of them is alive. Owns this invariant: a slot that is taken and whose byte in the file
// is not locked belongs to a dead participant, and only the holder of the roster lock takes or frees a slot.
//
// The kernel knows who is alive: each participant has its own open file description and locks one byte of
// the file with it (an OFD lock: see SlotLock). The kernel drops the lock when the participant dies, whatever kills it. Pids
// are no substitute: they are reused, and each container has its own.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <ranges>
#include <string>
#include <string_view>

#include "topic/topic_file.hpp"

namespace ringmain {

// What a slot says of its participant, copied out and made safe to print.
struct ParticipantInfo {
    uint32_t slot = 0;
    Role role = Role::none;
    uint32_t pid = 0, uid = 0;
    uint64_t pid_namespace = 0, started_ticks = 0;
    bool same_namespace = false;  // does the pid mean this process here?
    uint64_t generation = 0, joined_ns = 0;
    uint64_t position = 0, sequence = 0, messages = 0, bytes = 0, lost = 0, blocked_ns = 0;
    uint64_t hold = kNoHold;
    uint32_t waits_for = 0;
    uint64_t taken_ns =
        0;  // worker: since when it has its oldest message, by CLOCK_MONOTONIC; 0: it has none
    uint64_t redelivered = 0;
    bool alive = false;
    bool joining = false;  // reader: has its slot, and does not yet know where it begins
    std::string name;
    // "writer 'camera' (pid 12)", or "writer 'camera' (user 0, pid 12 in another pid namespace (4026532281))"
    std::string describe() const;
};

// The roster lock: held for joins, leaves and repairs, microseconds at a time. The kernel drops it if its holder dies. But
// its holder may be stopped: so who has a user that waits asks for it for a short time, hears signals, and asks again.
class RosterLock {
    const TopicFile& topic_file_;
    PinnedDescriptor file_;
    bool held_ = false;

    bool try_to_lock();

  public:
    static constexpr int64_t kPatience_ns = 2'000'000'000;  // of what cannot do without it
    static constexpr int64_t kSlice_ns = 20'000'000;        // of one try, where more follow

    // Throws roster_locked if it does not get the lock in time.
    explicit RosterLock(const TopicFile& topic_file, int64_t patience_ns = kPatience_ns);
    // Tries once: see held().
    RosterLock(const TopicFile& topic_file, std::try_to_lock_t);
    ~RosterLock();
    RosterLock(const RosterLock&) = delete;
    RosterLock& operator=(const RosterLock&) = delete;
    bool held() const { return held_; }
};

// Taken by a participant, or enrolled for one.
bool slot_taken(const TopicFile& topic_file, uint32_t slot);
bool slot_enrolled(const TopicFile& topic_file, uint32_t slot);
bool slot_has_role(const TopicFile& topic_file, uint32_t slot, Role role);
const char* role_name(Role role);
// Does a participant have the lock of the slot's byte, also one of this process? If the kernel cannot say, yes.
bool slot_locked(const TopicFile& topic_file, uint32_t slot);
// Is the participant of a taken slot alive? A participant that asks about its own slot is.
bool slot_alive(const TopicFile& topic_file, uint32_t slot);
// Taken by a participant that is dead, and not reaped yet?
bool slot_dead(const TopicFile& topic_file, uint32_t slot);
ParticipantInfo look_at(const TopicFile& topic_file, uint32_t slot, bool alive);

// The indexes of the slots that are taken, by living or dead participants.
inline auto taken_slots(const TopicFile& topic_file) {
    return std::views::iota(uint32_t{0}, topic_file.slots_used()) |
           std::views::filter([&topic_file](uint32_t slot) { return slot_taken(topic_file, slot); });
}

// Somebody joined, left or was reaped: wakes those that wait for readers.
void ring_membership(const TopicFile& topic_file);

// How many living readers take part, and are ready: they receive all that is sent from now on.
uint32_t living_readers(const TopicFile& topic_file);

// "the roster of topic 'imu' stayed locked by pid 12, ...", with what to do about it.
std::string roster_locked_text(const TopicFile& topic_file);

}  // namespace ringmain
