#include "explore/checks.hpp"

#include <array>

#include "explore/actors.hpp"
#include "explore/model.hpp"
#include "format/layout.hpp"
#include "rule/work_queue.hpp"

namespace ringmain::explore {

namespace {

constexpr size_t kMaxMessages = 48;
struct Number {
    std::array<uint64_t, 4> sealed;  // by several writers, if some did not commit
    uint64_t delivered;
    int taken_by;  // 1 + the actor that has it
    bool worked, committed;
    uint64_t given_back;
};
std::array<Number, kMaxMessages> numbers;
uint64_t ghosts;  // hash of the above, updated with it
uint64_t last_claim, last_commit, last_tail;
bool stopped;

const Header& header() { return *reinterpret_cast<const Header*>(control()); }

}  // namespace

void ghost_reset() {
    numbers = {};
    ghosts = 0;
    last_claim = last_commit = last_tail = 0;
    stopped = false;
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

void note_committed(uint64_t seq) {
    require(!numbers[seq].committed, "two messages were given one number");
    ghosts += mix(seq, 74);
    numbers[seq].committed = true;
}

void note_stopped() {
    if (!stopped) ghosts += mix(75, 0);
    stopped = true;
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

void note_taken(uint64_t seq, int actor) {
    Number& number = numbers[seq];
    require(number.taken_by == 0 || life(number.taken_by - 1) == Life::dead,
            "a message was taken by two living workers");
    ghosts -= mix(mix(seq, 71), static_cast<uint64_t>(number.taken_by));
    number.taken_by = actor + 1;
    ghosts += mix(mix(seq, 71), static_cast<uint64_t>(number.taken_by));
}

void note_released(uint64_t seq) {
    ghosts -= mix(mix(seq, 71), static_cast<uint64_t>(numbers[seq].taken_by));
    numbers[seq].taken_by = 0;
    ghosts += mix(mix(seq, 71), 0);
}

void note_given_back(uint64_t seq, uint32_t returns_before) {
    Number& number = numbers[seq];
    require(returns_before >= number.given_back, "a message was given back, and that was not counted");
    require(returns_before <= number.given_back + static_cast<uint64_t>(deaths_so_far()),
            "a message counts as given back more often than it was");
    ghosts += mix(seq, 72);
    ++number.given_back;
}

void note_worked(uint64_t seq) {
    if (!numbers[seq].worked) ghosts += mix(seq, 73);
    numbers[seq].worked = true;
}

bool work_waits() {
    auto* slots = reinterpret_cast<const Slot*>(control() + kRosterOffset);
    uint64_t at = latest(&slots[kQueueSlot].hold, 8) & kPositionMask;
    uint64_t commit = latest(&header().commit, 8) & kPositionMask;
    while (at < commit) {
        uint64_t word = latest(data() + (at + 16) % topic.capacity_bytes, 8);
        if (TaskMark::of(word).owner == TaskMark::kFree) return true;
        at += footprint(static_cast<uint32_t>(word), static_cast<uint8_t>(word >> 32),
                        static_cast<uint8_t>(word >> 40));
    }
    return false;
}

void require_all_worked() {
    // Others may be about to finish what they have taken: the last of all actors checks.
    for (int i = 0; i < actor_count(); ++i)
        if (i != self() && life(i) != Life::done && life(i) != Life::dead) return;
    for (uint64_t seq = 0; seq < committed_number(); ++seq)
        require(numbers[seq].worked, "a message was lost: no worker got it, though one looked to the end");
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
    require(commit == last_commit || !stopped, "a message was sent after the writers were stopped");
    require(tail >= last_tail, "tail went back");
    require(tail <= commit && commit <= claim && claim <= tail + topic.capacity_bytes,
            "not tail <= commit <= claim <= tail + capacity");
    last_claim = claim;
    last_commit = commit;
    last_tail = tail;
}

}  // namespace ringmain::explore
