// The words that all of the C++ face uses. docs/glossary.md says what they mean.
#pragma once

#include <ringmain/ringmain.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace ringmain {

using Bytes = std::span<const std::byte>;

// What happens when a reader is slow.
enum class Contract : uint32_t {
    broadcast = RINGMAIN_BROADCAST,  // it is lapped, and told how many messages it lost
    pipe = RINGMAIN_PIPE,            // one reader; the writer waits
    bus = RINGMAIN_BUS,              // it is lapped, but what it borrows stays
    reliable = RINGMAIN_RELIABLE,    // the writers wait until every reader has read
    work = RINGMAIN_WORK,            // each message goes to one reader; the writers wait
};

// Where a subscriber begins.
enum class Start { next = RINGMAIN_NEXT, oldest = RINGMAIN_OLDEST, newest = RINGMAIN_NEWEST };

// Where it goes on after it was lapped.
enum class OnLap { next = RINGMAIN_NEXT, oldest = RINGMAIN_OLDEST };

// An observer reads, and no writer waits for it. `pipes`: only where it would take messages from another reader.
enum class Observe {
    never = RINGMAIN_OBSERVE_NEVER,
    pipes = RINGMAIN_OBSERVE_PIPES,
    always = RINGMAIN_OBSERVE_ALWAYS
};

// The topic that a publisher or subscriber is in.
struct Endpoint {
    Contract contract;
    uint64_t capacity;           // bytes in the ring
    uint64_t epoch;              // which life of the topic: when it was created, in ns
    uint64_t max_message_bytes;  // of a payload, without sender and kind; of a subscriber 0
    uint64_t next_sequence;
};

namespace detail {
inline Endpoint endpoint_of(const ringmain_endpoint& there) {
    return {static_cast<Contract>(there.contract), there.capacity, there.epoch, there.max_message_bytes,
            there.next_sequence};
}
}  // namespace detail

}  // namespace ringmain
