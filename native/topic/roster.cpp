#include "topic/roster.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.hpp"
#include "topic/process.hpp"

namespace ringmain {

using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

namespace {

bool set_lock(int fd, int64_t byte, short type) {
    struct flock lock{};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = byte;
    lock.l_len = 1;
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
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

void ring_membership(const TopicFile& topic_file) {
    topic_file.header().membership.fetch_add(1, memory_order_release);
    wake(topic_file.header().membership.futex());
}

std::string roster_locked_text(const TopicFile& topic_file) {
    return "the roster of topic '" + topic_file.topic + "' stayed locked by " +
           describe_roster_lock(topic_file);
}

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

bool RosterLock::try_to_lock() {
    const ProcessIdentity& us = this_process();  // first: once it is locked, nothing may throw
    if (!file_) file_ = topic_file_.fd();
    if (!file_.claim_roster()) return false;
    held_ = set_lock(file_.number(), kRosterLockByte, F_WRLCK);
    if (!held_) file_.drop_roster();
    if (!held_ && errno != EAGAIN && errno != EACCES && errno != EINTR)
        throw Failure{Fault::system,
                      "cannot lock the roster of topic '" + topic_file_.topic + "': " + std::strerror(errno),
                      errno};
    if (!held_) return false;
    topic_file_.header().roster_pid.store(us.pid, memory_order_relaxed);
    topic_file_.header().roster_pid_namespace.store(us.pid_namespace, memory_order_relaxed);
    return true;
}

RosterLock::RosterLock(const TopicFile& topic_file, int64_t patience_ns) : topic_file_(topic_file) {
    int64_t deadline = monotonic_ns() + patience_ns;
    // Polled: the kernel's blocking call has no time limit, and a stopped holder must not block us for longer.
    while (!try_to_lock()) {
        if (monotonic_ns() > deadline) throw Failure{Fault::roster_locked, roster_locked_text(topic_file)};
        usleep(200);
    }
}

RosterLock::RosterLock(const TopicFile& topic_file, std::try_to_lock_t) : topic_file_(topic_file) {
    try_to_lock();
}

RosterLock::~RosterLock() {
    if (!held_) return;
    if (PinnedDescriptor file = topic_file_.intact_fd()) set_lock(file.number(), kRosterLockByte, F_UNLCK);
    file_.drop_roster();
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

bool slot_locked(const TopicFile& topic_file, uint32_t slot) {
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = slot_lock_byte(slot);
    lock.l_len = 1;
    // If the kernel cannot say, count it as alive: reaping a living participant would corrupt the ring, sparing a
    // dead one only costs waiting.
    PinnedDescriptor file = topic_file.intact_fd();
    return !file || fcntl(file.number(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
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

bool slot_dead(const TopicFile& topic_file, uint32_t index) {
    return slot_taken(topic_file, index) && !slot_alive(topic_file, index);
}

ParticipantInfo look_at(const TopicFile& topic_file, uint32_t index, bool alive) {
    const Slot& slot = topic_file.slot(index);
    ParticipantInfo m;
    m.slot = index;
    m.alive = alive;
    // [READY] acquire: what follows is of a reader that receives all that is sent from now on.
    bool busy = slot.busy.load(memory_order_acquire) != 0;
    m.role = Role{slot.role.load(memory_order_relaxed)};
    if (m.role != Role::writer && m.role != Role::observer) m.role = Role::reader;
    m.joining = busy && m.role != Role::writer;
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

}  // namespace ringmain
