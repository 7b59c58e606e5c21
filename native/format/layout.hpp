// The shared memory of a topic, as structs. Offsets and constants only; behaviour is in ring.hpp and
// roster.hpp.
//
//   offset 0            4096                      schema_offset                     data_offset
//   +------------------+-------------------------+-------------------+-------------+------------------------------+
//   | Header           | Roster: slot_count slots| Schema            | Kept kinds, | Data: capacity_bytes         |
//   | identity, words  | of 256 bytes            | at least one page | if any      | mapped twice, back to back   |
//   +------------------+-------------------------+-------------------+-------------+------------------------------+
//
// The data part is a ring of messages, each of them (positions are multiples of 8):
//
//   +0       +8        +16      +20          +21        +22     +24
//   | seq    | time_ns | size   | sender_size| kind_size| flags | sender kind, padded to 8 | payload, padded
//   to 8 |
//
// Before the kind's name, in the same `kind_size` bytes, there may be an extension: see extension.hpp.
//
// The first word of the header after the newest message already holds the sequence number of the next message:
// a writer that takes over, or a reader that was lapped, reads the number there and needs no other word.
//
// docs/spec/shared-memory.md holds these tables in prose; a test compares the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "base/word.hpp"

namespace ringmain {

constexpr uint64_t kMagic = 0x4e49414d474e4952;  // "RINGMAIN"
constexpr uint32_t kVersion = 5;

constexpr uint32_t kDefaultSlotCount = 128;
constexpr uint32_t kMaxSlotCount = 4096;
constexpr uint32_t kWaitingSlotCount = 1024;  // of a waiting file: readers beyond that are not enrolled
constexpr uint32_t kNoSlot = UINT32_MAX;
constexpr uint32_t kOnlyReaderSlot = 0;  // of a contract with one reader; its hold outlives it
constexpr uint32_t kQueueSlot =
    0;  // of a shared contract: no participant has it, its hold is the queue's cursor
constexpr uint32_t kMaxWorkers =
    4094;  // the readers of a shared contract have slots below this: see TaskMark
constexpr uint64_t kHeaderBytes = 4096;
constexpr uint64_t kMaxCapacityBytes = uint64_t{1} << 40;
constexpr uint64_t kMaxSchemaBytes = uint64_t{1} << 24;
constexpr uint64_t kMaxMessageBytes = 0xffffffff;  // `size` is 32 bits
constexpr size_t kMaxParticipantNameBytes = 79;
constexpr size_t kMaxEnvelopeNameBytes = 255;  // sender and kind
constexpr uint32_t kDefaultKeptKinds = 1024;
constexpr uint32_t kMaxKeptKinds = 16384;

// Positions are multiples of 8, so the low bits of a word that holds one are free.
constexpr uint64_t kAlignBytes = 8;
constexpr uint64_t kSleeper = 1;  // in a `hold` of a pool: the publisher sleeps on this word
constexpr uint64_t kRetired = 2;  // in `commit`: the topic was removed
constexpr uint64_t kPositionMask = ~uint64_t{7};
constexpr uint64_t kNoHold = kPositionMask;  // no position is this large
// No ring gets this far in a century. Beyond it, sums of positions and capacities could overflow.
constexpr uint64_t kMaxPosition = kNoHold - 4 * kMaxCapacityBytes;

// Two are not contracts of topics: `frames` marks a pool of buffers (pool_layout.hpp), `waiting` the file in which readers
// wait for a topic that does not exist yet. Their control parts are the same. Their numbers are far above those of contracts,
// which count on, so that a new contract renumbers nothing on disk.
enum class Contract : uint32_t {
    broadcast = 1,
    pipe = 2,
    bus = 3,
    reliable = 4,
    work = 5,
    frames = 0x10000,
    waiting = 0x10001
};

// When a reader's hold keeps the writer from overwriting: the essential difference between contracts.
enum class Holds : uint8_t { never, while_borrowed, always };

// One row a contract. Everything that depends on the contract asks this table: Python has it as `CONTRACTS`, and the list of
// tests in CMakeLists.txt is read from it.
struct ContractTraits {
    const char* name;
    bool one_writer;
    bool one_reader;  // it has slot kOnlyReaderSlot
    Holds holds;
    bool
        keeps_unread;  // unread messages stay, held by kOnlyReaderSlot or kQueueSlot, while there is no reader
    bool shared;       // each message goes to one of the readers: see worker.hpp

