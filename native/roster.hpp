// Who takes part in a topic: join, leave, liveness, reaping, and enrolling the readers that wait for it. Owns this
// invariant: a slot that is taken and whose byte in the file is not locked belongs to a dead participant, and only the
// holder of the roster lock takes or frees a slot.
//
// The kernel knows who is alive: each participant has its own open file description and locks one byte of
// the file with it (an OFD lock). The kernel drops the lock when the participant dies, whatever kills it. Pids
// are no substitute: they are reused, and each container has its own.
#pragma once

#include <algorithm>
#include <memory>
#include <ranges>
#include <string>
#include <string_view>

#include "topic_file.hpp"

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
    uint64_t taken_ns = 0;  // worker: since when it has its oldest message; 0: it has none
    uint64_t redelivered = 0;
    bool alive = false;
    std::string name;
    // "writer 'camera' (pid 12)", or "writer 'camera' (user 0, pid 12 in another pid namespace (4026532281))"
    std::string describe() const;
};

// The roster lock: held for joins, leaves and repairs, microseconds at a time. The kernel drops it if its holder dies.
class RosterLock {
    const TopicFile& topic_file_;

  public:
    explicit RosterLock(const TopicFile& topic_file, int64_t timeout_ns = 2'000'000'000);
    ~RosterLock();
    RosterLock(const RosterLock&) = delete;
    RosterLock& operator=(const RosterLock&) = delete;
};

// Taken by a participant, or enrolled for one.
bool slot_taken(const TopicFile& topic_file, uint32_t slot);
bool slot_enrolled(const TopicFile& topic_file, uint32_t slot);
bool slot_has_role(const TopicFile& topic_file, uint32_t slot, Role role);
const char* role_name(Role role);
// Is the participant of a taken slot alive? A participant that asks about its own slot is.
bool slot_alive(const TopicFile& topic_file, uint32_t slot);
ParticipantInfo look_at(const TopicFile& topic_file, uint32_t slot, bool alive);

// The indexes of the slots that are taken, by living or dead participants.
inline auto taken_slots(const TopicFile& topic_file) {
    return std::views::iota(uint32_t{0}, topic_file.slots_used()) |
           std::views::filter([&topic_file](uint32_t slot) { return slot_taken(topic_file, slot); });
}

// How many living readers take part, and are ready: they receive all that is sent from now on.
uint32_t living_readers(const TopicFile& topic_file);

// If the slot's participant is dead, gives back all it had: slot, hold, turn. A living writer loses a hold that another
// process wrote into its slot. True if anything was given back.
bool reap_if_dead(const TopicFile& topic_file, uint32_t slot, const RosterLock&);
bool reap_if_dead(const TopicFile& topic_file, uint32_t slot);  // takes the lock
// Of a shared contract: gives back the messages of workers that have died. True if any had died with one.
bool reap_dead_workers(const TopicFile& topic_file);
// Reaps every dead participant; returns how many are alive.
uint32_t reap_all(const TopicFile& topic_file, const RosterLock&);

// Stops all writing to this topic for good, after waiting for a message under way. Throws timed_out.
void stop_writers(const TopicFile& topic_file, const RosterLock&);

// Writes the living readers that wait in `waiting` into the roster of a topic that has no name yet, with their holds. On
// a contract with one reader, only the first.
void enrol_waiting(const TopicFile& topic_file, const TopicFile& waiting, const RosterLock& of_topic,
                   const RosterLock& of_waiting);

// A slot in a topic, taken by the constructor and given back by the destructor.
class Participant {
    std::shared_ptr<TopicFile> topic_file_;
    uint32_t slot_ = 0;
    uint64_t generation_ = 0;
    bool enrolled_ = false;

    Participant(std::shared_ptr<TopicFile> topic_file, uint32_t enrolled_slot);
    uint32_t find_slot(Role role, const RosterLock&) const;
    void take_turn(bool takeover);

  public:
    // Throws roster_full, or busy where the contract allows one participant of the role and it is alive. With
    // `takeover` a living writer is stopped first: its next publish fails, and one under way is waited for.
    Participant(std::shared_ptr<TopicFile> topic_file, Role role, std::string_view name, bool takeover,
                const RosterLock&);
    // Takes over the slot that was enrolled for a participant of the waiting file; nullptr if there is none.
    static std::unique_ptr<Participant> take_enrolled(std::shared_ptr<TopicFile> topic_file,
                                                      const Participant& waiting, const RosterLock&);
    ~Participant() { leave(); }
    Participant(const Participant&) = delete;
    Participant& operator=(const Participant&) = delete;

    // Leaves, and removes the topic's file if it was the last participant and the file is disposable.
    void leave();
    // Closes the file without touching shared memory (in a forked child, whose slot is its parent's).
    void abandon() { topic_file_.reset(); }

    TopicFile& topic_file() const { return *topic_file_; }
    const std::shared_ptr<TopicFile>& shared() const { return topic_file_; }
    uint32_t slot() const { return slot_; }
    uint64_t generation() const { return generation_; }
    bool enrolled() const { return enrolled_; }  // was the slot enrolled for us before the topic had a name?
    Slot& own() const { return topic_file_->slot(slot_); }
};

// Would nothing be lost with the file? It need not persist, and a pipe has no unread message.
bool disposable(const TopicFile& topic_file);
// Removes the file if it is disposable and has no living participant. True if it did.
bool retire_if_dead(TopicFile& topic_file, const RosterLock&);

// After a topic was removed: removes the files beside it (its pool, its waiting file) that have no living participants.
void retire_dead_beside(const TopicFile& ring);

}  // namespace ringmain
