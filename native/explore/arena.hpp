// Memory for actors. An execution may be abandoned in the middle, and dead actors free nothing, so their memory comes
// from an arena that is emptied before each execution.
#pragma once

namespace ringmain::explore {

void arena_reset();

// While one of these lives, allocations are the actors' (true) or the explorer's own (false).
class Allocates {
    bool before_;

  public:
    explicit Allocates(bool actors);
    ~Allocates();
};
void explorer_allocates();

}  // namespace ringmain::explore
