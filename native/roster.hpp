// Who takes part in a topic: join, leave, liveness, reaping. Owns this invariant: a slot that is taken and
// whose byte in the file is not locked belongs to a dead participant, and only whoever has the roster lock
// may take or free a slot.
//
// Liveness is asked of the kernel: each participant has its own open file description and locks one byte of
// the file with it (an OFD lock), so the lock dies with the participant, whatever kills it. Pids would not
// do: they are reused, and containers have their own.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "topic_file.hpp"

namespace ringmain {

// What a slot says of its owner, copied out and made safe to print.
struct ParticipantInfo {
    uint32_t slot = 0;
    Role role = Role::none;
    uint32_t pid = 0, uid = 0;
    uint64_t generation = 0, joined_ns = 0;
    uint64_t position = 0, sequence = 0, messages = 0, bytes = 0, lost = 0;
    uint64_t hold = kNoHold;
    uint32_t waits_for = 0;
    bool alive = false;
    std::string name;
    std::string describe() const;  // "writer 'camera' (pid 12)"
};

// The roster lock: held for joins, leaves and repairs, microseconds at a time. Dies with its holder.
class RosterLock {
    const TopicFile& topic_file_;

  public:
    explicit RosterLock(const TopicFile& topic_file, int64_t timeout_ns = 2'000'000'000);
    ~RosterLock();
    RosterLock(const RosterLock&) = delete;
    RosterLock& operator=(const RosterLock&) = delete;
};

bool slot_taken(const TopicFile& topic_file, uint32_t slot);
const char* role_name(Role role);
// Does the owner of a taken slot live? Not to be asked of one's own slot: one's own lock never stands in
// one's way.
bool slot_alive(const TopicFile& topic_file, uint32_t slot);
ParticipantInfo look_at(const TopicFile& topic_file, uint32_t slot, bool alive);

// If the slot's owner is dead, gives back all it had: slot, hold, turn. True if there was somebody to bury.
bool reap_if_dead(const TopicFile& topic_file, uint32_t slot, const RosterLock&);
bool reap_if_dead(const TopicFile& topic_file, uint32_t slot);  // takes the lock
// Reaps all the dead; returns how many participants live.
uint32_t reap_all(const TopicFile& topic_file, const RosterLock&);

// Makes sure that nobody writes in this topic ever again; a message under way is waited for. Throws timed_out.
void stop_writers(const TopicFile& topic_file, const RosterLock&);

// One's place in a topic, given back when it goes.
class Participant {
    std::shared_ptr<TopicFile> topic_file_;
    uint32_t slot_ = 0;
    uint64_t generation_ = 0;

    void take_turn(bool takeover, int64_t timeout_ns);

  public:
    // Throws roster_full, or busy where the contract has one place for the role and its owner lives. With
    // `takeover` a living writer is made to stop first: its next publish fails, and one under way is waited
    // for.
    Participant(std::shared_ptr<TopicFile> topic_file, Role role, std::string_view name, bool takeover,
                const RosterLock&);
    ~Participant() { leave(); }
    Participant(const Participant&) = delete;
    Participant& operator=(const Participant&) = delete;

    // Leaves, and takes the topic's file away if nobody is left and nothing speaks for keeping it.
    void leave();
    // Gives the descriptor back without touching shared memory (in a forked child, whose slot is its
    // parent's).
    void abandon() { topic_file_.reset(); }

    TopicFile& topic_file() const { return *topic_file_; }
    const std::shared_ptr<TopicFile>& shared() const { return topic_file_; }
    uint32_t slot() const { return slot_; }
    uint64_t generation() const { return generation_; }
    Slot& own() const { return topic_file_->slot(slot_); }
};

// Nothing would be lost with the file: nobody in it, not to persist, no unread message in a pipe.
bool disposable(const TopicFile& topic_file);

// After a topic was taken away: takes away the pool beside it, if it has one and nobody who lives is in it.
void retire_dead_pool(const TopicFile& ring);

}  // namespace ringmain
