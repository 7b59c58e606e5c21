#include "waiting/blocking_writer.hpp"

#include <cstdio>

#include "waiting/watcher.hpp"

namespace ringmain {

static bool waits_for_queue(const BlockingWriter& w) {
    const Obstacle& o = w.writer->obstacle;
    return w.ring().contract.shared && !o.is_turn && o.slot == kQueueSlot;
}

std::string BlockingWriter::describe_obstacle() const {
    const TopicFile& s = topic_file();
    const Obstacle& o = writer->obstacle;
    if (waits_for_queue(*this))
        return living_readers(s) == 0 ? "a worker to take its messages: none has come yet"
                                      : "its workers, which have yet to take the oldest messages";
    if (!slot_taken(s, o.slot)) return "its reader, who has not come yet";
    ParticipantInfo m = look_at(s, o.slot, true);
    if (slot_dead(s, o.slot)) return m.describe() + ", which has died; " + roster_locked_text(s);
    if (o.is_turn) return m.describe() + ", whose turn it is to write";
    if (ring().contract.shared) {
        double since_s = static_cast<double>(monotonic_ns() - static_cast<int64_t>(m.taken_ns)) / 1e9;
        char text[64];
        snprintf(text, sizeof text, ", which has had a message for %.3g s", m.taken_ns ? since_s : 0.0);
        return m.describe() + text;
    }
    uint64_t behind = (s.header().commit.load(std::memory_order_relaxed) & kPositionMask) - m.hold;
    uint64_t next = writer->seq();
    return m.describe() + ", " + std::to_string(next > m.sequence ? next - m.sequence : 0) + " messages (" +
           std::to_string(behind) + " bytes) behind";
}

std::optional<ParticipantInfo> BlockingWriter::obstacle() const {
    const TopicFile& s = topic_file();
    uint32_t slot = writer->obstacle.slot;
    if (waits_for_queue(*this) || !slot_taken(s, slot)) return std::nullopt;
    return look_at(s, slot, true);
}

// The watching thread asks what is cheap to ask. A try costs the task a hundred times as much, in Python: it comes once a long
// slice, for what no look explains.
uint64_t BlockingWriter::watch_for_room(const std::shared_ptr<Event>& event) {
    std::shared_ptr<TopicFile> file = participant->shared();
    if (lacks_readers) {
        Bell bell{file->header().membership.futex(), membership_seen};
        return watch({bell, event, {bell.word, {}, [file] { return true; }}, this, kLongestSlice_ns});
    }
    Bell bell = writer->arm();
    if (!bell.word) return 0;
    auto over = [file, o = writer->obstacle, slot = participant->slot(),
                 try_at_ns = monotonic_ns() + kLongestSlice_ns] {
        // relaxed: a hint, as gone(). After an unsure barrier the owner may rest without having seen that we ask.
        bool rests = o.is_turn && file->slot(o.slot).busy.load(std::memory_order_relaxed) == 0;
        return rests || gone(*file, o) || can_be_reaped(*file, o.slot) || !may_write(*file, slot) ||
               monotonic_ns() >= try_at_ns;
    };
    return watch({bell, event, {bell.word, {}, over}, this, kObstacleSlice_ns});
}

}  // namespace ringmain
