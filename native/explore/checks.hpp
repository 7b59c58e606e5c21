// What an onlooker who sees everything knows, and holds against what the actors see.
#pragma once

#include <cstdint>

namespace ringmain::explore {

void note_sealed(uint64_t seq, uint64_t id);     // a writer has written this message under this number
void note_dropped(uint64_t seq, uint64_t id);    // and ended its turn without a commit
void note_delivered(uint64_t seq, uint64_t id);  // a reader was given it
uint64_t committed_number();                     // of the message to come

}  // namespace ringmain::explore
