// What FramePublisher and its drafts share.
#pragma once

#include "python/frame_types.hpp"
#include "python/measured_copy.hpp"
#include "python/publisher.hpp"

namespace ringmain::py {

struct FramePublisherState {
    PyObject* publisher = nullptr;  // of the descriptors
    Counted<PoolWriter> pool;
    PyObject* layout = nullptr;
    bool drops = false;  // when no buffer is free
    bool fixed = false;  // do all frames have the same size?
    bool closing = false;
    uint64_t next_id = 0, dropped = 0;
    uint32_t open_drafts = 0;
    std::shared_ptr<std::byte[]> scratch;  // memory for a frame that will be dropped
    CopyChoice copying;                    // how send() copies; used with the GIL held
    CallingThread making;                  // the thread that makes a pool after a fork
};

struct FramePublisherObject {
    PyObject_HEAD FramePublisherState* state;
};

// A buffer that something may write. Its destructor lets it be claimed again.
struct WritableBuffer {
    Counted<PoolWriter> pool;              // keeps the mapping; none: the buffer is not the pool's
    std::shared_ptr<std::byte[]> scratch;  // in place of a buffer
    uint32_t buffer = 0;

    ~WritableBuffer() {
        if (pool) pool->give_back(buffer);
    }
};

struct DraftState {
    PyObject* owner = nullptr;  // the FramePublisher
    Counted<PoolWriter> pool;
    Keeper<WritableBuffer> keeper;  // made when the buffer is first shown; none once the block has ended,
    bool is_base = false;           // unless something may refer only to this object: see keeps_object()
    std::shared_ptr<std::byte[]> scratch;  // in place of a buffer, if the frame is dropped
    std::byte* data = nullptr;
    uint64_t size = 0;
    uint32_t buffer = 0;
    bool open = true, taken = false, valid = true;
    PyObject *meta = nullptr, *arrays = nullptr;  // `arrays`: weak references to those we made
    uint64_t id = 0, seq = 0;
    int64_t start_ns = 0;
    int64_t end_ns = 0;  // 0: when it is sent
    bool sent = false;
};

struct DraftObject {
    PyObject_HEAD DraftState state;
};

inline FramePublisherState& publisher_of(PyObject* self) {
    return *reinterpret_cast<FramePublisherObject*>(self)->state;
}
inline DraftState& draft_of(PyObject* self) { return reinterpret_cast<DraftObject*>(self)->state; }

DraftObject* new_draft();
bool add_frame_draft(PyObject* module);

}  // namespace ringmain::py