    // Does what a reader gets go to no other?
    constexpr bool takes_away() const { return one_reader || shared; }
    // A reader that always holds makes the writer wait; otherwise it is lapped.
    constexpr bool writer_waits() const { return holds == Holds::always; }
};

// clang-format off
inline constexpr ContractTraits kContracts[] = {
    // name       one_writer  one_reader  holds                  keeps_unread  shared
    {"broadcast", true,       false,      Holds::never,          false,        false},
    {"pipe",      true,       true,       Holds::always,         true,         false},
    {"bus",       false,      false,      Holds::while_borrowed, false,        false},
    {"reliable",  false,      false,      Holds::always,         false,        false},
    {"work",      false,      false,      Holds::always,         true,         true},
};
// clang-format on
inline constexpr ContractTraits kPoolTraits{"frames", true, false, Holds::never, false, false};
inline constexpr ContractTraits kWaitingTraits{"waiting", false, false, Holds::never, false, false};

// A contract's number is its row, counted from 1.
constexpr bool is_contract(Contract c) { return static_cast<uint32_t>(c) - 1 < std::size(kContracts); }
constexpr Contract contract_of_row(const ContractTraits& row) {
    return Contract{static_cast<uint32_t>(&row - kContracts) + 1};
}
constexpr const ContractTraits& traits(Contract c) {
    return c == Contract::frames    ? kPoolTraits
           : c == Contract::waiting ? kWaitingTraits
                                    : kContracts[static_cast<uint32_t>(c) - 1];
}
static_assert(traits(Contract::reliable).name[0] == 'r' && traits(Contract::work).shared);
static_assert(!is_contract(Contract::frames) && !is_contract(Contract::waiting));

// An observer reads like a reader but never holds: no writer waits for it, and it does not count as a reader.
enum class Role : uint32_t { none = 0, writer = 1, reader = 2, observer = 3 };
// Enrolled: taken by the topic's creator for a reader that waits in the waiting file, until that one takes it over.
enum class SlotState : uint32_t { free = 0, taken = 1, enrolled = 2 };

// kFrames: of a topic whose messages are descriptors of frames, in the pool beside it.
enum HeaderFlags : uint32_t { kPersist = 1, kHugePages = 2, kFrames = 4 };

// `turn`. Its low half: 0, or 1 + the slot of the writer whose turn it is; and two marks. The high half counts how often it
// was taken, or passed a writer that did not come for it, so that no two takings look alike.
constexpr uint64_t kTurnOwner = 0x3fffffff;
constexpr uint64_t kTurnOver =
    kTurnOwner;  // in place of the owner: the topic was removed, no more writing here
constexpr uint64_t kTurnWanted = uint64_t{1} << 30;  // another writer spins: the owner gives it back soon
constexpr uint64_t kTurnAsked = uint64_t{1} << 31;   // another may take it, or sleeps: at the next rest
constexpr uint64_t kTurnCount = uint64_t{1} << 32;

constexpr bool turn_free(uint64_t turn) { return (turn & kTurnOwner) == 0; }
constexpr bool turn_over(uint64_t turn) { return (turn & kTurnOwner) == kTurnOver; }
// The slot of the writer whose turn it is; kNoSlot if the word names none of so many.
constexpr uint32_t turn_slot(uint64_t turn, uint32_t slot_count) {
    uint64_t owner = turn & kTurnOwner;
    return owner == 0 || owner > slot_count ? kNoSlot : static_cast<uint32_t>(owner - 1);
}
// The word without its marks: the same as long as one writer has the turn.
constexpr uint64_t turn_taking(uint64_t turn) { return turn & ~(kTurnWanted | kTurnAsked); }
constexpr uint64_t turn_given_back(uint64_t turn) { return turn & ~(kTurnCount - 1); }
constexpr uint32_t turn_count(uint64_t turn) { return static_cast<uint32_t>(turn >> 32); }
// `takings`: how far the count goes on. More than one passes writers that did not come for it: see TurnTicket.
constexpr uint64_t turn_taken(uint64_t before, uint32_t slot, uint32_t takings = 1) {
    return turn_given_back(before) + takings * kTurnCount + slot + 1;
}

struct Header {
    // Identity: written by the creator before the file has a name, never again; but kPersist may be set later.
    uint64_t magic;
    uint32_t version;
    Contract contract;
    uint64_t capacity_bytes;
    uint64_t data_offset;
    uint64_t schema_offset;
    uint64_t schema_capacity_bytes;
    uint32_t slot_count;
    Word<uint32_t> flags;
    uint64_t epoch;       // wall clock at creation, ns: which life of the topic this is
    char name[256];       // NUL-terminated
    uint32_t kept_kinds;  // of how many kinds the last message is kept; 0: the file has no table of them
    uint64_t kept_entry_bytes;  // what an entry of that table takes

