#include "topic/writing.hpp"

#include <algorithm>

namespace ringmain {

std::unique_ptr<Participant> join_as_writer_in(const std::string& path, std::shared_ptr<Directory>& directory,
                                               const std::string& topic, const WriterRequest& request) {
    constexpr int kAttempts = 10;
    for (int attempt = 1;; ++attempt) {
        directory = Directory::at(path, true);
        try {
            return join_as_writer(directory, topic, request);
        } catch (const Failure& failure) {
            if (failure.fault != Fault::not_found || attempt == kAttempts) throw;
        }
    }
}

uint64_t largest_payload(const TopicFile& file) {
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

bool all_read(const TopicFile& file) {
    uint64_t commit = file.header().commit.load(std::memory_order_acquire) & kPositionMask;
    if (traits(file.contract).shared)
        for (uint32_t i : taken_slots(file))
            if (slot_has_role(file, i, Role::reader) && look_at(file, i, true).hold != kNoHold) return false;
    if (traits(file.contract).keeps_unread)  // its reader counts even before it has joined
        return (file.slot(kOnlyReaderSlot).hold.load(std::memory_order_acquire) & kPositionMask) >= commit;
    for (uint32_t i : taken_slots(file)) {
        // relaxed: a reader that goes on meanwhile is only seen to be behind.
        bool behind = slot_has_role(file, i, Role::reader) &&
                      file.slot(i).position.load(std::memory_order_relaxed) < commit;
        if (behind && slot_alive(file, i)) return false;
    }
    return true;
}

}  // namespace ringmain
