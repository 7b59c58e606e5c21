#include "endpoint.hpp"

#include <unistd.h>

#include <cerrno>

namespace ringmain {

std::optional<Contract> contract_named(std::string_view name) {
    for (uint32_t row = 0; row < kContractCount; ++row)
        if (auto contract = Contract{row + 1}; contract != Contract::frames && name == kContracts[row].name)
            return contract;
    return std::nullopt;
}

namespace {

// The file may lose its name between our opening and locking it: then we open the one that has the name now.
constexpr int kAttempts = 1000;

[[noreturn]] void give_up(const std::string& topic) {
    throw Failure{Fault::timed_out,
                  "topic '" + topic + "' was created and removed a thousand times while it was being opened"};
}

std::shared_ptr<TopicFile> find(const std::shared_ptr<Directory>& directory, const std::string& topic,
                                Access access, FileKind kind = FileKind::ring) {
    try {
        return TopicFile::open(directory, topic, access, kind);
    } catch (const Failure& failure) {
        if (failure.fault == Fault::not_found) return nullptr;
        throw;
    }
}

// Does this file still have the topic's name? Call with the roster lock. A process may have died while it removed the
// topic: the writers are stopped or the file is marked, and the name is still there. No process could use such a file or
// create another, so we finish the removal.
bool current(TopicFile& topic_file) {
    bool stopped = topic_file.header().turn.load(std::memory_order_acquire) == kTurnOver;
    if (!stopped && !topic_file.retired()) return topic_file.has_its_name();
    if (topic_file.has_its_name()) topic_file.retire();
    return false;
}

// A living participant of this role, or of any, if there is one.
std::optional<ParticipantInfo> living_participant(const TopicFile& topic_file, std::optional<Role> role) {
    for (uint32_t i : taken_slots(topic_file))
        if ((!role || slot_has_role(topic_file, i, *role)) && slot_alive(topic_file, i))
            return look_at(topic_file, i, true);
    return std::nullopt;
}

// Is this still the participant whose turn it is to write? Call with the roster lock.
bool still_writes(const TopicFile& topic_file, const Participation& writer) {
    uint32_t turn = topic_file.header().turn.load(std::memory_order_acquire) & ~kTurnSleeper;
    return topic_file.epoch == writer.epoch && turn == writer.slot + 1 && writer.slot < kSlotCount &&
           slot_taken(topic_file, writer.slot) &&
           topic_file.slot(writer.slot).generation.load(std::memory_order_relaxed) == writer.generation;
}

// Joins a topic that is as requested. Two children of one writer both inherit its publisher: the first to send takes over
// from it, and the second finds another writer, its sibling.
std::unique_ptr<Participant> join_existing(const std::shared_ptr<TopicFile>& topic_file,
                                           const WriterRequest& request, const RosterLock& lock) {
    bool takeover = request.takeover || (request.replaces && still_writes(*topic_file, *request.replaces));
    try {
        return std::make_unique<Participant>(topic_file, Role::writer, request.name, takeover, lock);
    } catch (Failure& failure) {
        if (failure.fault == Fault::busy && request.replaces && !takeover)
            failure.text +=
                ". The process that this publisher came from is not the topic's writer any more, so the "
                "publisher replaces no other";
        throw;
    }
}

void remove(TopicFile& topic_file, const RosterLock& lock) {
    stop_writers(topic_file, lock);
    CRASH_POINT("remove: writers stopped, not retired");
    topic_file.retire();
}

// Removes a topic that is not as requested, or says why it cannot.
void remove_for(const WriterRequest& request, TopicFile& topic_file, const RosterLock& lock) {
    std::string is =
        "topic '" + topic_file.topic + "' is a " + traits(topic_file.contract).name + " of " +
        std::to_string(topic_file.capacity_bytes) + " bytes; requested was a " +
        traits(request.contract.value_or(topic_file.contract)).name + " of " +
        std::to_string(round_capacity(request.capacity_bytes.value_or(topic_file.capacity_bytes))) + " bytes";
    if (auto writer = living_participant(topic_file, Role::writer))
        throw Failure{Fault::mismatch, is + ", but " + writer->describe() + " is using it"};
    if (traits(topic_file.contract).keeps_unread && !disposable(topic_file))
        throw Failure{Fault::mismatch,
                      is + ", but it has unread messages; read them, or unlink it to discard them"};
    remove(topic_file, lock);
}

}  // namespace

std::unique_ptr<Participant> join_as_writer(const std::shared_ptr<Directory>& directory,
                                            const std::string& topic, const WriterRequest& request) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::shared_ptr<TopicFile> topic_file = find(directory, topic, Access::write);
        if (topic_file) {
            RosterLock lock(*topic_file);
            if (!current(*topic_file)) continue;
            bool fits = request.contract.value_or(topic_file->contract) == topic_file->contract &&
                        round_capacity(request.capacity_bytes.value_or(topic_file->capacity_bytes)) ==
                            topic_file->capacity_bytes;
            if (fits) return join_existing(topic_file, request, lock);
            remove_for(request, *topic_file, lock);
        }
        topic_file = TopicFile::create(directory, topic,
                                       {request.contract.value_or(Contract::broadcast),
                                        request.capacity_bytes.value_or(kDefaultCapacityBytes), request.mode,
                                        request.persist, request.schema});
        std::unique_ptr<Participant> participant;
        {
            RosterLock lock(*topic_file);
            participant = std::make_unique<Participant>(topic_file, Role::writer, request.name, false, lock);
        }
        if (topic_file->give_name()) return participant;
    }
    give_up(topic);
}

