// The rules for what a caller may pass, and the sentences for the rest: those of src/ringmain/_names.py. A test compares them.
#pragma once

#include <ringmain/ringmain.h>

#include <cstring>
#include <string>
#include <string_view>

#include "topic/endpoint.hpp"

namespace ringmain::face {

// A text that a caller gave, or none.
inline std::string_view text(const char* given) { return given ? given : std::string_view(); }

// Options as this library knows them: what an older caller does not have is 0.
template <class Options>
Options options_of(const Options* given) {
    Options options = {};
    if (given) std::memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
    return options;
}

// Each throws a Refusal.
std::string checked_topic(const char* topic);
std::string checked_envelope(const char* what, std::string_view name);
void check_kind(std::string_view kind);
WriterRequest checked_request(const ringmain_publisher_options& options);
void check_min_readers(uint32_t count, uint32_t max_participants);

std::string runtime_directory(const char* given);
std::string participant_name(std::string_view name, std::string_view sender);

}  // namespace ringmain::face
