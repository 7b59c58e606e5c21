// What the two halves of the frames' binding share.
#pragma once

#include <utility>

#include "frames.hpp"
#include "py.hpp"

namespace ringmain::py {

// Set once by ringmain.frames: the classes of frames, and how `meta` becomes bytes and back.
extern PyTypeObject *frame_class, *draft_class;
extern PyObject *encode_meta, *decode_meta;

bool add_frame_publisher(PyObject* module);
bool add_frame_subscriber(PyObject* module);
bool add_frame_inspection(PyObject* module);

// Counts its owners without atomics: whoever copies or drops one has the GIL. A frame costs four of these operations, and
// std::shared_ptr's locked instructions were a tenth of handing one over.
template <class T>
class Counted {
    T* value_ = nullptr;
    size_t* owners_ = nullptr;

  public:
    Counted() = default;
    explicit Counted(std::unique_ptr<T> value) : value_(value.release()), owners_(new size_t{1}) {}
    Counted(const Counted& other) : value_(other.value_), owners_(other.owners_) {
        if (owners_) ++*owners_;
    }
    Counted(Counted&& other) noexcept
        : value_(std::exchange(other.value_, nullptr)), owners_(std::exchange(other.owners_, nullptr)) {}
    Counted& operator=(Counted other) noexcept {
        std::swap(value_, other.value_);
        std::swap(owners_, other.owners_);
        return *this;
    }
    ~Counted() {
        if (!owners_ || --*owners_ > 0) return;
        delete value_;
        delete owners_;
    }
    T* operator->() const { return value_; }
    explicit operator bool() const { return value_ != nullptr; }
    bool operator==(const Counted& other) const { return value_ == other.value_; }
    void reset() { *this = Counted(); }
};

}  // namespace ringmain::py
