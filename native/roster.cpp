#include "roster.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "process.hpp"
#include "text.hpp"
#include "worker.hpp"

namespace ringmain {

using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

namespace {

constexpr int64_t kFinishMessage_ns = 1'000'000'000;  // how long a writer may take to finish a message

bool set_lock(int fd, int64_t byte, short type) {
    struct flock lock{};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = byte;
    lock.l_len = 1;
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

void ring_membership(const TopicFile& topic_file) {
    topic_file.header().membership.fetch_add(1, memory_order_release);
    wake(topic_file.header().membership.futex());
}

// The kernel does not say who has the lock of an open file description, so its holder writes its pid down. The sentence
// advises a signal only where the pid means that process here.
std::string describe_roster_lock(const TopicFile& topic_file) {
    uint32_t pid = topic_file.header().roster_pid.load(memory_order_relaxed);
    uint64_t pid_namespace = topic_file.header().roster_pid_namespace.load(memory_order_relaxed);
    std::string holder = describe_pid(pid, pid_namespace);
    for (uint32_t i : taken_slots(topic_file))
        if (ParticipantInfo each = look_at(topic_file, i, true);
            each.pid == pid && each.pid_namespace == pid_namespace)
            holder = each.describe();
    std::string number = std::to_string(pid);
    return holder + ", which has stopped while it joined, left or reaped: resume it or kill it" +
           (in_our_namespace(pid_namespace) ? " (kill -CONT " + number + ", kill -KILL " + number + ")"
                                            : " from its own pid namespace");
}

}  // namespace

const char* role_name(Role role) {
    switch (role) {
        case Role::writer:
            return "writer";
        case Role::observer:
            return "observer";
        default:
            return "reader";
    }
}

std::string ParticipantInfo::describe() const {
    std::string user = same_namespace ? "" : "user " + std::to_string(uid) + ", ";
    return std::string(role_name(role)) + " '" + name + "' (" + user + describe_pid(pid, pid_namespace) + ")";
}

RosterLock::RosterLock(const TopicFile& topic_file, int64_t timeout_ns) : topic_file_(topic_file) {
    int64_t deadline = monotonic_ns() + timeout_ns;
    // Polled: the kernel's blocking call has no time limit, and a stopped holder must not block us for longer.
    while (!set_lock(topic_file.fd(), kRosterLockByte, F_WRLCK)) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            throw Failure{
                Fault::system,
                "cannot lock the roster of topic '" + topic_file.topic + "': " + std::strerror(errno), errno};
        if (monotonic_ns() > deadline)
            throw Failure{Fault::timed_out, "the roster of topic '" + topic_file.topic +
                                                "' stayed locked by " + describe_roster_lock(topic_file)};
        usleep(200);
    }
    topic_file.header().roster_pid.store(this_process().pid, memory_order_relaxed);
    topic_file.header().roster_pid_namespace.store(this_process().pid_namespace, memory_order_relaxed);
}

RosterLock::~RosterLock() {
    if (int fd = topic_file_.intact_fd(); fd >= 0) set_lock(fd, kRosterLockByte, F_UNLCK);
}

static SlotState state_of(const TopicFile& topic_file, uint32_t slot) {
    return SlotState{topic_file.slot(slot).state.load(memory_order_acquire)};
}

bool slot_taken(const TopicFile& topic_file, uint32_t slot) {
    SlotState state = state_of(topic_file, slot);
    return state == SlotState::taken || state == SlotState::enrolled;
}

bool slot_enrolled(const TopicFile& topic_file, uint32_t slot) {
    return state_of(topic_file, slot) == SlotState::enrolled;
}

bool slot_has_role(const TopicFile& topic_file, uint32_t slot, Role role) {
    return topic_file.slot(slot).role.load(memory_order_relaxed) == static_cast<uint32_t>(role);
}

static bool slot_locked(const TopicFile& topic_file, uint32_t slot) {
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = slot_lock_byte(slot);
    lock.l_len = 1;
    // If the kernel cannot say, count it as alive: reaping a living participant would corrupt the ring, sparing a
    // dead one only costs waiting.
    int fd = topic_file.intact_fd();
    return fd < 0 || fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

// An enrolled reader cannot lock its byte before it opens the file. Until then it is alive while it waits, and its lock is
// in the waiting file.
static bool waiter_alive(const TopicFile& topic_file, const Slot& slot) {
    uint32_t index = slot.waits_in_slot.load(memory_order_relaxed);
    try {
        std::shared_ptr<TopicFile> waiting =
            TopicFile::open(topic_file.directory, topic_file.topic, Access::observe, FileKind::waiting);
        if (index >= waiting->slot_count) return false;
        auto generation = static_cast<uint32_t>(waiting->slot(index).generation.load(memory_order_relaxed));
        return waiting->epoch == slot.waits_in_epoch.load(memory_order_relaxed) &&
               generation == slot.waits_in_generation.load(memory_order_relaxed) &&
               slot_alive(*waiting, index);
    } catch (const Failure& failure) {
        // Without a waiting file no process waits. One that we may not open says nothing: count the reader as alive.
        return failure.fault != Fault::not_found && failure.fault != Fault::corrupt;
    }
}

bool slot_alive(const TopicFile& topic_file, uint32_t slot) {
    if (slot == topic_file.own_slot) return true;  // our own lock does not conflict with us
    if (slot_enrolled(topic_file, slot)) return waiter_alive(topic_file, topic_file.slot(slot));
    return slot_locked(topic_file, slot);
}

ParticipantInfo look_at(const TopicFile& topic_file, uint32_t index, bool alive) {
    const Slot& slot = topic_file.slot(index);
    ParticipantInfo m;
    m.slot = index;
    m.alive = alive;
    m.role = Role{slot.role.load(memory_order_relaxed)};
    if (m.role != Role::writer && m.role != Role::observer) m.role = Role::reader;
    m.pid = slot.pid.load(memory_order_relaxed);
    m.uid = slot.uid.load(memory_order_relaxed);
    m.pid_namespace = slot.pid_namespace.load(memory_order_relaxed);
    m.started_ticks = slot.started_ticks.load(memory_order_relaxed);
    m.same_namespace = in_our_namespace(m.pid_namespace);
    m.generation = slot.generation.load(memory_order_relaxed);
    m.joined_ns = slot.joined_ns.load(memory_order_relaxed);
    m.position = slot.position.load(memory_order_relaxed);
    m.sequence = slot.sequence.load(memory_order_relaxed);
    m.messages = slot.messages.load(memory_order_relaxed);
    m.bytes = slot.bytes.load(memory_order_relaxed);
    m.lost = slot.lost.load(memory_order_relaxed);
    m.blocked_ns = slot.blocked_ns.load(memory_order_relaxed);
    m.hold = slot.hold.load(memory_order_relaxed) & kPositionMask;
    m.waits_for = slot.waits_for.load(memory_order_relaxed);
    bool has_taken = slot.taken_from.load(memory_order_relaxed) != kNoHold;
    m.taken_ns = has_taken ? slot.taken_ns.load(memory_order_relaxed) : 0;
    m.redelivered = slot.redelivered.load(memory_order_relaxed);
    char name[sizeof slot.name];
    copy_out(name, reinterpret_cast<const std::byte*>(slot.name), sizeof name);
    m.name = printable({name, strnlen(name, sizeof name)});
    return m;
}

uint32_t living_readers(const TopicFile& topic_file) {
    uint32_t readers = 0;
    for (uint32_t i : taken_slots(topic_file))
        readers += slot_has_role(topic_file, i, Role::reader) &&
                   topic_file.slot(i).busy.load(memory_order_acquire) == 0 &&  // [READY]
                   slot_alive(topic_file, i);
    return readers;
}

static WorkQueue work_of(const TopicFile& s) {
    return WorkQueue({s.header(), &s.slot(0), s.data(), s.capacity_bytes, traits(s.contract), s.slot_count});
}

bool reap_dead_workers(const TopicFile& topic_file) {
    bool reaped = false;
    for (uint32_t i : taken_slots(topic_file)) {
        // relaxed: a look, which the reaping repeats under the lock.
        if (topic_file.slot(i).taken_from.load(memory_order_relaxed) == kNoHold) continue;
        if (slot_has_role(topic_file, i, Role::reader)) reaped |= reap_if_dead(topic_file, i);
    }
    return reaped;
}

// A pipe's reader slot keeps its hold, so that the next reader goes on where this one stopped.
// The queue of a shared contract has a slot that no participant takes.
static bool keeps_hold(const TopicFile& topic_file, uint32_t index) {
    return traits(topic_file.contract).keeps_unread && index == kOnlyReaderSlot;
}

static void drop_hold(const TopicFile& topic_file, uint32_t index) {
    if (keeps_hold(topic_file, index)) return;
    if (traits(topic_file.contract).shared) work_of(topic_file).return_taken(index);
    Slot& slot = topic_file.slot(index);
    uint64_t old = slot.hold.exchange(kNoHold, memory_order_acq_rel);
    if (old & kSleeper) wake(slot.hold.futex());  // of a pool
    ring(slot.awaited);
}

static bool turn_is_of(const TopicFile& topic_file, uint32_t index) {
    return turn_slot(topic_file.header().turn.load(memory_order_acquire), topic_file.slot_count) == index;
}

// Compared, since another writer may take the turn at the same time: its owner rested when it died.
static void free_turn(const TopicFile& topic_file, uint32_t index) {
    Word<uint64_t>& turn = topic_file.header().turn;
    uint64_t seen = turn.load(memory_order_acquire);
    while (turn_slot(seen, topic_file.slot_count) == index)
        if (turn.compare_exchange(seen, turn_given_back(seen), memory_order_acq_rel))
            return wake(turn.futex());
}

// A free slot holds nothing and does not have the turn, and a writer's slot holds nothing. If one does, a process wrote
// where it must not (or a participant that had lost its lock moved its hold after it was reaped), and nothing else would
// ever reset it.
static bool holds_wrongly(const TopicFile& topic_file, uint32_t index) {
    bool free = !slot_taken(topic_file, index);
    if (!free && !slot_has_role(topic_file, index, Role::writer)) return false;
    uint64_t hold = topic_file.slot(index).hold.load(memory_order_acquire) & kPositionMask;
    return (hold != kNoHold && !keeps_hold(topic_file, index)) || (free && turn_is_of(topic_file, index));
}

static bool dead(const TopicFile& topic_file, uint32_t index) {
    return slot_taken(topic_file, index) && !slot_alive(topic_file, index);
}

bool reap_if_dead(const TopicFile& topic_file, uint32_t index, const RosterLock&) {
    bool reaped = dead(topic_file, index);
    if (!reaped && !holds_wrongly(topic_file, index)) return false;
    Slot& slot = topic_file.slot(index);
    CRASH_POINT("reap: before the hold");
    drop_hold(topic_file, index);
    if (!reaped && slot_taken(topic_file, index)) return true;  // a living writer keeps the rest
    CRASH_POINT("reap: hold gone, turn kept");
    free_turn(topic_file, index);
    CRASH_POINT("reap: turn free, slot taken");
    slot.waits_for.store(0, memory_order_relaxed);
    slot.busy.store(0, memory_order_relaxed);
    slot.state.store(static_cast<uint32_t>(SlotState::free), memory_order_release);
    CRASH_POINT("reap: slot free, not announced");
    ring_membership(topic_file);
    return true;
}

bool reap_if_dead(const TopicFile& topic_file, uint32_t slot) {
    (void)topic_file.fd();  // throws if the kernel cannot be asked any more: then a wait would not end
    if (!dead(topic_file, slot) && !holds_wrongly(topic_file, slot)) return false;
    RosterLock lock(topic_file);
    return reap_if_dead(topic_file, slot, lock);
}

uint32_t reap_all(const TopicFile& topic_file, const RosterLock& lock) {
    uint32_t alive = 0;
    for (uint32_t i : taken_slots(topic_file)) {
        reap_if_dead(topic_file, i, lock);
        if (slot_taken(topic_file, i)) ++alive;
    }
    return alive;
}

// Waits until the slot's writer, if it lives, is not inside a publish. False: it did not finish in time.
static bool wait_until_rests(const TopicFile& s, uint32_t slot, int64_t deadline_ns) {
    // [IDLE] acquire: we see what the writer committed last. Pairs with [RELEASE] in Writer::rest.
    while (s.slot(slot).busy.load(memory_order_acquire) != 0 && slot_locked(s, slot)) {
        if (monotonic_ns() > deadline_ns) return false;
        usleep(100);
    }
    return true;
}

// Waits until no living writer but `newcomer` is inside a publish: `turn` no longer names them, but they may have
// looked at it before. Waits for all of them, not only for the turn's last owner: a process that died right after
// it announced its takeover leaves the writer before it in the middle of a message, and the turn no longer says whose.
// Returns the slot of a writer that did not finish in time, or kNoSlot.
static uint32_t wait_until_idle(const TopicFile& s, uint32_t newcomer) {
    int64_t deadline = monotonic_ns() + kFinishMessage_ns;
    bool fenced = false;
    for (uint32_t i : taken_slots(s)) {  // slots change under the roster lock, which we have
        if (i == newcomer || !slot_has_role(s, i, Role::writer) || !slot_alive(s, i)) continue;
        if (!fenced) process_barrier::make_or_wait();
        fenced = true;
        if (!wait_until_rests(s, i, deadline)) return i;
    }
    return kNoSlot;
}

void stop_writers(const TopicFile& topic_file, const RosterLock&) {
    Word<uint64_t>& turn = topic_file.header().turn;
    auto give_up = [&](uint32_t owner) {
        throw Failure{Fault::timed_out, "topic '" + topic_file.topic + "' cannot be removed: " +
                                            look_at(topic_file, owner, true).describe() +
                                            " is in the middle of a message and does not finish it"};
    };
    if (traits(topic_file.contract).one_writer) {
        uint64_t before = turn.exchange(kTurnOver, memory_order_seq_cst);
        uint32_t unfinished = wait_until_idle(topic_file, kNoSlot);
        if (unfinished == kNoSlot) return;
        turn.exchange(before, memory_order_seq_cst);
        give_up(unfinished);
    }
    int64_t deadline = monotonic_ns() + kFinishMessage_ns;
    uint64_t seen = turn.load(memory_order_acquire);
    while (!turn_over(seen)) {
        uint32_t owner = turn_slot(seen, topic_file.slot_count);
        if (owner != kNoSlot) {  // otherwise it is free, or no slot's number
            // [ASKED] as in Writer::ask. Where the owner dies in the middle, there is no message to wait for.
            if (!turn.compare_exchange(seen, seen | kTurnAsked, memory_order_acq_rel)) continue;
            seen |= kTurnAsked;
            process_barrier::make_or_wait();
            if (!wait_until_rests(topic_file, owner, deadline)) give_up(owner);
        }
        if (turn.compare_exchange(seen, kTurnOver, memory_order_acq_rel)) return;
        if (owner != kNoSlot && monotonic_ns() > deadline) give_up(owner);
    }
}

bool disposable(const TopicFile& topic_file) {
    if (topic_file.persists()) return false;
    if (topic_file.kind() == FileKind::pool) {
        // A pool stays as long as its topic, whose readers may still have descriptors to read.
        struct stat st;
        return fstatat(topic_file.directory->fd(), file_name(topic_file.topic).c_str(), &st,
                       AT_SYMLINK_NOFOLLOW) != 0;
    }
    if (!traits(topic_file.contract).keeps_unread) return true;
    if (traits(topic_file.contract).shared) return !work_of(topic_file).unfinished();
    uint64_t read = topic_file.slot(kOnlyReaderSlot).hold.load(memory_order_acquire) & kPositionMask;
    return read == (topic_file.header().commit.load(memory_order_acquire) & kPositionMask);
}

bool retire_if_dead(TopicFile& topic_file, const RosterLock& lock) {
    if (topic_file.retired()) return false;
    // As in find_slot: in a large roster, one that lives is answer enough.
    auto lives = [&](uint32_t slot) { return slot_alive(topic_file, slot); };
    if (topic_file.slots_used() > kDefaultSlotCount && std::ranges::any_of(taken_slots(topic_file), lives))
        return false;
    // Reaped first: a dead worker gives its message back, and then the topic is not disposable.
    if (reap_all(topic_file, lock) != 0 || !disposable(topic_file)) return false;
    // If a writer only seems dead (it has lost its lock), its next message must fail: no process would read it.
    topic_file.header().turn.exchange(kTurnOver, memory_order_acq_rel);
    topic_file.retire();
    retire_dead_beside(topic_file);
    return true;
}

void retire_dead_beside(const TopicFile& ring) {
    if (ring.kind() != FileKind::ring) return;
    for (FileKind kind : {FileKind::pool, FileKind::waiting}) {
        try {
            std::shared_ptr<TopicFile> beside =
                TopicFile::open(ring.directory, ring.topic, Access::read, kind);
            RosterLock lock(*beside);
            retire_if_dead(*beside, lock);
        } catch (const Failure&) {
            // Most topics have none. If it cannot be read, `clean` reports it.
        }
    }
}

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
            if (!slot_taken(s, i) && set_lock(s.fd(), slot_lock_byte(i), F_WRLCK)) found = i;
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
            set_lock(s.fd(), slot_lock_byte(slot_), F_UNLCK);
            throw;
        }
    }
    s.own_slot = slot_;
    CRASH_POINT("join: complete, not announced");
    ring_membership(s);
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
        if (slot_enrolled(*topic_file, i) && is_for_us(topic_file->slot(i)) &&
            set_lock(topic_file->fd(), slot_lock_byte(i), F_WRLCK))
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
        set_lock(topic_file->fd(), slot_lock_byte(slot_), F_UNLCK);
        CRASH_POINT("leave: lock gone, slot taken");
        if (topic_file->slot(slot_).generation.load(memory_order_relaxed) == generation_)
            reap_if_dead(*topic_file, slot_, lock);
        CRASH_POINT("leave: out of the roster");
        retire_if_dead(*topic_file, lock);
    } catch (const Failure&) {
        // The roster could not be locked. Our descriptor is closed with the topic file, so the next process that
        // needs the slot reaps it.
    }
}

}  // namespace ringmain
