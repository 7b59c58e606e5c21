#include "topic/endpoint.hpp"
#include "topic/reaping.hpp"
#include "topic/removal.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace ringmain {

std::optional<Contract> contract_named(std::string_view name) {
    for (const ContractTraits& row : kContracts)
        if (name == row.name) return contract_of_row(row);
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

// A living participant of this role, or of any, if there is one.
std::optional<ParticipantInfo> living_participant(const TopicFile& topic_file, std::optional<Role> role) {
    for (uint32_t i : taken_slots(topic_file))
        if ((!role || slot_has_role(topic_file, i, *role)) && slot_alive(topic_file, i))
            return look_at(topic_file, i, true);
    return std::nullopt;
}

// Is this still the participant whose turn it is to write? Call with the roster lock.
bool still_writes(const TopicFile& topic_file, const Participation& writer) {
    uint32_t owner =
        turn_slot(topic_file.header().turn.load(std::memory_order_acquire), topic_file.slot_count);
    return topic_file.epoch == writer.epoch && owner == writer.slot && owner != kNoSlot &&
           slot_taken(topic_file, owner) &&
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

// Does this file still have the topic's name? A process may have died while it removed the topic: the writers are stopped
// or the file is marked, and the name is still there. No process could use such a file or create another, so we finish the
// removal, from its first step: a writer may still be in the middle of its last message, and its readers get that one, too.
bool current(TopicFile& topic_file, const RosterLock& lock) {
    if (!topic_file.has_its_name()) return false;
    bool stopped = turn_over(topic_file.header().turn.load(std::memory_order_acquire));
    if (!stopped && !topic_file.retired()) return true;
    remove(topic_file, lock);
    retire_dead_beside(topic_file);
    return false;
}

// An enrolled reader has not opened the file yet: if the file loses its name, what it has not read is lost to it.
std::optional<ParticipantInfo> enrolled_and_behind(const TopicFile& topic_file) {
    uint64_t commit = topic_file.header().commit.load(std::memory_order_acquire) & kPositionMask;
    for (uint32_t i : taken_slots(topic_file))
        if (slot_enrolled(topic_file, i) && slot_alive(topic_file, i))
            if (ParticipantInfo reader = look_at(topic_file, i, true);
                reader.hold != kNoHold && reader.hold < commit)
                return reader;
    return std::nullopt;
}

std::string octal(uint32_t mode) {
    char text[16];
    snprintf(text, sizeof text, "0%o", mode);
    return text;
}

bool fits(const WriterRequest& request, const TopicFile& topic_file) {
    return request.contract.value_or(topic_file.contract) == topic_file.contract &&
           round_capacity(request.capacity_bytes.value_or(topic_file.capacity_bytes)) ==
               topic_file.capacity_bytes &&
           request.mode.value_or(topic_file.mode) == topic_file.mode &&
           request.slot_count.value_or(topic_file.slot_count) == topic_file.slot_count &&
           request.kept_kinds.value_or(topic_file.kept_kinds) == topic_file.kept_kinds &&
           request.frames == topic_file.has_frames();
}

// Removes a topic that is not as requested, or says why it cannot.
void remove_for(const WriterRequest& request, TopicFile& topic_file, const RosterLock& lock) {
    bool same_roster = request.slot_count.value_or(topic_file.slot_count) == topic_file.slot_count;
    bool same_messages = request.frames == topic_file.has_frames();
    bool same_table = request.kept_kinds.value_or(topic_file.kept_kinds) == topic_file.kept_kinds;
    auto describe = [&](Contract contract, uint64_t capacity_bytes, uint32_t mode, uint32_t slot_count,
                        uint32_t kept_kinds, bool frames) {
        return std::string(traits(contract).name) + " of " + std::to_string(capacity_bytes) +
               " bytes, mode " + octal(mode) +
               (same_roster ? "" : ", max_participants " + std::to_string(slot_count)) +
               (same_table ? "" : ", keep_last_per_kind " + std::to_string(kept_kinds)) +
               (same_messages ? ""
                : frames      ? ", whose messages are descriptors of frames"
                              : ", whose messages are no frames");
    };
    std::string is =
        "topic '" + topic_file.topic + "' is a " +
        describe(topic_file.contract, topic_file.capacity_bytes, topic_file.mode, topic_file.slot_count,
                 topic_file.kept_kinds, topic_file.has_frames()) +
        "; requested was a " +
        describe(request.contract.value_or(topic_file.contract),
                 round_capacity(request.capacity_bytes.value_or(topic_file.capacity_bytes)),
                 request.mode.value_or(topic_file.mode), request.slot_count.value_or(topic_file.slot_count),
                 request.kept_kinds.value_or(topic_file.kept_kinds), request.frames);
    if (auto writer = living_participant(topic_file, Role::writer))
        throw Failure{Fault::mismatch, is + ", but " + writer->describe() + " is using it"};
    if (traits(topic_file.contract).keeps_unread && !disposable(topic_file))
        throw Failure{Fault::mismatch,
                      is + ", but it has unread messages; read them, or unlink it to discard them"};
    if (auto reader = enrolled_and_behind(topic_file))
        throw Failure{Fault::mismatch, is + ", but it has messages that " + reader->describe() +
                                           " has yet to receive; let it receive them, or unlink the topic "
                                           "(force=True) to discard them"};
    remove(topic_file, lock);
}

// ------------------------------------------------------------------------------- readers before the topic

// The file in which readers wait for the topic. nullptr: this process may neither open nor create it.
std::shared_ptr<TopicFile> waiting_file(const std::shared_ptr<Directory>& directory,
                                        const std::string& topic) {
    try {
        for (int attempt = 0; attempt < kAttempts; ++attempt) {
            try {
                if (auto found = find(directory, topic, Access::read, FileKind::waiting)) return found;
                auto made = TopicFile::create(directory, topic,
                                              {.contract = Contract::waiting, .mode = directory->mode()});
                if (made->give_name()) return made;
            } catch (const Failure& failure) {
                // It holds nothing but names. Those who wait in it join the topic once they find it.
                bool removed = failure.fault == Fault::corrupt &&
                               unlinkat(directory->fd(), file_name(topic, FileKind::waiting).c_str(), 0) == 0;
                if (!removed) throw;
            }
        }
    } catch (const Failure& failure) {
        if (failure.fault == Fault::not_allowed || failure.fault == Fault::corrupt) return nullptr;
        throw;
    }
    give_up(topic);
}

// Removes a waiting file in which no process waits, if what it was made for fails: no other may ever look for this topic.
class RetiresWaiting {
    TopicFile* waiting_;

  public:
    explicit RetiresWaiting(TopicFile& waiting) : waiting_(&waiting) {}
    ~RetiresWaiting() {
        if (!waiting_) return;
        try {
            RosterLock lock(*waiting_, RosterLock::kSlice_ns);
            retire_if_dead(*waiting_, lock);
        } catch (const Failure&) {
            // `clean` removes it.
        } catch (const std::exception&) {
            // The same: there is no memory.
        }
    }
    RetiresWaiting(const RetiresWaiting&) = delete;
    RetiresWaiting& operator=(const RetiresWaiting&) = delete;

    void done() { waiting_ = nullptr; }
};

// Becomes a reader of a topic that does not exist yet. nullptr: not allowed here, or too many wait already, so only its name
// can be waited for.
std::unique_ptr<Participant> wait_for_topic(const std::shared_ptr<Directory>& directory,
                                            const std::string& topic, const std::string& name,
                                            ObserveMode observe, int64_t patience_ns) {
    Role role = observe == ObserveMode::never ? Role::reader : Role::observer;  // see slot_to_enrol
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::shared_ptr<TopicFile> waiting = waiting_file(directory, topic);
        if (!waiting) return nullptr;
        RetiresWaiting retires(*waiting);
        RosterLock lock(*waiting, patience_ns);
        if (!current(*waiting, lock)) continue;
        try {
            auto participant = std::make_unique<Participant>(waiting, role, name, false, lock);
            retires.done();
            return participant;
        } catch (const Failure& failure) {
            if (failure.fault == Fault::roster_full) return nullptr;
            throw;
        }
    }
    give_up(topic);
}

// Gives a created topic its name. Under the waiting file's roster lock, so that a reader that waits is enrolled before, or
// finds the name afterwards. False: another process was faster.
bool enrol_and_give_name(TopicFile& topic_file) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::shared_ptr<TopicFile> waiting = waiting_file(topic_file.directory, topic_file.topic);
        if (!waiting) return topic_file.give_name();
        RetiresWaiting retires(*waiting);
        RosterLock lock(*waiting);
        if (!current(*waiting, lock)) continue;
        CRASH_POINT("enrol: waiting file locked");
        {
            RosterLock own(topic_file);
            enrol_waiting(topic_file, *waiting, own, lock);
        }
        CRASH_POINT("enrol: readers enrolled, topic without a name");
        bool named = topic_file.give_name();
        CRASH_POINT("enrol: topic named, waiting file kept");
        retire_if_dead(*waiting, lock);
        retires.done();
        return named;
    }
    give_up(topic_file.topic);
}

}  // namespace

