// The cases that are explored, and those that are explored only with --deep.
#pragma once

#include <vector>

#include "explore/engine.hpp"

namespace ringmain::explore {

std::vector<Case> all_cases();

}  // namespace ringmain::explore
