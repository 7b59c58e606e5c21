#include "topic/inspection.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "rule/kept.hpp"
#include "rule/work_queue.hpp"
#include "topic/endpoint.hpp"

namespace ringmain {

namespace {

// Nothing is held during the walk: where a writer laps it, it ends.
WorkCounts count_work(const TopicFile& s) {
    Ring ring = ring_of(s);
    uint64_t commit = ring.header.commit.load(std::memory_order_acquire) & kPositionMask;
    WorkQueue queue(ring);
    WorkCounts counts;
    std::vector<uint64_t> taken(s.slot_count);
    for (uint64_t at = first_unfinished(s); at < commit && commit - at <= ring.capacity_bytes;) {
        TaskMark mark = queue.look(at);
        if (mark.owner == TaskMark::kFree) ++counts.waiting;
        if (mark.owner > 0 && mark.owner <= s.slot_count) ++taken[mark.owner - 1];
        at += Envelope::load(ring, at).bytes();
    }
    for (uint32_t i = 0; i < s.slot_count; ++i)
        if (taken[i]) counts.taken.emplace_back(i, taken[i]);
    return counts;
}

KeptCounts count_kept(const Ring& ring) {
    // relaxed, both: statistics.
    KeptCounts counts{ring.kept_kinds, 0, ring.header.not_kept.load(std::memory_order_relaxed)};
    KeptTable table(ring);
    for (uint32_t i = 0; i < ring.kept_kinds; ++i)
        counts.kinds += table.hash(i).load(std::memory_order_relaxed) != 0;
    return counts;
}

// The number of the next message. It is the only word of the ring that is needed, so the ring is not mapped.
uint64_t next_sequence(const TopicFile& s, uint64_t commit) {
    uint64_t next = 0;
    if (!read_at(s.fd().number(), &next, sizeof next, s.data_offset + commit % s.capacity_bytes,
                 "topic '" + s.topic + "'"))
        throw Failure{Fault::corrupt, "topic '" + s.topic + "' is shorter than its header says"};
    return next;
}

// Where the part of the ring begins that is in use. Where the writer waits, messages that no reader holds are room for it, though
// `tail` moves over them only when it needs them; elsewhere they stay, for those who begin with the oldest.
uint64_t used_from(const TopicFile& s, uint64_t tail, uint64_t commit) {
    if (!traits(s.contract).writer_waits()) return tail;
    uint64_t from = commit;
    for (uint32_t i = 0; i < s.slots_used(); ++i)  // relaxed: statistics
        from = std::min(from, s.slot(i).hold.load(std::memory_order_relaxed) & kPositionMask);
    return std::max(from, tail);
}

}  // namespace

uint64_t first_unfinished(const TopicFile& s) {
    uint64_t at = WorkQueue(ring_of(s)).cursor();
    for (uint32_t i : taken_slots(s))
        if (slot_has_role(s, i, Role::reader))
            at = std::min(at, s.slot(i).taken_from.load(std::memory_order_relaxed));
    return at;
}

Lag Inspection::lag_of(const ParticipantInfo& who) const {
    if (who.role == Role::writer || (traits(contract).shared && who.role == Role::reader)) return {};
    return {next_sequence - std::min(next_sequence, who.sequence),
            position - std::min(position, who.position)};
}

std::string Inspection::blocker_of(const ParticipantInfo& who) const {
    if (who.waits_for == 0) return {};
    for (const ParticipantInfo& each : participants)
        if (each.slot == who.waits_for - 1) return each.name;
    return traits(contract).shared ? "a worker to take its messages" : "a reader that has not come";
}

Inspection inspect_topic(const std::shared_ptr<Directory>& directory, std::string_view topic) {
    std::shared_ptr<TopicFile> s = TopicFile::open(directory, topic, Access::inspect);
    Header& h = s->header();
    Inspection seen;
    seen.contract = s->contract;
    seen.capacity_bytes = s->capacity_bytes;
    seen.slot_count = s->slot_count;
    seen.epoch = s->epoch;
    seen.position = h.commit.load(std::memory_order_acquire) & kPositionMask;
    uint64_t used = used_from(*s, h.tail.load(std::memory_order_relaxed), seen.position);
    seen.used_bytes = seen.position >= used ? std::min(seen.position - used, s->capacity_bytes) : 0;
    seen.next_sequence = next_sequence(*s, seen.position);
    seen.persist = s->persists();
    seen.frames = s->has_frames();
    seen.schema = s->schema();
    seen.turn = static_cast<uint32_t>(h.turn.load(std::memory_order_relaxed) & kTurnOwner);
    for (uint32_t i : taken_slots(*s)) seen.participants.push_back(look_at(*s, i, slot_alive(*s, i)));
    if (traits(s->contract).shared)  // whose messages have to be looked at
        seen.work = count_work(*TopicFile::open(directory, topic, Access::observe));
    if (s->kept_kinds != 0) seen.kept = count_kept(ring_of(*s));
    return seen;
}

std::vector<std::string> names_in(const Directory& directory, FileKind kind) {
    std::vector<std::string> names;
    int own = dup(directory.fd());
    DIR* entries = own < 0 ? nullptr : fdopendir(own);
    if (!entries) throw refused("cannot list " + directory.path(), errno);
    rewinddir(entries);
    while (const dirent* entry = readdir(entries))
        if (std::string name = topic_name(entry->d_name, kind); !name.empty()) names.push_back(name);
    closedir(entries);
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace ringmain
