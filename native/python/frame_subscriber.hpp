// What FrameSubscriber and its frames share.
#pragma once

#include "python/frame_types.hpp"
#include "python/subscriber.hpp"

namespace ringmain::py {

struct FrameState;

// A buffer that something shows. Its destructor gives the buffer back.
struct ShownBuffer {
    Counted<PoolReader> pool;  // keeps the participant and the mapping
    uint32_t buffer = 0;
    FrameState* frame = nullptr;  // as long as that exists

    ~ShownBuffer();
};

struct FrameState {
    Counted<PoolReader> pool;  // until the block has ended
    // Made when the buffer is first shown: a frame of which only the metadata is used needs none.
    Keeper<ShownBuffer> keeper;    // none once the block has ended, unless `is_base`
    ShownBuffer* shown = nullptr;  // as long as a keeper exists, this frame's or not
    PyObject *layout = nullptr, *sender = nullptr, *kind = nullptr, *meta = nullptr;
    PyObject* meta_bytes = nullptr;
    Descriptor descriptor{};
    uint64_t seq = 0, lost = 0;
    int64_t time_ns = 0;
    bool open = true;
    bool leased = false;   // by the frame itself, not by a keeper
    bool is_base = false;  // something may show the frame and refer only to this object: see keeps_object()
};

struct FrameObject {
    PyObject_HEAD FrameState state;
};

// The Subscriber that an object receives with: the object itself, or that of a FrameSubscriber. Borrowed; nullptr: none.
PyObject* subscriber_in(PyObject* object);

FrameObject* new_frame();
// Ends the frame's block, whether it was entered or not.
void end_frame(PyObject* frame);
bool add_frame(PyObject* module);

}  // namespace ringmain::py
