// What a dead participant had is given back: slot, hold, turn, messages. By the process that it blocks, under the roster
// lock; one that leaves is reaped like one that died, so there is one way to give things back.
#pragma once

#include <mutex>

#include "rule/work_queue.hpp"
#include "topic/roster.hpp"

namespace ringmain {

// Would reap_if_dead give anything back? A look, without a lock.
bool can_be_reaped(const TopicFile& topic_file, uint32_t slot);
// If the slot's participant is dead, gives back all it had: slot, hold, turn. A living writer loses a hold that another
// process wrote into its slot. True if anything was given back.
bool reap_if_dead(const TopicFile& topic_file, uint32_t slot, const RosterLock&);
// Takes the lock if it is free, and otherwise does nothing: who is blocked tries again, and waits for no process that has stopped
// with the lock.
bool reap_if_dead(const TopicFile& topic_file, uint32_t slot);
// Of a shared contract: gives back the messages of workers that have died, unless the roster is locked. True if it gave any.
bool reap_dead_workers(const TopicFile& topic_file);
// Has any died with one, and is it still to be given back?
bool dead_worker_has_messages(const TopicFile& topic_file);
// Reaps every dead participant; returns how many are alive.
uint32_t reap_all(const TopicFile& topic_file, const RosterLock&);

// Of one slot, under the roster lock, each by itself: for what a newcomer finds in a slot that is free.
void drop_hold(const TopicFile& topic_file, uint32_t slot);
void free_turn(const TopicFile& topic_file, uint32_t slot);

// The words that all workers of the topic share.
WorkQueue work_of(const TopicFile& topic_file);

}  // namespace ringmain
