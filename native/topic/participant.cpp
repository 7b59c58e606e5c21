#include "topic/participant.hpp"

#include <unistd.h>

#include "topic/process.hpp"
#include "topic/reaping.hpp"
#include "topic/removal.hpp"

namespace ringmain {

using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

// For errors: a notebook or a test that opens a topic twice looks for another process in vain.
static std::string in_this_process(const ParticipantInfo& participant) {
    const ProcessIdentity& us = this_process();
    bool same = participant.pid == us.pid && participant.pid_namespace == us.pid_namespace;
    return same ? ", in this very process" : "";
}

uint32_t Participant::find_slot(Role role, const RosterLock& lock) const {
    const TopicFile& s = *topic_file_;
    bool one_reader = traits(s.contract).one_reader;
    bool only_reader = one_reader && role == Role::reader;
    bool shared = traits(s.contract).shared;
    uint32_t first = shared ? kQueueSlot + 1 : one_reader && !only_reader ? kOnlyReaderSlot + 1 : 0;
    uint32_t end = only_reader ? kOnlyReaderSlot + 1 : s.slot_count;
    if (shared && role == Role::reader) end = std::min(end, kMaxWorkers);
    uint32_t found = end;
    // Each question to the kernel takes as long as there are participants. So a newcomer to a large roster asks about some of
    // them, and about all only if it finds no free slot.
    for (uint32_t questions : {kDefaultSlotCount, kMaxSlotCount})
        for (uint32_t i = first; i < end && found == end; ++i) {
            if (slot_taken(s, i) && questions != 0) --questions, reap_if_dead(s, i, lock);
            if (!slot_taken(s, i) && topic_file_->lock_slot(i)) found = i;
        }
    if (found == end && only_reader) {
        ParticipantInfo reader = look_at(s, kOnlyReaderSlot, true);
        throw Failure{Fault::busy, "topic '" + s.topic + "' is a " + traits(s.contract).name +
                                       " and has its one reader: " + reader.describe() +
                                       in_this_process(reader) +
                                       "; close that one first, also if it was inherited through a fork"};
    }
    if (found == end)
        throw Failure{Fault::roster_full, "topic '" + s.topic + "' has all of its " +
                                              std::to_string(s.slot_count) +
                                              " slots taken by living participants; close some of them, or "
                                              "create it with a larger max_participants (up to " +
                                              std::to_string(kMaxSlotCount) + ")"};
    return found;
}

static void write_name(Slot& slot, std::string_view name) {
    char padded[sizeof slot.name] = {};
    name.copy(padded, kMaxParticipantNameBytes);
    copy_in(reinterpret_cast<std::byte*>(slot.name), padded, sizeof padded);
}

// What a new participant's slot says, before it is taken. The slot's generation counts on.
static void write_identity(const TopicFile& s, uint32_t index, const ParticipantInfo& who) {
    Slot& slot = s.slot(index);
    slot.generation.store(slot.generation.load(memory_order_relaxed) + 1, memory_order_relaxed);
    slot.role.store(static_cast<uint32_t>(who.role), memory_order_relaxed);
    slot.pid.store(who.pid, memory_order_relaxed);
    slot.pid_namespace.store(who.pid_namespace, memory_order_relaxed);
    slot.started_ticks.store(who.started_ticks, memory_order_relaxed);
    slot.uid.store(who.uid, memory_order_relaxed);
    slot.joined_ns.store(who.joined_ns, memory_order_relaxed);
    for (auto* word :
         {&slot.position, &slot.sequence, &slot.messages, &slot.bytes, &slot.lost, &slot.blocked_ns})
        word->store(0, memory_order_relaxed);
    slot.waits_for.store(0, memory_order_relaxed);
    slot.taken_from.store(kNoHold, memory_order_relaxed);
    for (auto* word : {&slot.taken_until, &slot.taken_ns, &slot.redelivered})
        word->store(0, memory_order_relaxed);
    write_name(slot, who.name);
    // A free slot holds nothing and does not have the turn, but a process may have written where it must not.
    if ((slot.hold.load(memory_order_acquire) & kPositionMask) != kNoHold) drop_hold(s, index);
    free_turn(s, index);
}

// release: a writer that sees this slot also sees its hold. Pairs with the acquire in Writer::look_at_holds.
static void occupy(const TopicFile& s, uint32_t index, SlotState state) {
    Word<uint32_t>& used = s.header().slots_used;
    if (used.load(memory_order_relaxed) < index + 1) used.store(index + 1, memory_order_release);
    s.slot(index).state.store(static_cast<uint32_t>(state), memory_order_release);
}

// Those that sleep watch for the deaths of the writers that they know (death_watch.hpp): now they list this one, too.
static void wake_readers(const TopicFile& s) {
    ring(s.header().bell);
    if (traits(s.contract).shared) work_of(s).wake_all_workers();
}

static ParticipantInfo describe_us(Role role, std::string_view name) {
    const ProcessIdentity& process = this_process();
    ParticipantInfo who;
    who.role = role;
    who.pid = process.pid;
    who.pid_namespace = process.pid_namespace;
    who.started_ticks = process.started_ticks;
    who.uid = static_cast<uint32_t>(geteuid());
    who.joined_ns = static_cast<uint64_t>(wall_ns());
    who.name = name;
    return who;
}

Participant::Participant(std::shared_ptr<TopicFile> topic_file, Role role, std::string_view name,
                         bool takeover, const RosterLock& lock)
    : topic_file_(std::move(topic_file)) {
    TopicFile& s = *topic_file_;
    CRASH_POINT("join: roster locked");
    slot_ = find_slot(role, lock);
    CRASH_POINT("join: locked, not in the roster");
    write_identity(s, slot_, describe_us(role, name));
    generation_ = own().generation.load(memory_order_relaxed);
    own().busy.store(role != Role::writer, memory_order_relaxed);  // until Reader::attach
    occupy(s, slot_, SlotState::taken);
    CRASH_POINT("join: in the roster");
    if (role == Role::writer && traits(s.contract).one_writer) {
        try {
            take_turn(takeover);
        } catch (...) {
            own().state.store(static_cast<uint32_t>(SlotState::free), memory_order_release);
            s.unlock_slot(slot_);
            throw;
        }
    }
    s.own_slot = slot_;
    CRASH_POINT("join: complete, not announced");
    ring_membership(s);
    if (role == Role::writer) wake_readers(s);
}

// ------------------------------------------------------------------------------------- readers that wait

// The slot for a reader that waits; kNoSlot: none. In a waiting file the role `observer` says: reads, but observes
// where another reader would miss what it gets.
static uint32_t slot_to_enrol(const TopicFile& topic_file, Role role) {
    bool one_reader = traits(topic_file.contract).one_reader;
    if (traits(topic_file.contract).takes_away() && role != Role::reader) return kNoSlot;
    bool shared = traits(topic_file.contract).shared;
    uint32_t end = one_reader ? kOnlyReaderSlot + 1 : topic_file.slot_count;
    if (shared) end = std::min(end, kMaxWorkers);
    for (uint32_t i = shared ? kQueueSlot + 1 : 0; i < end; ++i)
        if (!slot_taken(topic_file, i)) return i;
    return kNoSlot;
}

void enrol_waiting(const TopicFile& topic_file, const TopicFile& waiting, const RosterLock&,
                   const RosterLock&) {
    uint64_t origin = topic_file.header().commit.load(memory_order_relaxed);
    for (uint32_t i : taken_slots(waiting)) {
        if (!slot_alive(waiting, i)) continue;
        ParticipantInfo who = look_at(waiting, i, true);
        uint32_t index = slot_to_enrol(topic_file, who.role);
        if (index == kNoSlot) continue;  // it joins as any other, once the topic has its name
        who.role = Role::reader;
        write_identity(topic_file, index, who);
        Slot& slot = topic_file.slot(index);
        slot.waits_in_epoch.store(waiting.epoch, memory_order_relaxed);
        slot.waits_in_slot.store(i, memory_order_relaxed);
        slot.waits_in_generation.store(static_cast<uint32_t>(who.generation), memory_order_relaxed);
        slot.position.store(origin, memory_order_relaxed);
        slot.busy.store(0, memory_order_relaxed);
        const ContractTraits& contract = traits(topic_file.contract);
        if (contract.holds == Holds::always && !contract.shared)
            slot.hold.store(origin, memory_order_relaxed);
        occupy(topic_file, index, SlotState::enrolled);
    }
}

std::unique_ptr<Participant> Participant::take_enrolled(std::shared_ptr<TopicFile> topic_file,
                                                        const Participant& waiting, const RosterLock&) {
    auto is_for_us = [&](const Slot& slot) {
        return slot.waits_in_epoch.load(memory_order_relaxed) == waiting.topic_file().epoch &&
               slot.waits_in_slot.load(memory_order_relaxed) == waiting.slot() &&
               slot.waits_in_generation.load(memory_order_relaxed) ==
                   static_cast<uint32_t>(waiting.generation());
    };
    for (uint32_t i : taken_slots(*topic_file))
        if (slot_enrolled(*topic_file, i) && is_for_us(topic_file->slot(i)) && topic_file->lock_slot(i))
            return std::unique_ptr<Participant>(new Participant(std::move(topic_file), i));
    return nullptr;
}

Participant::Participant(std::shared_ptr<TopicFile> topic_file, uint32_t enrolled_slot)
    : topic_file_(std::move(topic_file)), slot_(enrolled_slot), enrolled_(true) {
    CRASH_POINT("enrolled: locked, not taken over");
    generation_ = own().generation.load(memory_order_relaxed);
    own().state.store(static_cast<uint32_t>(SlotState::taken), memory_order_release);
    topic_file_->own_slot = slot_;
    CRASH_POINT("enrolled: taken over, still waiting");
}

// ------------------------------------------------------------------------------------ the turn, and leaving

// On a one-writer contract the writer keeps the turn until it leaves. Under the roster lock.
void Participant::take_turn(bool takeover) {
    const TopicFile& s = *topic_file_;
    Word<uint64_t>& turn = s.header().turn;
    uint64_t before = turn.load(memory_order_acquire);
    uint32_t owner = turn_slot(before, s.slot_count);
    bool alive = owner != kNoSlot && slot_taken(s, owner) && slot_alive(s, owner);
    if (alive && !takeover) {
        ParticipantInfo writer = look_at(s, owner, true);
        throw Failure{Fault::busy, "topic '" + s.topic + "' has its one writer: " + writer.describe() +
                                       in_this_process(writer) +
                                       "; close it, or open with takeover=True to replace it"};
    }
    // [TAKEOVER] seq_cst: announce the new owner before looking at the old one's busy flag. Pairs with [BUSY].
    turn.exchange(turn_taken(before, slot_), memory_order_seq_cst);
    CRASH_POINT("takeover: announced, old writer may be busy");
    uint32_t unfinished = wait_until_idle(s, slot_);
    if (unfinished == kNoSlot) return;
    turn.exchange(before, memory_order_seq_cst);
    throw Failure{Fault::busy, "topic '" + s.topic +
                                   "' could not be taken over: " + look_at(s, unfinished, true).describe() +
                                   " is in the middle of a message and does not finish it"};
}

void Participant::leave() {
    if (!topic_file_) return;
    std::shared_ptr<TopicFile> topic_file = std::move(topic_file_);
    if (topic_file->forked.load(memory_order_relaxed)) return;
    try {
        RosterLock lock(*topic_file);
        CRASH_POINT("leave: roster locked");
        // From here we look dead and are reaped like a dead participant: there is one way to give things back.
        topic_file->own_slot = kNoSlot;
        topic_file->unlock_slot(slot_);
        CRASH_POINT("leave: lock gone, slot taken");
        if (topic_file->slot(slot_).generation.load(memory_order_relaxed) == generation_)
            reap_if_dead(*topic_file, slot_, lock);
        CRASH_POINT("leave: out of the roster");
        retire_if_dead(*topic_file, lock);
    } catch (const Failure&) {
        // The roster could not be locked. Our slot's lock goes with the topic file, so the next process that needs the
        // slot reaps it.
    } catch (const std::exception&) {
        // The same: there is no memory, and a destructor cannot say so.
    }
}

}  // namespace ringmain
