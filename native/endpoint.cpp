#include "endpoint.hpp"

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

bool current(const Segment& segment) { return !segment.retired() && segment.has_its_name(); }

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
                                     const std::string& name, FileKind kind) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::shared_ptr<Segment> segment = find(directory, topic, Access::read, kind);
        if (!segment) return nullptr;
        RosterLock lock(*segment);
        if (current(*segment)) return std::make_unique<Seat>(segment, Role::reader, name, false, lock);
    }
    give_up(topic);
}

bool unlink_topic(const std::shared_ptr<Directory>& directory, const std::string& topic, bool force,
                  FileKind kind) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::shared_ptr<Segment> segment = find(directory, topic, Access::write, kind);
        if (!segment) return false;
        RosterLock lock(*segment);
        if (!current(*segment)) continue;
        if (auto member = anybody(*segment, std::nullopt); member && !force)
            throw Failure{Fault::busy, "topic '" + topic + "' is in use by " + member->describe() +
                                           "; close it, or unlink with force=True to take the topic away"};
        stop_writers(*segment, lock);
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

}  // namespace ringmain