std::unique_ptr<Participant> join_as_writer(const std::shared_ptr<Directory>& directory,
                                            const std::string& topic, const WriterRequest& request) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::shared_ptr<TopicFile> topic_file = find(directory, topic, Access::write);
        if (topic_file) {
            RosterLock lock(*topic_file, request.patience_ns);
            if (!current(*topic_file, lock)) continue;
            if (fits(request, *topic_file)) {
                bool silent = !living_participant(*topic_file, Role::writer);
                auto writer = join_existing(topic_file, request, lock);
                // The creator may have died before it said that there is this topic. Those that wait for it come now.
                if (silent) directory->ring();
                if (request.persist)  // relaxed: looked at under the roster lock
                    topic_file->header().flags.fetch_or(kPersist, std::memory_order_relaxed);
                return writer;
            }
            remove_for(request, *topic_file, lock);
        }
        topic_file = TopicFile::create(
            directory, topic,
            {request.contract.value_or(Contract::broadcast),
             request.capacity_bytes.value_or(kDefaultCapacityBytes), request.mode.value_or(kDefaultMode),
             request.persist, request.frames, request.schema, false,
             request.slot_count.value_or(kDefaultSlotCount), request.kept_kinds.value_or(0)});
        std::unique_ptr<Participant> participant;
        {
            RosterLock lock(*topic_file);
            participant = std::make_unique<Participant>(topic_file, Role::writer, request.name, false, lock);
        }
        if (enrol_and_give_name(*topic_file)) return participant;
    }
    give_up(topic);
}

