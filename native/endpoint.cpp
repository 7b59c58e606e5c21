#include "endpoint.hpp"

#include <unistd.h>

#include <cerrno>

namespace ringmain {

const char* contract_name(Contract contract) {
    switch (contract) {
        case Contract::broadcast:
            return "broadcast";
        case Contract::pipe:
            return "pipe";
        case Contract::bus:
            return "bus";
        case Contract::reliable:
            return "reliable";
        case Contract::frames:
            return "frames";
    }
    return "unknown";
}

std::optional<Contract> contract_named(std::string_view name) {
    for (Contract c : {Contract::broadcast, Contract::pipe, Contract::bus, Contract::reliable})
        if (name == contract_name(c)) return c;
    return std::nullopt;
}

namespace {

// The file may lose its name between our opening and locking it: then it is another that we want.
constexpr int kAttempts = 1000;

[[noreturn]] void give_up(const std::string& topic) {
    throw Failure{Fault::timed_out,
                  "topic '" + topic + "' came and went a thousand times while it was being opened"};
}

std::shared_ptr<Segment> find(const std::shared_ptr<Directory>& directory, const std::string& topic,
                              Access access, FileKind kind = FileKind::ring) {
    try {
        return Segment::open(directory, topic, access, kind);
    } catch (const Failure& failure) {
        if (failure.fault == Fault::not_found) return nullptr;
        throw;
    }
}

// Is this the topic of its name, for whoever has its roster lock? Somebody may have died while it removed it: the
// writers are stopped, or it is marked, and the name is still there. Then nobody could ever use it or get past it, so we
// finish what was begun.
bool current(Segment& segment) {
    bool stopped = segment.header().turn.load(std::memory_order_acquire) == kTurnOver;
    if (!stopped && !segment.retired()) return segment.has_its_name();
    if (segment.has_its_name()) segment.retire();
    return false;
}

// Which living participant of this role is there, if any?
std::optional<Member> anybody(const Segment& segment, std::optional<Role> role) {
    uint32_t used = std::min(segment.header().slots_used.load(std::memory_order_acquire), kSlotCount);
    for (uint32_t i = 0; i < used; ++i) {
        if (!slot_taken(segment, i) || !slot_alive(segment, i)) continue;
        Member member = look_at(segment, i, true);
        if (!role || member.role == *role) return member;
    }
    return std::nullopt;
}

// The topic is not as requested: make way for one that is, or say why not.
void replace(Segment& segment, const WriterRequest& request, const RosterLock& lock) {
    std::string is = "topic '" + segment.topic + "' is a " + contract_name(segment.contract) + " of " +
                     std::to_string(segment.capacity_bytes) + " bytes; asked for was a " +
                     contract_name(request.contract.value_or(segment.contract)) + " of " +
                     std::to_string(round_capacity(request.capacity_bytes.value_or(segment.capacity_bytes))) +
                     " bytes";
    if (auto writer = anybody(segment, Role::writer))
        throw Failure{Fault::mismatch, is + ", but " + writer->describe() + " uses it as it is"};
    if (segment.contract == Contract::pipe && !disposable(segment))
        throw Failure{Fault::mismatch,
                      is + ", but it has unread messages; read them, or unlink it to throw them away"};
    stop_writers(segment, lock);
    CRASH_POINT("remove: writers stopped, not retired");
    segment.retire();
}

}  // namespace

std::unique_ptr<Seat> join_as_writer(const std::shared_ptr<Directory>& directory, const std::string& topic,
                                     const WriterRequest& request) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::shared_ptr<Segment> segment = find(directory, topic, Access::write);
        if (segment) {
            RosterLock lock(*segment);
            if (!current(*segment)) continue;
            bool fits = request.contract.value_or(segment->contract) == segment->contract &&
                        round_capacity(request.capacity_bytes.value_or(segment->capacity_bytes)) ==
                            segment->capacity_bytes;
            if (fits)
                return std::make_unique<Seat>(segment, Role::writer, request.name, request.takeover, lock);
            replace(*segment, request, lock);
        }
        segment = Segment::create(directory, topic,
                                  {request.contract.value_or(Contract::broadcast),
                                   request.capacity_bytes.value_or(kDefaultCapacityBytes), request.mode,
                                   request.persist, request.schema});
        std::unique_ptr<Seat> seat;
        {
            RosterLock lock(*segment);
            seat = std::make_unique<Seat>(segment, Role::writer, request.name, false, lock);
        }
        if (segment->give_name()) return seat;
    }
    give_up(topic);
}

std::unique_ptr<Seat> join_as_reader(const std::shared_ptr<Directory>& directory, const std::string& topic,
                                     const std::string& name, Observe observe, FileKind kind) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::shared_ptr<Segment> segment = find(directory, topic, Access::read, kind);
        if (!segment) return nullptr;
        RosterLock lock(*segment);
        Role role = observes(observe, segment->contract) ? Role::observer : Role::reader;
        if (current(*segment)) return std::make_unique<Seat>(segment, role, name, false, lock);
    }
    give_up(topic);
}

// A file that is no topic has no participants to ask; it was checked that it belongs to somebody we trust.
static void unlink_corrupt(const Directory& directory, const std::string& topic, Failure failure, bool force,
                           FileKind kind) {
    if (failure.fault != Fault::corrupt) throw failure;
    if (!force) {
        failure.text += "; unlink it with force=True to take it away";
        throw failure;
    }
    if (unlinkat(directory.fd(), file_name(topic, kind).c_str(), 0) != 0)
        throw Failure{Fault::not_allowed, "cannot take the file of topic '" + topic + "' away", errno};
}

bool unlink_topic(const std::shared_ptr<Directory>& directory, const std::string& topic, bool force,
                  FileKind kind) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::shared_ptr<Segment> segment;
        try {
            segment = find(directory, topic, Access::write, kind);
        } catch (const Failure& failure) {
            unlink_corrupt(*directory, topic, failure, force, kind);
            return true;
        }
        if (!segment) return false;
        RosterLock lock(*segment);
        if (!current(*segment)) continue;
        if (auto member = anybody(*segment, std::nullopt); member && !force)
            throw Failure{Fault::busy, "topic '" + topic + "' is in use by " + member->describe() +
                                           "; close it, or unlink with force=True to take the topic away"};
        stop_writers(*segment, lock);
        CRASH_POINT("remove: writers stopped, not retired");
        segment->retire();
        retire_dead_pool(*segment);
        return true;
    }
    give_up(topic);
}

bool unlink_if_dead(const std::shared_ptr<Directory>& directory, const std::string& topic, FileKind kind) {
    std::shared_ptr<Segment> segment = find(directory, topic, Access::write, kind);
    if (!segment) return false;
    RosterLock lock(*segment);
    if (!current(*segment) || !disposable(*segment) || reap_all(*segment, lock) != 0) return false;
    segment->retire();
    retire_dead_pool(*segment);
    return true;
}

bool finish_removal(Segment& segment) {
    if (segment.header().turn.load(std::memory_order_acquire) != kTurnOver) return false;
    RosterLock lock(segment);  // whoever removes it has this; if it lives, it has finished once we get it
    if (segment.header().turn.load(std::memory_order_acquire) != kTurnOver) return false;
    if (!segment.retired() || segment.has_its_name()) segment.retire();
    return true;
}

}  // namespace ringmain
