// The last message of each kind, for a reader of a topic that keeps them. In a file of its own, so that a mutant of
// kept_messages.hpp compiles no more than this.
#pragma once

#include "rule/reader.hpp"

namespace ringmain::explore {

// As a reader with start="newest" does: finds them, checks that they are all and the last, and moves on to where they end.
void find_kept_and_check(const Ring& ring, Reader& reader, int file);

}  // namespace ringmain::explore
