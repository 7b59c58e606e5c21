// What a writer asks of its topic: to be let in, how large a message may be, and whether all has been read.
#pragma once

#include <memory>
#include <string>

#include "topic/endpoint.hpp"

namespace ringmain {

// join_as_writer() in the directory of this path, which is made if there is none, and may be removed and made again meanwhile:
// `directory` is the one that it is in.
std::unique_ptr<Participant> join_as_writer_in(const std::string& path, std::shared_ptr<Directory>& directory,
                                               const std::string& topic, const WriterRequest& request);

// The largest payload, without sender and kind.
uint64_t largest_payload(const TopicFile& file);
// The capacity that a topic of this kind needs for a message.
uint64_t capacity_for(const TopicFile& file, uint64_t size, uint64_t envelope_bytes);

// Have all readers read what was sent, and given back what they borrowed of it?
bool all_read(const TopicFile& file);

}  // namespace ringmain
