// What has become of requests that were sent: their client looks at the marks in the topic of requests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "topic/endpoint.hpp"

namespace ringmain {

enum class RequestState {
    free,      // no server has taken it
    taken,     // a living one has
    orphaned,  // one that has died has
    returned,  // one that had it died, or gave it back
    done,
};
const char* name_of(RequestState state);

RequestState request_state(const TopicFile& file, uint64_t number);

// Calls `lost` for each that a server died with, or gave back.
void for_each_lost(const TopicFile& file, const std::function<void(uint64_t number)>& lost);

// Takes those back that no server has taken; how many. Throws a Failure. It is a worker for that moment, since only what a
// worker holds is not overwritten meanwhile, but none that is counted or waits for messages.
long withdraw(const std::shared_ptr<Directory>& directory, const std::string& topic, uint64_t epoch,
              const std::vector<uint64_t>& numbers);

}  // namespace ringmain
