// A frame topic in shared memory, as structs. Offsets and constants only; behaviour is in frames.hpp.
//
// A frame topic is two files: a topic, whose messages are descriptors, and a pool of buffers, which they point into. The
// pool's control part is that of a topic (layout.hpp): the same header, with contract `frames`, the same roster, and as
// schema the layout of a frame. Its data part is mapped once, writable only for the publisher:
//
//   data_offset        + 4096                       + buffer_stride_bytes
//   +-----------------+----------------------------+----------------------------+----
//   | PoolTable       | buffer 0                   | buffer 1                   | ...
//   +-----------------+----------------------------+----------------------------+----
//
// The `hold` word of each reader's slot in the pool's roster says which buffers it holds, as a set: bit 3 + i is 0 while
// buffer i is held. So "holds nothing" is kNoHold as in a topic, bit 0 says that a writer sleeps as in a topic, and the
// roster's code for joining, leaving, reaping and waking is used unchanged.
//
// docs/spec/frames.md holds these tables in prose; a test compares the two.
#pragma once

#include "layout.hpp"

namespace ringmain {

constexpr uint64_t kPoolMagic = 0x4c4f4f504d415246;  // "FRAMPOOL"
constexpr uint32_t kDescriptorMagic = 0x454d5246;    // "FRME"
constexpr uint32_t kPoolVersion = 1;                 // of the table and of the descriptor
constexpr uint32_t kMaxBuffers = 60;                 // what fits a page, and the bits of a hold
constexpr uint64_t kMaxBufferBytes = uint64_t{1} << 36;
constexpr uint32_t kHoldShift = 3;

constexpr uint64_t hold_of(uint64_t buffers) { return kNoHold & ~(buffers << kHoldShift); }
constexpr uint64_t buffers_of(uint64_t hold) { return (~hold & kPositionMask) >> kHoldShift; }

struct alignas(64) BufferState {
    Word<uint64_t> number;  // of the frame in the buffer, counted from 1; 0 while it is being written
};

struct PoolTable {
    // Identity: written by the publisher before the file has a name, never again.
    uint64_t magic;
    uint32_t version;
    uint32_t buffer_count;
    uint64_t buffer_bytes;
    uint64_t buffer_stride_bytes;  // from one buffer to the next

    // Statistics; changed by the publisher with every frame.
    alignas(128) Word<uint64_t> frames;  // published so far
    Word<uint64_t> dropped;              // not published because no buffer was free
    Word<int64_t> last_ns;               // when the newest was published
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
    uint64_t pool;    // epoch of the pool: which one the buffer is in
    uint64_t number;  // of the frame in the pool; the buffer's own must be the same
    uint64_t id;      // from here on, the user's
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
