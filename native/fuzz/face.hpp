// The same inputs through the C face: what a program of C++ meets that opens such a file.
#pragma once

#include <functional>

namespace ringmain::fuzz {

// `lie` is the malicious peer's turn, between the calls.
void read_by_face(const char* directory, unsigned how, const std::function<void()>& lie);
void write_by_face(const char* directory, unsigned how, const std::function<void()>& lie);

}  // namespace ringmain::fuzz
