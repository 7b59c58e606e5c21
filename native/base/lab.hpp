// Where a new topic's positions begin: 0, unless the lab tests positions that take a century to reach. See lab.cpp.
#pragma once

#include <cstdint>

namespace ringmain::lab {

#if defined(RINGMAIN_LAB)
uint64_t origin();
#else
constexpr uint64_t origin() { return 0; }
#endif

}  // namespace ringmain::lab
