// The rule between writers and readers, and what both sides share. Nothing in ring.hpp, writer.hpp and reader.hpp blocks, allocates or
// calls the kernel, except to wake a sleeper.
//
//   A writer never overwrites a held byte. It announces (`claim`), fences, looks at the holds, and waits
//   until none blocks it. A reader announces (`hold`), fences, and looks at `claim`: if the writer was
//   first, the reader has been lapped, and knows it.
//
// A contract decides when a reader holds (Holds, in layout.hpp): never, while it borrows, or always, at its position. Where
// messages are shared among workers, what is not taken yet is held by the queue: see work_queue.hpp.
//
//        tail          positions of readers         commit          claim
//   ------|================|=============|=============|...............|------>  position
//         |<--- whole messages, readable ------------->|<- announced ->|
//         |<----------------------- at most capacity ----------------->|
//
// A position counts the bytes since the topic began; its low bits are the offset in the ring.
// Invariants: tail <= commit <= claim <= tail + capacity; none of the three ever decreases. Bytes below
// claim - capacity may be overwritten at any moment; a message at position p is intact if p >= claim - capacity.
//
// Every access names its memory order; docs/spec/shared-memory.md lists the pairs.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/bell.hpp"
#include "format/layout.hpp"

namespace ringmain {

enum class Status {
    ok,
    empty,       // reader: nothing new
    blocked,     // writer: another participant blocks it; see Writer::obstacle
    too_large,   // the message can never fit
    taken_over,  // writer: another has the turn; reader: our slot was given to another
    corrupt,     // the words in shared memory contradict each other
};

// The words and bytes of one topic, with the sizes that were checked when it was opened.
struct Ring {
    Header& header;
    Slot* slots;
    std::byte* data;
    uint64_t capacity_bytes;
    const ContractTraits& contract;
    uint32_t slot_count;
    std::byte* kept = nullptr;  // the table of kept kinds: see kept.hpp
    uint32_t kept_kinds = 0;
    uint64_t kept_entry_bytes = 0;

    std::byte* at(uint64_t position) const { return data + (position & (capacity_bytes - 1)); }
    Word<uint64_t>& word_at(uint64_t position) const {
        return *reinterpret_cast<Word<uint64_t>*>(at(position));
    }
    uint32_t slots_used() const {
        return std::min(header.slots_used.load(std::memory_order_acquire), slot_count);
    }
};

// Message headers are three words, each of which may be overwritten while it is read.
struct Envelope {
    uint64_t seq;
    int64_t time_ns;
    uint32_t size;
    uint8_t sender_size, kind_size;

    uint64_t bytes() const { return footprint(size, sender_size, kind_size); }

    // A header may cross the end of the ring; the mirror makes it contiguous.
    static Envelope load(const Ring& ring, uint64_t position) {
        const Word<uint64_t>* words = &ring.word_at(position);
        // relaxed: the look at `claim` that follows decides whether these values can be trusted.
        uint64_t seq = words[0].load(std::memory_order_relaxed);
        uint64_t time = words[1].load(std::memory_order_relaxed);
        uint64_t sizes = words[2].load(std::memory_order_relaxed);
        return {seq, static_cast<int64_t>(time), static_cast<uint32_t>(sizes),
                static_cast<uint8_t>(sizes >> 32), static_cast<uint8_t>(sizes >> 40)};
    }
    void store(std::byte* at) const {
        auto* words = reinterpret_cast<Word<uint64_t>*>(at);
        // relaxed: made visible by [COMMIT].
        words[0].store(seq, std::memory_order_relaxed);
        words[1].store(static_cast<uint64_t>(time_ns), std::memory_order_relaxed);
        words[2].store(uint64_t{size} | uint64_t{sender_size} << 32 | uint64_t{kind_size} << 40,
                       std::memory_order_relaxed);
    }
};

}  // namespace ringmain
