// One that takes part: it joins, or is enrolled while it waits for the topic, and leaves.
#pragma once

#include <memory>
#include <string_view>

#include "topic/roster.hpp"

namespace ringmain {

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

}  // namespace ringmain
