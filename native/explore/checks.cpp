#include "checks.hpp"

#include <array>

#include "actors.hpp"
#include "layout.hpp"
#include "model.hpp"

namespace ringmain::explore {

namespace {

constexpr size_t kMaxMessages = 48;
struct Number {
    std::array<uint64_t, 4> sealed;  // by several writers, if some did not commit
    uint64_t delivered;
};
std::array<Number, kMaxMessages> numbers;
uint64_t ghosts;  // hash of the above, updated with it
uint64_t last_claim, last_commit, last_tail;

const Header& header() { return *reinterpret_cast<const Header*>(control()); }

}  // namespace

void ghost_reset() {
    numbers = {};
    ghosts = 0;
    last_claim = last_commit = last_tail = 0;
}

uint64_t ghost_hash() { return ghosts; }

void note_sealed(uint64_t seq, uint64_t id) {
    require(seq < kMaxMessages, "a number that was never given");
    for (uint64_t& sealed : numbers[seq].sealed)
        if (sealed == 0 || sealed == id) {
            if (sealed == 0) ghosts += mix(seq, id);
            sealed = id;
            return;
        }
    give_up("the case writes one number too often");
}

void note_dropped(uint64_t seq, uint64_t id) {
    for (uint64_t& sealed : numbers[seq].sealed)
        if (sealed == id) {
            sealed = 0;
            ghosts -= mix(seq, id);
        }
}

void note_delivered(uint64_t seq, uint64_t id) {
    require(seq < kMaxMessages, "torn: a number that was never given");
    bool known = false;
    for (uint64_t sealed : numbers[seq].sealed) known |= sealed == id;
    require(known, "torn: the number of one message, the bytes of another");
    require(numbers[seq].delivered == 0 || numbers[seq].delivered == id,
            "two readers got different messages of one number");
    if (numbers[seq].delivered == 0) ghosts += mix(~seq, id);
    numbers[seq].delivered = id;
}

uint64_t committed_number() {
    uint64_t commit = latest(&header().commit, 8) & kPositionMask;
    return latest(data() + commit % topic.capacity_bytes, 8);
}

void check_words() {
    uint64_t claim = latest(&header().claim, 8), tail = latest(&header().tail, 8);
    uint64_t commit = latest(&header().commit, 8) & kPositionMask;
    require(claim >= last_claim, "claim went back");
    require(commit >= last_commit, "commit went back");
    require(tail >= last_tail, "tail went back");
    require(tail <= commit && commit <= claim && claim <= tail + topic.capacity_bytes,
            "not tail <= commit <= claim <= tail + capacity");
    last_claim = claim;
    last_commit = commit;
    last_tail = tail;
}

}  // namespace ringmain::explore