    // Announced by the writer once a stride. Readers check it around every copy.
    alignas(128) Word<uint64_t> claim;
    Word<uint64_t> tail;

    // Changed by the writer with every message.
    alignas(128) Word<uint64_t> commit;
    Word<uint64_t> newest;  // where the newest message begins; a hint for conflating readers

    // Whose turn it is to write.
    alignas(128) Word<uint64_t> turn;
    alignas(64) Word<uint32_t> last_ticket;  // of the writers that come for it, as it will count then; a hint

    // Removal and membership; changed under the roster lock.
    alignas(128) Word<uint32_t> retired;  // 1: this file no longer has its name, look for another
    Word<uint32_t> slots_used;            // slots at and above this index were never taken
    Word<uint32_t> membership;            // counts joins and leaves: the bell of wait_for_readers
    Word<uint32_t> schema_version;   // counts changes; its last bit says which half of the part is in use
    Word<uint64_t> schema_bytes[2];  // how much of each half is used
    Word<uint32_t> roster_pid;  // who has the roster lock, for the error of a process that waits too long
    Word<uint64_t> roster_pid_namespace;  // of that pid; 0: unknown

    // Looked at by the writer with every message, and seldom changed: on a line of their own.
    alignas(128) Word<uint64_t> bell;  // readers sleep on its low half: see bell.hpp
    Word<uint32_t> borrowing;          // 1: a reader borrows, or did: writers fence after a claim

    // Of a shared contract: see worker.hpp.
    alignas(128) Word<uint32_t> work_bell;  // changes when there may be a message to take
    Word<uint32_t> work_idle;               // 1: a worker may sleep on `work_bell`
    Word<uint64_t> returned;                // counts how often what a worker held went back to the queue

    Word<uint64_t> not_kept;  // messages that were dropped and for which the table had no entry: see kept.hpp
};

struct alignas(256) Slot {
    // Identity: written under the roster lock by the participant that joins.
    Word<uint32_t> state;  // SlotState
    Word<uint32_t> role;   // Role
    Word<uint32_t> pid;
    Word<uint32_t> uid;
    Word<uint64_t> generation;  // counts the slot's owners
    Word<uint64_t> joined_ns;
    char name[kMaxParticipantNameBytes + 1];  // NUL-terminated
    // Of an enrolled slot: where its reader waits. The waiting file's epoch, its slot there, and that slot's generation.
    Word<uint64_t> waits_in_epoch;
    Word<uint32_t> waits_in_slot;
    Word<uint32_t> waits_in_generation;  // its low 32 bits

    // The participant's own line. Only `hold` is part of the rule; the rest is statistics.
    alignas(128) Word<uint64_t> hold;  // kNoHold, or the position from which the bytes must stay
    Word<uint64_t> position;           // reader: of the next message to read
    Word<uint64_t> sequence;           // reader: number of the next message to read
    Word<uint64_t> messages;           // moved so far
    Word<uint64_t> bytes;              // payload bytes moved so far
    Word<uint64_t> lost;               // reader: messages lost
    Word<uint32_t> busy;               // writer: 1 while inside a publish; reader: 1 until it has attached
    Word<uint32_t> waits_for;          // writer: 1 + the slot it waits for, or 0
    Word<uint64_t> awaited;            // the bell of writers that wait for this hold

    // Identity again, written with the rest of it: there was no room left above.
    alignas(64) Word<uint64_t> pid_namespace;  // the inode of the namespace that the pid is of; 0: unknown
    Word<uint64_t> started_ticks;              // when the process began, clock ticks from boot; 0: unknown

    Word<uint64_t> blocked_ns;  // writer: how long its sends have waited for others

