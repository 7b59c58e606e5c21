// What a participant says of its topic and of those that it waits for, in words.
#pragma once

#include <string>

#include "topic/endpoint.hpp"

namespace ringmain::face {

// The participants that have yet to send: "its writer ..." of a reader that has nothing to read.
std::string describe_writers(const TopicFile& file);

}  // namespace ringmain::face
