// What can be seen of a topic from outside. Inspecting takes no slot, writes nothing and slows no process.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topic/roster.hpp"

namespace ringmain {

// Of a shared contract.
struct WorkCounts {
    uint64_t waiting = 0;                              // messages that no worker has taken
    std::vector<std::pair<uint32_t, uint64_t>> taken;  // by which slot, and how many
};

// Of a topic that keeps the last message of each kind.
struct KeptCounts {
    uint32_t max_kinds = 0, kinds = 0;
    uint64_t not_kept = 0;
};

// How far a reader is behind the newest message.
struct Lag {
    uint64_t messages = 0, bytes = 0;
};

struct Inspection {
    Contract contract{};
    uint64_t capacity_bytes = 0, epoch = 0;
    uint32_t slot_count = 0;
    bool persist = false, frames = false;
    std::string schema;
    uint64_t next_sequence = 0, position = 0;
    uint64_t used_bytes =
        0;              // of the ring; where the writer waits, only those that some reader has not finished
    uint32_t turn = 0;  // 0, or 1 + the slot of the writer whose turn it is
    std::vector<ParticipantInfo> participants;
    std::optional<WorkCounts> work;
    std::optional<KeptCounts> kept;

    // None of a worker: what it has not taken is for others, too.
    Lag lag_of(const ParticipantInfo& who) const;
    // The name of the participant that blocks a writer, or in words whom it waits for; empty: it does not wait.
    std::string blocker_of(const ParticipantInfo& who) const;
};

// Throws a Failure if there is no such topic, or it cannot be read.
Inspection inspect_topic(const std::shared_ptr<Directory>& directory, std::string_view topic);

// The names that the files of one kind in a directory belong to, in order.
std::vector<std::string> names_in(const Directory& directory, FileKind kind);

// Of a shared contract: no message below it is free or taken.
uint64_t first_unfinished(const TopicFile& s);

}  // namespace ringmain
