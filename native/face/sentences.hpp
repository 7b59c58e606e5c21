// What a participant says of its topic and of those that it waits for, in words.
#pragma once

#include <string>

#include "topic/endpoint.hpp"

namespace ringmain::face {

// The participants that have yet to send: "its writer ..." of a reader that has nothing to read.
std::string describe_writers(const TopicFile& file);

// The largest payload of a topic, without sender and kind.
uint64_t largest_of(const TopicFile& file);
// What capacity a message needs.
uint64_t capacity_for(const TopicFile& file, uint64_t size, uint64_t envelope_bytes);

// Have all readers of a topic read what was sent?
bool all_read(const TopicFile& file);

}  // namespace ringmain::face
