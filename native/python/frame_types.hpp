// What the frame publisher's and the frame subscriber's bindings share.
#pragma once

#include <utility>

#include "frames/frames.hpp"
#include "python/keeper.hpp"

namespace ringmain::py {

extern PyTypeObject *frame_type, *draft_type;
// Set once by ringmain.frames: how `meta` becomes bytes and back.
extern PyObject *encode_meta, *decode_meta;

bool add_frame_publisher(PyObject* module);
bool add_frame_subscriber(PyObject* module);
bool add_frame_inspection(PyObject* module);

// A shared pointer that counts without atomics: it is copied and dropped only with the GIL held. A frame costs four of
// these operations, and std::shared_ptr's locked instructions took a tenth of the time of passing a frame on.
template <class T>
class Counted {
    T* value_ = nullptr;
    size_t* owners_ = nullptr;

  public:
    Counted() = default;
    explicit Counted(std::unique_ptr<T> value) : owners_(new size_t{1}) { value_ = value.release(); }
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
        delete owners_;
        WithoutGil unlocked;  // it may leave its pool, whose roster a stopped process may have locked
        delete value_;
    }
    T* operator->() const { return value_; }
    T* get() const { return value_; }
    explicit operator bool() const { return value_ != nullptr; }
    bool operator==(const Counted& other) const { return value_ == other.value_; }
    void reset() { *this = Counted(); }
};

// Where a pool's buffers are mapped in this process: (address, bytes), or None without a pool.
template <class End>
PyObject* mapped(const Counted<End>& pool) {
    if (!pool) Py_RETURN_NONE;
    const TopicFile& file = pool->pool().topic_file();
    return Py_BuildValue("KK", reinterpret_cast<unsigned long long>(file.data()), file.capacity_bytes);
}

// The arguments of a function that takes only `timeout`, which stays as it is if it is not given. False: raised.
inline bool parse_only_timeout(const char* function, PyObject* const* args, Py_ssize_t count, PyObject* names,
                               int64_t& timeout_ns) {
    if (count == 0 && !names) return true;
    PyObject* given[1] = {};
    static const char* const kNames[] = {"timeout"};
    return parse_arguments(function, args, count, names, kNames, 0, given, 1) &&
           parse_timeout(given[0], timeout_ns);
}

}  // namespace ringmain::py
