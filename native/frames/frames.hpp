// The pool of large buffers. Invariant: a buffer that a reader holds is not written.
//
//   The publisher announces that it rewrites a buffer (sets its `number` to 0), then reads the holds. If a reader holds
//   the buffer, the publisher restores the number and tries another buffer. A reader announces that it holds a buffer,
//   then reads its number. If that is not the descriptor's number, the publisher was first: the frame is lost to this
//   reader, and the reader withdraws its hold.
//
// A number is used only once in a pool, and a pool has one publisher: a publisher that takes over, or follows one that
// crashed, makes a new pool. So no buffer ever has to be repaired.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "format/pool_layout.hpp"
#include "rule/ring.hpp"
#include "topic/participant.hpp"

namespace ringmain {

// A pool's file, with sizes that were checked when it was opened.
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
    // The buffers that readers hold, as a set of bits; the publisher's own slot holds none.
    uint64_t held(std::memory_order order) const {
        uint64_t buffers = 0;
        uint32_t used = topic_file_->slots_used();
        for (uint32_t i = 0; i < used; ++i) buffers |= buffers_of(topic_file_->slot(i).hold.load(order));
        return buffers & all();  // a faulty reader may have written anything into its word
    }
    // Copies a frame without holding it, for observers. False: it was rewritten before or during the copy.
    bool glance(uint32_t buffer, uint64_t number, void* to, size_t size) const;
    std::string describe_holders() const;  // "reader 'x' (pid 12) holds 3, ..."
};

struct PoolRequest {
    uint32_t buffer_count = 4;
    uint64_t buffer_bytes = 0;
    uint32_t mode = 0600;
    bool huge_pages = false;
    uint32_t slot_count = kDefaultSlotCount;
    std::string schema, name;
    int64_t patience_ns = RosterLock::kPatience_ns;  // for the roster lock of the pool before it
};

// The publisher's side. One thread at a time.
class PoolWriter {
    Pool pool_;
    std::unique_ptr<Participant> participant_;
    uint64_t newest_ = 0;  // number of the newest frame
    uint64_t taken_ = 0;   // buffers being filled, or referred to by our views
    struct Use {
        uint64_t number = 0;  // of the complete frame in it; 0: none
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

    // A buffer to write, or `blocked`. All readers have read the topic up to position `read_by_all`.
    Status claim(uint64_t read_by_all, uint32_t& buffer);
    // The claimed buffer is complete: gives it its number, for the descriptor.
    uint64_t seal(uint32_t buffer);
    void sent(uint32_t buffer, uint64_t descriptor_end) { uses_[buffer].end = descriptor_end; }
    // The claimed buffer can be claimed again: its frame was sent or discarded.
    void give_back(uint32_t buffer) { taken_ &= ~(uint64_t{1} << buffer); }
    // relaxed: a statistic.
    void count_dropped() { pool_.table().dropped.fetch_add(1, std::memory_order_relaxed); }

    // After `blocked`: reaps readers that died; true if there were any.
    bool reap();
    // After `blocked`: what to sleep on. Empty: a buffer was released meanwhile.
    std::vector<Bell> arm();
    // Leaves the pool; it stays mapped for views that still exist.
    void leave() { participant_.reset(); }
};

// A reader's side: which buffers it holds. Exists as long as any lease. One thread at a time.
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

    // ok: the frame stays until release(). empty: its buffer has been reused. taken_over: our slot is another's now.
    Status lease(uint32_t buffer, uint64_t number);
    void release(uint32_t buffer);
    void leave() { participant_.reset(); }
};

// Leaves all pools that this process reads, even if leases exist: for its end, so that no file is left behind.
void leave_all_pools();

// Makes the topic's pool and replaces an existing one. Only for the process that is the topic's writer.
std::unique_ptr<PoolWriter> create_pool(const std::shared_ptr<Directory>& directory, const std::string& topic,
                                        const PoolRequest& request);
// nullptr if there is none.
std::unique_ptr<PoolReader> open_pool(const std::shared_ptr<Directory>& directory, const std::string& topic,
                                      const std::string& name,
                                      int64_t patience_ns = RosterLock::kPatience_ns);

}  // namespace ringmain
