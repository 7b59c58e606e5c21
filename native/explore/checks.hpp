// Global knowledge of what was written, to check against what the actors read.
#pragma once

#include <cstdint>

namespace ringmain::explore {

void note_sealed(uint64_t seq, uint64_t id);     // a writer has sealed this message with this number
void note_dropped(uint64_t seq, uint64_t id);    // and ended its turn without a commit
void note_committed(uint64_t seq);               // and has committed it
void note_stopped();                             // a remover has stopped the writers
void note_delivered(uint64_t seq, uint64_t id);  // a reader received it
// Of a shared contract: an actor has the message, no longer has it, or has read it to its end.
void note_taken(uint64_t seq, int actor);
void note_released(uint64_t seq);
void note_given_back(uint64_t seq, uint32_t returns_before);
void note_worked(uint64_t seq);
void require_all_worked();

uint64_t committed_number();  // of the next message

}  // namespace ringmain::explore
