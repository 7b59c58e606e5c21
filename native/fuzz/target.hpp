// What is fuzzed: everything the core does with a topic's file, whatever the file says. See target.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringmain::fuzz {

void work_in(const char* path);  // an empty directory, to be called first

// Makes a file of the input and does with it all that there is to do. What it may end in is a Failure, or success;
// anything else (a signal, a sanitizer's report, a view outside the mapping, no end) is the finding.
void try_input(const uint8_t* bytes, size_t size);

}  // namespace ringmain::fuzz
