#include "explore/checks.hpp"

#include <array>

#include "explore/actors.hpp"
#include "explore/model.hpp"
#include "format/layout.hpp"
#include "rule/work_queue.hpp"

namespace ringmain::explore {

namespace {

constexpr size_t kMaxMessages = 48;  // of a file
struct Number {
    std::array<uint64_t, 4> sealed;  // by several writers, if some did not commit
    uint64_t delivered;
    int taken_by;  // 1 + the actor that has it
    bool worked, committed;
    uint64_t given_back;
};
struct FileGhost {
    std::array<Number, kMaxMessages> numbers;
    uint64_t last_claim, last_commit, last_tail;
    bool stopped;
};
FileGhost files[kFiles];
uint64_t ghosts;  // hash of the above, updated with it

Number& of(Numbered message) { return files[message.file].numbers[message.seq]; }
uint64_t key(Numbered message) { return message.seq + static_cast<uint64_t>(message.file) * kMaxMessages; }

const Header& header(int file) { return *reinterpret_cast<const Header*>(control(file)); }

}  // namespace

void ghost_reset() {
    for (FileGhost& file : files) file = {};
    ghosts = 0;
}

uint64_t ghost_hash() { return ghosts; }

void note_sealed(Numbered message, uint64_t id) {
    require(message.seq < kMaxMessages, "a number that was never given");
    for (uint64_t& sealed : of(message).sealed)
        if (sealed == 0 || sealed == id) {
            if (sealed == 0) ghosts += mix(key(message), id);
            sealed = id;
            return;
        }
    give_up("the case writes one number too often");
}

void note_dropped(Numbered message, uint64_t id) {
    for (uint64_t& sealed : of(message).sealed)
        if (sealed == id) {
            sealed = 0;
            ghosts -= mix(key(message), id);
        }
}

void note_committed(Numbered message) {
    require(!of(message).committed, "two messages were given one number");
    ghosts += mix(key(message), 74);
    of(message).committed = true;
}

void note_stopped(int file) {
    if (!files[file].stopped) ghosts += mix(75, static_cast<uint64_t>(file));
    files[file].stopped = true;
}

void note_delivered(Numbered message, uint64_t id) {
    require(message.seq < kMaxMessages, "torn: a number that was never given");
    Number& number = of(message);
    bool known = false;
    for (uint64_t sealed : number.sealed) known |= sealed == id;
    require(known, "torn: the number of one message, the bytes of another");
    require(number.delivered == 0 || number.delivered == id,
            "two readers got different messages of one number");
    if (number.delivered == 0) ghosts += mix(~key(message), id);
    number.delivered = id;
}

static void now_taken_by(Numbered message, int actor) {
    int& by = of(message).taken_by;
    ghosts -= mix(mix(key(message), 71), static_cast<uint64_t>(by));
    by = actor;
    ghosts += mix(mix(key(message), 71), static_cast<uint64_t>(by));
}

void note_taken(Numbered message, int actor) {
    int before = of(message).taken_by;
    require(before == 0 || life(before - 1) == Life::dead, "a message was taken by two living workers");
    now_taken_by(message, actor + 1);
}

void note_released(Numbered message) { now_taken_by(message, 0); }

void note_given_back(Numbered message, uint32_t returns_before) {
    Number& number = of(message);
    require(returns_before >= number.given_back, "a message was given back, and that was not counted");
    require(returns_before <= number.given_back + static_cast<uint64_t>(deaths_so_far()),
            "a message counts as given back more often than it was");
    ghosts += mix(key(message), 72);
    ++number.given_back;
}

void note_worked(Numbered message) {
    if (!of(message).worked) ghosts += mix(key(message), 73);
    of(message).worked = true;
}

bool work_waits(int file) {
    auto* slots = reinterpret_cast<const Slot*>(control(file) + kRosterOffset);
    uint64_t at = latest(&slots[kQueueSlot].hold, 8) & kPositionMask;
    uint64_t commit = latest(&header(file).commit, 8) & kPositionMask;
    while (at < commit) {
        uint64_t word = latest(data(file) + (at + 16) % topic.capacity_bytes, 8);
        if (TaskMark::of(word).owner == TaskMark::kFree) return true;
        at += footprint(static_cast<uint32_t>(word), static_cast<uint8_t>(word >> 32),
                        static_cast<uint8_t>(word >> 40));
    }
    return false;
}

void require_all_worked(int file) {
    // Others may be about to finish what they have taken: the last of all actors checks.
    for (int i = 0; i < actor_count(); ++i)
        if (i != self() && life(i) != Life::done && life(i) != Life::dead) return;
    for (uint64_t seq = 0; seq < committed_number(file); ++seq)
        require(of({file, seq}).worked, "a message was lost: no worker got it, though one looked to the end");
}

uint64_t committed_number(int file) {
    uint64_t commit = latest(&header(file).commit, 8) & kPositionMask;
    return latest(data(file) + commit % topic.capacity_bytes, 8);
}

void check_words(int file) {
    FileGhost& ghost = files[file];
    uint64_t claim = latest(&header(file).claim, 8), tail = latest(&header(file).tail, 8);
    uint64_t commit = latest(&header(file).commit, 8) & kPositionMask;
    require(claim >= ghost.last_claim, "claim went back");
    require(commit >= ghost.last_commit, "commit went back");
    require(commit == ghost.last_commit || !ghost.stopped,
            "a message was sent after the writers were stopped");
    require(tail >= ghost.last_tail, "tail went back");
    require(tail <= commit && commit <= claim && claim <= tail + topic.capacity_bytes,
            "not tail <= commit <= claim <= tail + capacity");
    ghost.last_claim = claim;
    ghost.last_commit = commit;
    ghost.last_tail = tail;
}

}  // namespace ringmain::explore
