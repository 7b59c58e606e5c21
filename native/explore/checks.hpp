// Global knowledge of what was written, to check against what the actors read.
#pragma once

#include <cstdint>

namespace ringmain::explore {

// A message: its number, in a file.
struct Numbered {
    int file;
    uint64_t seq;
};

void note_sealed(Numbered message, uint64_t id);     // a writer has sealed this message with this number
void note_dropped(Numbered message, uint64_t id);    // and ended its turn without a commit
void note_committed(Numbered message);               // and has committed it
void note_stopped(int file);                         // a remover has stopped the writers
void note_delivered(Numbered message, uint64_t id);  // a reader received it
// Of a shared contract: an actor has the message, no longer has it, or has read it to its end.
void note_taken(Numbered message, int actor);
void note_released(Numbered message);
void note_given_back(Numbered message, uint32_t returns_before);
void note_worked(Numbered message);
void require_all_worked(int file);

uint64_t committed_number(int file);  // of the next message

}  // namespace ringmain::explore