std::unique_ptr<Participant> join_as_reader(const std::shared_ptr<Directory>& directory,
                                            const std::string& topic, const std::string& name,
                                            ObserveMode observe, FileKind kind, int64_t patience_ns) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::shared_ptr<TopicFile> topic_file = find(directory, topic, Access::read, kind);
        if (!topic_file) return nullptr;
        RosterLock lock(*topic_file, patience_ns);
        Role role = observes(observe, topic_file->contract) ? Role::observer : Role::reader;
        if (current(*topic_file, lock))
            return std::make_unique<Participant>(topic_file, role, name, false, lock);
    }
    give_up(topic);
}

std::unique_ptr<Participant> join_or_wait(const std::shared_ptr<Directory>& directory,
                                          const std::string& topic, const std::string& name,
                                          ObserveMode observe, std::unique_ptr<Participant>& waiting,
                                          int64_t patience_ns) {
    if (waiting && waiting->topic_file().forked) waiting.reset();  // the slot is the parent's
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::shared_ptr<TopicFile> topic_file = find(directory, topic, Access::read);
        if (!topic_file) {
            if (waiting || observe == ObserveMode::always) return nullptr;
            waiting = wait_for_topic(directory, topic, name, observe, patience_ns);
            if (!waiting) return nullptr;
            CRASH_POINT("wait: in the waiting file");
            continue;  // the topic may have got its name before we were in the list
        }
        std::unique_ptr<Participant> reader;
        {
            RosterLock lock(*topic_file, patience_ns);
            if (!current(*topic_file, lock)) continue;
            Role role = observes(observe, topic_file->contract) ? Role::observer : Role::reader;
            if (waiting) reader = Participant::take_enrolled(topic_file, *waiting, lock);
            if (!reader) reader = std::make_unique<Participant>(topic_file, role, name, false, lock);
        }
        waiting.reset();
        return reader;
    }
    give_up(topic);
}

void stop_waiting(std::unique_ptr<Participant>& waiting) {
    if (!waiting || waiting->topic_file().forked) {
        waiting.reset();
        return;
    }
    const TopicFile& s = waiting->topic_file();
    try {
        if (auto topic_file = find(s.directory, s.topic, Access::read)) {
            std::unique_ptr<Participant> enrolled;  // leaves after the lock is given back
            RosterLock lock(*topic_file);
            enrolled = Participant::take_enrolled(topic_file, *waiting, lock);
        }
    } catch (const Failure&) {
        // Once we have left the waiting file, the enrolled slot is reaped by the process that it blocks.
    } catch (const std::exception&) {
        // The same: there is no memory to leave with.
    }
    waiting.reset();
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
                  FileKind kind, int64_t patience_ns) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::shared_ptr<TopicFile> topic_file;
        try {
            topic_file = find(directory, topic, Access::write, kind);
        } catch (const Failure& failure) {
            unlink_corrupt(*directory, topic, failure, force, kind);
            return true;
        }
        if (!topic_file) return false;
        RosterLock lock(*topic_file, patience_ns);
        if (!current(*topic_file, lock)) continue;
        if (auto participant = force ? std::nullopt : living_participant(*topic_file, std::nullopt))
            throw Failure{Fault::busy, "topic '" + topic + "' is in use by " + participant->describe() +
                                           "; close it, or unlink with force=True to remove the topic"};
        remove(*topic_file, lock);
        retire_dead_beside(*topic_file);
        return true;
    }
    give_up(topic);
}

bool unlink_if_dead(const std::shared_ptr<Directory>& directory, const std::string& topic, FileKind kind) {
    std::shared_ptr<TopicFile> topic_file = find(directory, topic, Access::write, kind);
    if (!topic_file) return false;
    try {
        RosterLock lock(*topic_file, RosterLock::kSlice_ns);
        return current(*topic_file, lock) && retire_if_dead(*topic_file, lock);
    } catch (const Failure& failure) {
        if (failure.fault != Fault::roster_locked) throw;
        return false;
    }
}

bool finish_removal(TopicFile& topic_file) {
    auto over = [&] { return turn_over(topic_file.header().turn.load(std::memory_order_acquire)); };
    if (!over()) return false;
    try {
        // The process that removes it has this lock: it has finished, or died, when we get it.
        RosterLock lock(topic_file, RosterLock::kSlice_ns);
        if (!over()) return false;
        if (!topic_file.retired() || topic_file.has_its_name()) remove(topic_file, lock);
    } catch (const Failure& failure) {
        if (failure.fault != Fault::roster_locked) throw;  // it is still at it
    }
    return true;
}

}  // namespace ringmain
