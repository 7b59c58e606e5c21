#include "face/sentences.hpp"

#include <cstdio>

namespace ringmain::face {

std::string describe_writers(const TopicFile& file) {
    std::string writers;
    for (uint32_t i : taken_slots(file)) {
        if (!slot_has_role(file, i, Role::writer)) continue;
        ParticipantInfo writer = look_at(file, i, slot_alive(file, i));
        writers +=
            (writers.empty() ? "" : ", ") + writer.describe() + (writer.alive ? "" : ", which has died");
    }
    return writers.empty() ? "it has no writer" : "waiting for " + writers;
}

uint64_t largest_of(const TopicFile& file) {
    uint64_t largest = largest_message(file.contract, file.capacity_bytes);
    return file.kept_kinds == 0 ? largest : std::min(largest, largest_kept_message(file.kept_entry_bytes));
}

uint64_t capacity_for(const TopicFile& file, uint64_t size, uint64_t envelope_bytes) {
    if (file.kept_kinds != 0)
        return round_capacity(1024 *
                              (sizeof(KeptEntry) + sizeof(MessageHeader) + align_up(size) + envelope_bytes));
    uint64_t needed = size + envelope_bytes + room_for(sizeof(MessageHeader));
    return round_capacity(traits(file.contract).writer_waits() ? needed : 2 * needed);
}

bool all_read(const TopicFile& s) {
    uint64_t commit = s.header().commit.load(std::memory_order_acquire) & kPositionMask;
    if (traits(s.contract).shared)
        for (uint32_t i : taken_slots(s))
            if (slot_has_role(s, i, Role::reader) && look_at(s, i, true).hold != kNoHold) return false;
    if (traits(s.contract).keeps_unread)  // its reader counts even before it has joined
        return (s.slot(kOnlyReaderSlot).hold.load(std::memory_order_acquire) & kPositionMask) >= commit;
    for (uint32_t i : taken_slots(s)) {
        bool behind =
            slot_has_role(s, i, Role::reader) && s.slot(i).position.load(std::memory_order_relaxed) < commit;
        if (behind && slot_alive(s, i)) return false;
    }
    return true;
}

}  // namespace ringmain::face
