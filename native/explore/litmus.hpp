// Tests of the explorer itself. See litmus.cpp.
#pragma once

namespace ringmain::explore {

int run_litmus();  // how many were wrong

}  // namespace ringmain::explore
