// How an endpoint comes to its topic: find it or create it, take a participant, and leave again. Owns this invariant: whoever
// has a participant has it in the file that has the topic's name, or had it when the participant was taken.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "reader.hpp"
#include "roster.hpp"
#include "writer.hpp"

namespace ringmain {

inline Ring ring_of(const TopicFile& s) {
    return {s.header(), &s.slot(0), s.data(), s.capacity_bytes, traits(s.contract)};
}

struct WriterRequest {
    std::optional<Contract> contract;        // as it is, or broadcast
    std::optional<uint64_t> capacity_bytes;  // as it is, or 1 MiB
    uint32_t mode = 0600;
    bool persist = false, takeover = false;
    std::string schema, name;
};

constexpr uint64_t kDefaultCapacityBytes = 1024 * 1024;

// Opens the topic to write, creating it if need be. A topic that is not as requested is replaced if nobody writes in it
// and nothing unread would go with it; otherwise that is a Failure.
std::unique_ptr<Participant> join_as_writer(const std::shared_ptr<Directory>& directory,
                                            const std::string& topic, const WriterRequest& request);

// Where to look on instead of being a reader: nowhere; where there can be only one, which is somebody else; everywhere.
enum class Observe { never, pipes, always };

constexpr bool observes(Observe where, Contract contract) {
    return where == Observe::always || (where == Observe::pipes && traits(contract).one_reader);
}

// Opens the topic to read; nullptr if there is none.
std::unique_ptr<Participant> join_as_reader(const std::shared_ptr<Directory>& directory,
                                            const std::string& topic, const std::string& name,
                                            Observe observe = Observe::never, FileKind kind = FileKind::ring);

// Takes the name away from a topic. Unless forced, only if nobody takes part in it. False: there is none.
bool unlink_topic(const std::shared_ptr<Directory>& directory, const std::string& topic, bool force,
                  FileKind kind = FileKind::ring);
// Likewise, only if everybody is dead and nothing speaks for keeping it.
bool unlink_if_dead(const std::shared_ptr<Directory>& directory, const std::string& topic,
                    FileKind kind = FileKind::ring);

// For a writer that finds the turn over: whoever removed the topic may have died before it was done. Does the rest; false
// if the topic is not being removed.
bool finish_removal(TopicFile& topic_file);

std::optional<Contract> contract_named(std::string_view name);

}  // namespace ringmain
