// The end of a topic's file: its writers are stopped, and it loses its name once nothing would be lost with it.
#pragma once

#include "topic/roster.hpp"

namespace ringmain {

// Stops all writing to this topic for good, after waiting for a message under way. Throws timed_out.
void stop_writers(const TopicFile& topic_file, const RosterLock&);

// Waits until no living writer but `newcomer` is inside a publish: `turn` no longer names them, but they may have
// looked at it before. Waits for all of them, not only for the turn's last owner: a process that died right after
// it announced its takeover leaves the writer before it in the middle of a message, and the turn no longer says whose.
// Returns the slot of a writer that did not finish in time, or kNoSlot. Under the roster lock.
uint32_t wait_until_idle(const TopicFile& topic_file, uint32_t newcomer);

// Would nothing be lost with the file? It need not persist, and a pipe has no unread message.
bool disposable(const TopicFile& topic_file);
// Removes the file if it is disposable and has no living participant. True if it did.
bool retire_if_dead(TopicFile& topic_file, const RosterLock&);

// After a topic was removed: removes the files beside it (its pool, its waiting file) that have no living participants.
void retire_dead_beside(const TopicFile& ring);

}  // namespace ringmain
