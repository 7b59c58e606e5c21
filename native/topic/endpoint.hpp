// How an endpoint opens its topic: find or create the file, join it, and remove it. Owns this invariant: a participant
// joins the file that has the topic's name at that moment.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rule/reader.hpp"
#include "rule/ring.hpp"
#include "topic/participant.hpp"

namespace ringmain {

inline Ring ring_of(const TopicFile& s) {
    return {s.header(),   &s.slot(0), s.data(),     s.capacity_bytes,  traits(s.contract),
            s.slot_count, s.kept(),   s.kept_kinds, s.kept_entry_bytes};
}

// One joining of one slot: of no later owner of the slot, and of no other life of the topic.
struct Participation {
    uint64_t epoch = 0;
    uint32_t slot = 0;
    uint64_t generation = 0;
};

struct WriterRequest {
    std::optional<Contract> contract;        // none: as it is, or broadcast
    std::optional<uint64_t> capacity_bytes;  // none: as it is, or 1 MiB
    std::optional<uint32_t> mode;            // none: as it is, or 0600
    std::optional<uint32_t> slot_count;      // none: as it is, or kDefaultSlotCount
    std::optional<uint32_t> kept_kinds;      // none: as it is, or 0
    bool persist = false, takeover = false;
    bool frames = false;  // its messages are descriptors of frames
    // For a publisher that was inherited through fork or passed on: takes over from this writer, and from no other.
    std::optional<Participation> replaces;
    std::string schema, name;
    int64_t patience_ns = RosterLock::kPatience_ns;  // for the topic's roster lock
};

constexpr uint64_t kDefaultCapacityBytes = 1024 * 1024;
constexpr uint32_t kDefaultMode = 0600;

// Opens the topic to write, creating it if there is none; the readers that wait for it are enrolled first. A topic that is
// not as requested is replaced if it has no writer and no unread messages would be lost; otherwise this throws a Failure.
// `persist` may be requested of an existing topic, too.
std::unique_ptr<Participant> join_as_writer(const std::shared_ptr<Directory>& directory,
                                            const std::string& topic, const WriterRequest& request);

// When to join as an observer instead of as a reader: never; where another reader would miss what we get, on pipes and
// shared contracts; always.
enum class ObserveMode { never, pipes, always };

constexpr bool observes(ObserveMode mode, Contract contract) {
    return mode == ObserveMode::always || (mode == ObserveMode::pipes && traits(contract).takes_away());
}

// Opens the topic to read. If there is none, returns nullptr and makes the process a reader that waits for it: in `waiting`
// it takes part in the waiting file until the topic is opened. Observers do not take part, and `waiting` stays empty;
// likewise where the process may not open or create the waiting file.
std::unique_ptr<Participant> join_or_wait(const std::shared_ptr<Directory>& directory,
                                          const std::string& topic, const std::string& name,
                                          ObserveMode observe, std::unique_ptr<Participant>& waiting,
                                          int64_t patience_ns = RosterLock::kPatience_ns);
// Gives up waiting, and the slot in the topic if one was enrolled meanwhile.
void stop_waiting(std::unique_ptr<Participant>& waiting);

// Opens the topic to read; nullptr if there is none.
std::unique_ptr<Participant> join_as_reader(const std::shared_ptr<Directory>& directory,
                                            const std::string& topic, const std::string& name,
                                            ObserveMode observe = ObserveMode::never,
                                            FileKind kind = FileKind::ring,
                                            int64_t patience_ns = RosterLock::kPatience_ns);

// Removes a topic. Unless forced, only if it has no living participants. False: there is none.
bool unlink_topic(const std::shared_ptr<Directory>& directory, const std::string& topic, bool force,
                  FileKind kind = FileKind::ring, int64_t patience_ns = RosterLock::kPatience_ns);
// Removes a topic if it has no living participants and is disposable. True if it did. One whose roster stays locked is alive.
bool unlink_if_dead(const std::shared_ptr<Directory>& directory, const std::string& topic,
                    FileKind kind = FileKind::ring);

// For a writer that finds the turn over: the process that removed the topic may have died before it was done. Finishes
// the removal; false if the topic is not being removed. Does not wait for a process that has stopped while it removes it.
bool finish_removal(TopicFile& topic_file);

std::optional<Contract> contract_named(std::string_view name);

}  // namespace ringmain
