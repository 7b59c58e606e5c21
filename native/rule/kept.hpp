// The last message of each kind, for readers that join late: a table beside the ring. The ring has the newest messages, so a
// message is copied to the table only when the ring drops it, once a stride. A publisher of a topic without a table pays nothing.
//
// Owns this invariant: of the dropped messages of a kind, the last is in the table; or its entry is being rewritten, and then a
// later message of that kind is still in the ring. So a writer that dies in the middle of an entry takes nothing from a reader,
// and the next writer, which begins at the same `tail`, writes the entry again. Only the writer whose turn it is writes here.
#pragma once

#include "rule/extension.hpp"
#include "rule/ring.hpp"

namespace ringmain {

class KeptTable {
  public:
    explicit KeptTable(const Ring& ring) : ring_(ring) {}

    Word<uint64_t>& hash(uint32_t index) const {
        return reinterpret_cast<Word<uint64_t>*>(ring_.kept)[index];
    }
    KeptEntry& entry(uint32_t index) const { return *reinterpret_cast<KeptEntry*>(at(index)); }
    std::byte* message(uint32_t index) const { return at(index) + sizeof(KeptEntry); }
    uint64_t room_bytes() const { return ring_.kept_entry_bytes - sizeof(KeptEntry); }

    // Keeps the message at a position of the ring, in place of the one before it of its kind.
    void keep(uint64_t position, const Envelope& envelope) const {
        char said[kMaxEnvelopeNameBytes];
        const std::byte* from = ring_.at(position);
        copy_out(said, from + sizeof(MessageHeader) + envelope.sender_size, envelope.kind_size);
        uint64_t bytes = envelope.bytes();
        std::string_view kind = parts_of({said, envelope.kind_size}).kind;
        uint32_t index = bytes <= room_bytes() ? find(kind) : ring_.kept_kinds;
        if (index == ring_.kept_kinds) {
            // relaxed: statistics.
            uint64_t missed = ring_.header.not_kept.load(std::memory_order_relaxed);
            ring_.header.not_kept.store(missed + 1, std::memory_order_relaxed);
            return;
        }
        KeptEntry& there = entry(index);
        // relaxed: only the writer whose turn it is changes it. Still odd if a writer died here.
        uint64_t version = (there.version.load(std::memory_order_relaxed) + 1) | 1;
        // [KEEP] release: a reader that finds it odd finds the message in the ring. The fence: before any byte changes.
        there.version.store(version, std::memory_order_release);
        fence(std::memory_order_release);
        there.position.store(position, std::memory_order_relaxed);  // relaxed: made visible by the next store
        uint64_t half = bytes / 2 / kAlignBytes * kAlignBytes;      // whole words
        copy(message(index), from, half);
        CRASH_POINT("keep: message half copied");
        copy(message(index) + half, from + half, bytes - half);
        // [KEEP] release: the bytes above become visible. Pairs with [KEPT].
        there.version.store(version + 1, std::memory_order_release);
        CRASH_POINT("keep: message kept, still in the ring");
    }

  private:
    const Ring& ring_;

    std::byte* at(uint32_t index) const {
        return ring_.kept + kept_hashes_bytes(ring_.kept_kinds) + index * ring_.kept_entry_bytes;
    }

    // From shared memory to shared memory, through our own.
    static void copy(std::byte* to, const std::byte* from, uint64_t bytes) {
        std::byte chunk[512];
        for (uint64_t done = 0, next; done < bytes; done += next) {
            next = std::min<uint64_t>(sizeof chunk, bytes - done);
            copy_out(chunk, from + done, next);
            copy_in(to + done, chunk, next);
        }
    }

    // FNV-1a; not 0, which marks an entry that was never used.
    static uint64_t hash_of(std::string_view kind) {
        uint64_t hash = 0xcbf29ce484222325;
        for (char byte : kind) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
        return hash == 0 ? 1 : hash;
    }

    // The kind's entry, perhaps a new one; `kept_kinds` if all are taken by others.
    uint32_t find(std::string_view kind) const {
        uint64_t wanted = hash_of(kind);
        for (uint32_t step = 0; step < ring_.kept_kinds; ++step) {
            uint32_t index = static_cast<uint32_t>((wanted + step) % ring_.kept_kinds);
            // relaxed: only the writer whose turn it is changes them.
            uint64_t there = hash(index).load(std::memory_order_relaxed);
            if (there == 0) hash(index).store(wanted, std::memory_order_relaxed);
            if (there == 0 || (there == wanted && may_take(index, kind))) return index;
        }
        return ring_.kept_kinds;
    }

    // Of an entry with the kind's hash: is it this kind's, or half written and thus no kind's?
    bool may_take(uint32_t index, std::string_view kind) const {
        // relaxed: as above.
        uint64_t version = entry(index).version.load(std::memory_order_relaxed);
        if (version == 0 || version % 2 != 0) return true;
        MessageHeader header;
        char there[2 * kMaxEnvelopeNameBytes];
        copy_out(&header, message(index), sizeof header);
        copy_out(there, message(index) + sizeof header, size_t{header.sender_size} + header.kind_size);
        return parts_of({there + header.sender_size, header.kind_size}).kind == kind;
    }
};

// Before the writer drops the messages from `tail` on that `target` needs the room of: keeps them. `end` is where the last
// message ends. False: the messages contradict each other.
[[gnu::noinline]] inline bool keep_dropped(const Ring& ring, uint64_t tail, uint64_t end, uint64_t target) {
    KeptTable table(ring);
    while (tail + ring.capacity_bytes < target) {
        Envelope envelope = Envelope::load(ring, tail);
        if (envelope.bytes() > end - tail) return false;
        table.keep(tail, envelope);
        tail += envelope.bytes();
    }
    return true;
}

}  // namespace ringmain
