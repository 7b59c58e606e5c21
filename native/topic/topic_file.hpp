// A topic's file: create, open, validate, map, unlink. Owns this invariant: nothing of a file is used before its
// owner, header and sizes were checked, and from then on only the checked copies of the sizes are used.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "format/layout.hpp"
#include "rule/retirement.hpp"
#include "topic/open_file.hpp"

namespace ringmain {

// What is mapped, and what of it can be written. inspect: the control part is mapped, and no lock is ever taken; observe: all
// is mapped; read: the control part can be written; write: all can.
enum class Access { inspect, observe, read, write };

struct TopicOptions {
    Contract contract = Contract::broadcast;
    uint64_t capacity_bytes = 0;
    uint32_t mode = 0600;
    bool persist = false;
    bool frames = false;  // of a topic: see kFrames
    std::string schema;
    bool huge_pages = false;  // of a pool
    uint32_t slot_count = kDefaultSlotCount;
    uint32_t kept_kinds = 0;  // of a topic: of how many kinds it keeps the last message
};

uint64_t round_capacity(uint64_t capacity_bytes);

class TopicFile {
    std::shared_ptr<OpenFile> file_;
    SlotLock slot_lock_;
    std::byte* control_ = nullptr;
    bool control_copied_ = false;  // it is memory of our own: see copy_control
    uint64_t control_bytes_ = 0;
    std::byte* data_ = nullptr;
    std::byte* area_ = nullptr;  // the address space that the data part lies in
    uint64_t area_bytes_ = 0;
    TopicFile *previous_ = nullptr,
              *next_ = nullptr;  // the list of all of this process, for the fork handler

    void note();
    void map(Access access);
    void copy_control();
    bool has_name(const std::string& name) const;
    void map_ring(int protection, int through);
    void map_pool(int protection, int through);
    void populate() const;
    void allocate();

  public:
    TopicFile() = default;
    ~TopicFile();
    TopicFile(const TopicFile&) = delete;
    TopicFile& operator=(const TopicFile&) = delete;

    // A created topic has no name yet: its creator joins first, so that no process ever opens it without a participant.
    static std::shared_ptr<TopicFile> create(std::shared_ptr<Directory> directory, std::string_view topic,
                                             const TopicOptions& options);
    static std::shared_ptr<TopicFile> open(std::shared_ptr<Directory> directory, std::string_view topic,
                                           Access access, FileKind kind = FileKind::ring);

    // The checked copies.
    std::shared_ptr<Directory> directory;
    std::string topic;
    Contract contract{};
    uint64_t capacity_bytes = 0;
    uint64_t data_offset = 0;
    uint64_t schema_capacity_bytes = 0;
    uint64_t epoch = 0;
    uint32_t flags = 0;
    uint32_t mode = 0;
    uint64_t inode = 0;

    uint32_t slot_count = kDefaultSlotCount;
    uint32_t kept_kinds = 0;
    uint64_t kept_entry_bytes = 0;

    // The slot of the participant that opened this.
    uint32_t own_slot = kNoSlot;

    // True in a child that inherited this through fork: the slot is the parent's, so the child must not use it.
    std::atomic<bool> forked{false};

    // Every one of this process. In a forked child, where all threads but one are gone.
    static void mark_all_forked();

    // Throws if it is closed and cannot be opened again.
    PinnedDescriptor fd() const;
    PinnedDescriptor intact_fd() const;  // false: likewise

    // The lock by which the kernel knows that a slot's participant is alive. False: another has it.
    bool lock_slot(uint32_t index);
    void unlock_slot(uint32_t index);
    FileKind kind() const {
        return contract == Contract::frames    ? FileKind::pool
               : contract == Contract::waiting ? FileKind::waiting
                                               : FileKind::ring;
    }
    Header& header() const { return *reinterpret_cast<Header*>(control_); }
    Slot& slot(uint32_t index) const { return reinterpret_cast<Slot*>(control_ + kRosterOffset)[index]; }
    std::byte* data() const { return data_; }
    // The table of kept kinds. The schema part is a whole number of pages.
    std::byte* kept() const { return control_ + schema_offset(slot_count) + schema_capacity_bytes; }
    // No slot at or above this index was ever taken.
    uint32_t slots_used() const {
        uint32_t used = header().slots_used.load(std::memory_order_acquire);
        return used < slot_count ? used : slot_count;
    }

    // Maps all pages of a pool's buffers now, rather than fault by fault during the first frames. Kernels before 5.14
    // cannot, and take the faults.
    void populate(bool to_write);

    // Gives a created topic its name, so that others can open it; false if another process was faster.
    bool give_name();
    bool has_its_name() const;  // is the file of this name still this one?
    bool nameless() const;      // has it no name at all? Not if the kernel cannot be asked.
    // Are its messages descriptors of frames?
    bool has_frames() const { return flags & kFrames; }
    // Is the file kept when its last participant leaves? May be set later than at its creation.
    bool persists() const { return header().flags.load(std::memory_order_relaxed) & kPersist; }
    bool retired() const { return is_retired(header()); }
    // Removes the name and wakes all sleepers. Only under the roster lock.
    void retire();

    std::string schema() const;
    // Only under the roster lock.
    void set_schema(std::string_view schema);
    // The number that changes with the schema.
    uint32_t schema_version() const { return header().schema_version.load(std::memory_order_acquire); }
};

}  // namespace ringmain