    // Of a worker: between these two positions are the messages that it may have taken and not finished.
    Word<uint64_t> taken_from;  // kNoHold: none
    Word<uint64_t> taken_until;
    Word<uint64_t> taken_ns;     // CLOCK_MONOTONIC: when it took the oldest of them
    Word<uint64_t> redelivered;  // how many messages it got that another worker had given back
};

// The last message of a kind that the ring has dropped; the message follows, as it was in the ring. See kept.hpp.
struct KeptEntry {
    Word<uint64_t> version;   // odd while it is written; 0: never written
    Word<uint64_t> position;  // where the message was
};

struct MessageHeader {
    uint64_t seq;
    int64_t time_ns;
    uint32_t size;
    uint8_t sender_size;
    uint8_t kind_size;
    uint16_t flags;  // of a shared contract: who has taken it, and how often it was given back (TaskMark)
};

static_assert(sizeof(Header) <= kHeaderBytes);
static_assert(sizeof(Slot) == 256);
static_assert(sizeof(MessageHeader) == 24);
static_assert(offsetof(Header, kept_entry_bytes) == 328);
static_assert(offsetof(Header, claim) == 384);
static_assert(offsetof(Header, commit) == 512);
static_assert(offsetof(Header, turn) == 640);
static_assert(offsetof(Header, last_ticket) == 704);
static_assert(offsetof(Header, retired) == 768);
static_assert(offsetof(Slot, waits_in_epoch) == 112);
static_assert(offsetof(Slot, awaited) == 184);
static_assert(offsetof(Slot, pid_namespace) == 192);
static_assert(offsetof(Slot, blocked_ns) == 208);
static_assert(offsetof(Header, roster_pid_namespace) == 808);
static_assert(offsetof(Slot, hold) == 128);
static_assert(offsetof(Header, bell) == 896);
static_assert(offsetof(Header, borrowing) == 904);
static_assert(offsetof(Slot, taken_from) == 216);
static_assert(offsetof(Header, work_bell) == 1024);

constexpr uint64_t align_up(uint64_t n, uint64_t to = kAlignBytes) { return (n + to - 1) & ~(to - 1); }

constexpr uint64_t kRosterOffset = kHeaderBytes;
constexpr uint64_t schema_offset(uint32_t slot_count) {
    return kRosterOffset + align_up(uint64_t{slot_count} * sizeof(Slot), kHeaderBytes);
}

// The table of kept kinds, after the schema part: a hash for each entry, then the entries.
constexpr uint64_t bytes_for_kept(uint64_t capacity_bytes) {
    return capacity_bytes / 1024 < 1024 ? 1024 : capacity_bytes / 1024;
}
constexpr uint64_t kept_hashes_bytes(uint32_t kinds) { return align_up(uint64_t{kinds} * 8, 64); }
constexpr uint64_t kept_bytes(uint32_t kinds, uint64_t entry_bytes) {
    return kept_hashes_bytes(kinds) + kinds * entry_bytes;
}

// Bytes that are locked, not written: while one is locked, the kernel vouches that its owner is alive.
constexpr int64_t kRosterLockByte = 0;
constexpr int64_t slot_lock_byte(uint32_t slot) {
    return static_cast<int64_t>(kRosterOffset + uint64_t{slot} * sizeof(Slot));
}

// Of a pool's data part: the bytes before its first buffer, and the alignment of buffers in huge pages.
constexpr uint64_t kPoolTableBytes = 4096;
constexpr uint64_t kHugePageBytes = uint64_t{1} << 21;

constexpr uint64_t payload_offset(uint64_t sender_size, uint64_t kind_size) {
    return sizeof(MessageHeader) + align_up(sender_size + kind_size);
}

// What a message occupies in the ring, and what must be free to write it: also the first word of the next header.
constexpr uint64_t footprint(uint64_t size, uint64_t sender_size, uint64_t kind_size) {
    return payload_offset(sender_size, kind_size) + align_up(size);
}
constexpr uint64_t room_for(uint64_t footprint_bytes) { return footprint_bytes + sizeof(uint64_t); }

// The largest payload with an empty envelope. A lapping contract keeps at least two messages.
constexpr uint64_t largest_message(Contract contract, uint64_t capacity_bytes) {
    uint64_t ring = traits(contract).writer_waits() ? capacity_bytes : capacity_bytes / 2;
    uint64_t most = ring - room_for(sizeof(MessageHeader));
    return most < kMaxMessageBytes ? most : kMaxMessageBytes;
}

// The same of a topic that keeps the last message of each kind: each must fit into an entry.
constexpr uint64_t largest_kept_message(uint64_t entry_bytes) {
    return entry_bytes - sizeof(KeptEntry) - sizeof(MessageHeader);
}

}  // namespace ringmain
