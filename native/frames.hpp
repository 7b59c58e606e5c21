// The pool of big buffers, and the rule of the ring applied to them. Owns this invariant: a buffer that a reader holds is
// not written.
//
//   A publisher announces that it rewrites a buffer (its `number` becomes 0) and looks at the holds: if somebody has the
//   buffer, it takes that back (the number returns) and takes another. A reader announces that it holds the buffer and
//   looks at the number: if it is not that of the descriptor, the publisher was first, the frame is
//   lost to this reader, and the hold is taken back.
//
// Numbers are never used twice in a pool, and a pool belongs to one publisher for its whole life: one that takes over or
// comes after a crash makes its own. So nobody ever repairs a buffer.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "pool_layout.hpp"
#include "ring.hpp"
#include "roster.hpp"

namespace ringmain {

// A pool's file with the sizes that were checked when it was opened.
class Pool {
    std::shared_ptr<TopicFile> topic_file_;
    uint32_t buffer_count_ = 0;
    uint64_t buffer_bytes_ = 0, stride_bytes_ = 0;

  public:
    explicit Pool(std::shared_ptr<TopicFile> topic_file);  // throws corrupt

    TopicFile& topic_file() const { return *topic_file_; }
    const std::shared_ptr<TopicFile>& shared() const { return topic_file_; }
    PoolTable& table() const { return *reinterpret_cast<PoolTable*>(topic_file_->data()); }
    uint64_t epoch() const { return topic_file_->epoch; }
    uint32_t buffer_count() const { return buffer_count_; }
    uint64_t buffer_bytes() const { return buffer_bytes_; }
    std::byte* buffer(uint32_t index) const {
        return topic_file_->data() + kPoolTableBytes + index * stride_bytes_;
    }
    uint64_t all() const { return (uint64_t{1} << buffer_count_) - 1; }
    // Who holds what, by slot; the publisher's own slot holds nothing.
    uint64_t held(std::memory_order order) const {
        uint64_t buffers = 0;
        uint32_t used =
            std::min(topic_file_->header().slots_used.load(std::memory_order_acquire), kSlotCount);
        for (uint32_t i = 0; i < used; ++i) buffers |= buffers_of(topic_file_->slot(i).hold.load(order));
        return buffers & all();  // a reader may write nonsense into its own word
    }
    // A copy of a frame without holding it: for whoever only looks. False: it was rewritten meanwhile, or before.
    bool glance(uint32_t buffer, uint64_t number, void* to, size_t size) const;
    std::string describe_holders() const;  // "reader 'x' (pid 12) holds 3, ..."
};

struct PoolRequest {
    uint32_t buffer_count = 4;
    uint64_t buffer_bytes = 0;
    uint32_t mode = 0600;
    bool huge_pages = false;
    std::string schema, name;
};

// The publisher's side. One thread at a time.
class PoolWriter {
    Pool pool_;
    std::unique_ptr<Participant> participant_;
    uint64_t newest_ = 0;  // number of the newest frame
    uint64_t taken_ = 0;   // buffers being filled, or kept by a view of ours
    struct Use {
        uint64_t number = 0;  // of the whole frame in it; 0: none
        uint64_t end = 0;     // where its descriptor ends in the topic
    };
    std::array<Use, kMaxBuffers> uses_{};

    uint32_t choose(uint64_t candidates, uint64_t read_by_all) const;

  public:
    PoolWriter(std::unique_ptr<Participant> participant);

    const Pool& pool() const { return pool_; }
    // relaxed: set before this process ran.
    bool forked() const { return pool_.topic_file().forked.load(std::memory_order_relaxed); }
    uint64_t taken() const { return taken_; }

    // A buffer to write, or `blocked`. Positions of the topic below `read_by_all` every reader is past.
    Status claim(uint64_t read_by_all, uint32_t& buffer);
    // What was claimed is whole: gives it its number, for the descriptor.
    uint64_t seal(uint32_t buffer, int64_t now_ns);
    void sent(uint32_t buffer, uint64_t descriptor_end) { uses_[buffer].end = descriptor_end; }
    // What was claimed can be claimed again: it was sent, or given up.
    void give_back(uint32_t buffer) { taken_ &= ~(uint64_t{1} << buffer); }
    // relaxed: for whoever watches.
    void count_dropped() { pool_.table().dropped.fetch_add(1, std::memory_order_relaxed); }

    // After `blocked`: buries readers that died; true if there were any.
    bool reap();
    // After `blocked`: what to sleep on. Empty: something changed meanwhile.
    std::vector<Bell> arm();
    // Leaves the pool; the mapping stays for whoever has a view.
    void leave() { participant_.reset(); }
};

// A reader's side: which buffers it holds. Lives as long as any lease. One thread at a time.
class PoolReader {
    Pool pool_;
    std::unique_ptr<Participant> participant_;
    uint64_t held_ = 0;
    std::array<uint32_t, kMaxBuffers> leases_{};

    bool announce(uint64_t buffers);

  public:
    PoolReader(std::unique_ptr<Participant> participant);
    ~PoolReader();
    PoolReader(const PoolReader&) = delete;
    PoolReader& operator=(const PoolReader&) = delete;

    const Pool& pool() const { return pool_; }
    // relaxed: set before this process ran.
    bool forked() const { return pool_.topic_file().forked.load(std::memory_order_relaxed); }

    // ok: the frame stays until release(). empty: its buffer has been reused. taken_over: our slot was given away.
    Status lease(uint32_t buffer, uint64_t number);
    void release(uint32_t buffer);
    void leave() { participant_.reset(); }
};

// Leaves all pools that this process reads, although leases live: at its end, so that files go with their last user.
void leave_all_pools();

// Makes the stream's pool, in place of the one that is there. Only for whoever has the turn in its topic.
std::unique_ptr<PoolWriter> create_pool(const std::shared_ptr<Directory>& directory,
                                        const std::string& stream, const PoolRequest& request);
// nullptr if there is none.
std::unique_ptr<PoolReader> open_pool(const std::shared_ptr<Directory>& directory, const std::string& stream,
                                      const std::string& name);

}  // namespace ringmain
