// What a ringmain_subscriber is.
#pragma once

#include <ringmain/ringmain.h>

#include <memory>
#include <string>
#include <vector>

#include "frames/frame_ends.hpp"
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
    ringmain::FrameReader frames;                 // where its messages are descriptors of frames

    // Throws a Failure or a Refusal.
    ringmain_subscriber(const char* topic, const ringmain_subscriber_options& options);
    ~ringmain_subscriber();

    // Lets go of what is not needed any more. False: the slot is no longer ours.
    bool release();
    // It has joined a life of the topic. Throws a Refusal if this is not what was asked for.
    void joined();
};

namespace ringmain::face {

// What a call that receives does, of messages and of frames. Is it ours, and not a parent's?
ringmain_status check_ours(const ringmain_subscriber& s);
// The next message, not yet taken. Throws a Failure or a Refusal.
Outcome find_next(ringmain_subscriber& s, const ringmain_wait* wait, Deadline& deadline, View& view,
                  bool borrowing);
// What that gave, if it is not `ready`.
ringmain_status refused(const ringmain_subscriber& s, Outcome how, const Deadline& deadline);
ringmain_status lost_slot(const ringmain_subscriber& s);

}  // namespace ringmain::face