std::unique_ptr<Participant> join_as_reader(const std::shared_ptr<Directory>& directory,
                                            const std::string& topic, const std::string& name,
                                            ObserveMode observe, FileKind kind) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::shared_ptr<TopicFile> topic_file = find(directory, topic, Access::read, kind);
        if (!topic_file) return nullptr;
        RosterLock lock(*topic_file);
        Role role = observes(observe, topic_file->contract) ? Role::observer : Role::reader;
        if (current(*topic_file)) return std::make_unique<Participant>(topic_file, role, name, false, lock);
    }
    give_up(topic);
}

// A file that is not a topic has no participants to check. That it belongs to a user we trust was checked.
static void unlink_corrupt(const Directory& directory, const std::string& topic, Failure failure, bool force,
                           FileKind kind) {
    if (failure.fault != Fault::corrupt) throw failure;
    if (!force) {
        failure.text += "; unlink it with force=True to remove it";
        throw failure;
    }
    if (unlinkat(directory.fd(), file_name(topic, kind).c_str(), 0) != 0)
        throw Failure{Fault::not_allowed, "cannot remove the file of topic '" + topic + "'", errno};
}

bool unlink_topic(const std::shared_ptr<Directory>& directory, const std::string& topic, bool force,
                  FileKind kind) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::shared_ptr<TopicFile> topic_file;
        try {
            topic_file = find(directory, topic, Access::write, kind);
        } catch (const Failure& failure) {
            unlink_corrupt(*directory, topic, failure, force, kind);
            return true;
        }
        if (!topic_file) return false;
        RosterLock lock(*topic_file);
        if (!current(*topic_file)) continue;
        if (auto participant = living_participant(*topic_file, std::nullopt); participant && !force)
            throw Failure{Fault::busy, "topic '" + topic + "' is in use by " + participant->describe() +
                                           "; close it, or unlink with force=True to remove the topic"};
        remove(*topic_file, lock);
        retire_dead_pool(*topic_file);
        return true;
    }
    give_up(topic);
}

bool unlink_if_dead(const std::shared_ptr<Directory>& directory, const std::string& topic, FileKind kind) {
    std::shared_ptr<TopicFile> topic_file = find(directory, topic, Access::write, kind);
    if (!topic_file) return false;
    RosterLock lock(*topic_file);
    return current(*topic_file) && retire_if_dead(*topic_file, lock);
}

bool finish_removal(TopicFile& topic_file) {
    if (topic_file.header().turn.load(std::memory_order_acquire) != kTurnOver) return false;
    RosterLock lock(
        topic_file);  // the process that removes it has this lock: it has finished, or died, when we get it
    if (topic_file.header().turn.load(std::memory_order_acquire) != kTurnOver) return false;
    if (!topic_file.retired() || topic_file.has_its_name()) topic_file.retire();
    return true;
}

}  // namespace ringmain
