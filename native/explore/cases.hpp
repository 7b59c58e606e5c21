// The stories that are explored, and the ones that are only told when asked for more.
#pragma once

#include <vector>

#include "engine.hpp"

namespace ringmain::explore {

std::vector<Case> all_cases();

}  // namespace ringmain::explore
