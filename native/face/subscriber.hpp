// What a ringmain_subscriber is.
#pragma once

#include <ringmain/ringmain.h>

#include <memory>
#include <string>
#include <vector>

#include "waiting/blocking_reader.hpp"

namespace ringmain::face {

// A message that is in use in place. One that was kept needs nothing of the ring, but what it lies in.
struct Lease {
    uint64_t position;
    std::shared_ptr<const void> mapped;
    bool kept;
};

}  // namespace ringmain::face

struct ringmain_subscriber {
    ringmain::BlockingReader end;
    std::string schema;                           // of the struct that is received; empty: any bytes
    std::vector<ringmain::face::Lease> borrowed;  // beside `end.leases`
    std::vector<std::byte> buffer;                // of a caller that has none

    // Throws a Failure or a Refusal.
    ringmain_subscriber(const char* topic, const ringmain_subscriber_options& options);
    ~ringmain_subscriber();

    // Lets go of what is not needed any more. False: the slot is no longer ours.
    bool release();
    // Throws a Refusal if this life of the topic is not what was asked for.
    void check_joined() const;
};
