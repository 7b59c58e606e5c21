// A frame topic in shared memory, as structs. Offsets and constants only; behaviour is in frames.hpp.
//
// A frame topic is two files: a topic whose messages are descriptors, and a pool of buffers that they refer to. The
// pool's control part is that of a topic (layout.hpp): the same header, with contract `frames`, the same roster, and the
// layout of a frame as its schema. Its data part is mapped once, and only the publisher can write to it:
//
//   data_offset        + 4096                       + buffer_stride_bytes
//   +-----------------+----------------------------+----------------------------+----
//   | PoolTable       | buffer 0                   | buffer 1                   | ...
//   +-----------------+----------------------------+----------------------------+----
//
// The buffers that a reader holds are a set of bits in the `hold` word of its slot in the pool's roster: bit 3 + i is 0
// while buffer i is held. As in a topic, kNoHold means that nothing is held and bit 0 that a writer sleeps, so joining,
// leaving, reaping and waking are the roster's own, unchanged.
//
// docs/spec/frames.md has the same tables; a test compares the two.
#pragma once

#include "format/layout.hpp"

namespace ringmain {

constexpr uint64_t kPoolMagic = 0x4c4f4f504d415246;  // "FRAMPOOL"
constexpr uint32_t kDescriptorMagic = 0x454d5246;    // "FRME"
constexpr uint32_t kPoolVersion = 1;                 // of the table and of the descriptor
constexpr uint32_t kMaxBuffers = 60;                 // as many as fit into a page and into a hold
constexpr uint64_t kMaxBufferBytes = uint64_t{1} << 36;
constexpr uint32_t kHoldShift = 3;

constexpr uint64_t hold_of(uint64_t buffers) { return kNoHold & ~(buffers << kHoldShift); }
constexpr uint64_t buffers_of(uint64_t hold) { return (~hold & kPositionMask) >> kHoldShift; }

struct alignas(64) BufferState {
    Word<uint64_t> number;  // of the frame in the buffer, counted from 1; 0 while it is being written
};

struct PoolTable {
    // Identity: written by the publisher once, before the file has a name.
    uint64_t magic;
    uint32_t version;
    uint32_t buffer_count;
    uint64_t buffer_bytes;
    uint64_t buffer_stride_bytes;  // from one buffer to the next

    // Statistics for observers; updated by the publisher with every frame.
    alignas(128) Word<uint64_t> frames;  // published so far
    Word<uint64_t> dropped;              // not published because no buffer was free
    Word<int64_t> last_ns;               // when the newest was published: CLOCK_MONOTONIC
    Word<int64_t> interval_ns;           // between frames, averaged over about the last eight

    alignas(256) BufferState buffers[kMaxBuffers];
};

// The payload of a descriptor; `meta` follows it, as MessagePack.
struct Descriptor {
    uint32_t magic;
    uint16_t version;
    uint16_t flags;
    uint32_t buffer;
    uint32_t reserved;
    uint64_t pool;    // epoch of the pool that the buffer is in
    uint64_t number;  // of the frame in the pool; must equal the number of the buffer
    uint64_t id;      // this and what follows is set by the user
    int64_t start_ns;
    int64_t end_ns;
    uint64_t size;  // bytes of the buffer that are used
};

enum DescriptorFlags : uint16_t { kFrameValid = 1 };

static_assert(sizeof(PoolTable) == kPoolTableBytes);
static_assert(sizeof(BufferState) == 64);
static_assert(sizeof(Descriptor) == 64);
static_assert(offsetof(PoolTable, frames) == 128);
static_assert(offsetof(PoolTable, buffers) == 256);
static_assert(buffers_of(hold_of(0)) == 0 && hold_of(0) == kNoHold);
static_assert(buffers_of(hold_of(0b1011)) == 0b1011);
static_assert(kMaxBuffers + kHoldShift <= 64);

}  // namespace ringmain
