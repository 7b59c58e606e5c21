// The ends of a frame topic, as far as they wait: for a buffer to fill, and for the next frame. Owns this invariant: every
// descriptor that a reader takes becomes a frame, or is counted as lost.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "frames/frames.hpp"
#include "waiting/blocking_reader.hpp"
#include "waiting/roster_wait.hpp"

namespace ringmain {

// Up to where all readers have read the descriptors. A hint: it decides which buffer is reused, not whether it may be.
uint64_t read_by_all(const Ring& descriptors);

// A buffer to fill. timed_out: readers hold all of them. not_there: this process itself has all of them, so that none would come.
template <Host H>
Outcome wait_for_buffer(PoolWriter& pool, const Ring& descriptors, Spin& spin, Deadline& deadline,
                        uint32_t& buffer, H& host) {
    auto claims = [&] { return pool.claim(read_by_all(descriptors), buffer) == Status::ok; };
    while (!claims()) {
        const Pool& there = pool.pool();
        if (pool.taken() == there.all()) return Outcome::not_there;
        if (pool.reap() && claims()) return Outcome::ready;
        int64_t left_ns = deadline.left_ns();
        if (left_ns == 0) return Outcome::timed_out;
        bool stopped = false;
        // relaxed: a hint, claim() looks again.
        auto given_back = [&, ours = pool.taken()] {
            return (there.held(std::memory_order_relaxed) | ours) != there.all();
        };
        if (!spin.until(left_ns, given_back, [&] { return stopped = !host.goes_on(); }, host) && !stopped) {
            std::vector<Bell> bells = pool.arm();
            // Not host.sleep(): the words are holds, which none but their readers may change.
            if (!bells.empty())
                host.outside([&] { sleep_on_any(bells.data(), bells.size(), std::min(kSlice_ns, left_ns)); });
        }
        if (stopped || !host.goes_on()) return Outcome::stopped;
    }
    return Outcome::ready;
}

// The pool that a descriptor of this epoch points into. not_there: it is gone.
template <Host H>
Outcome open_pool_of(const BlockingReader& reader, uint64_t epoch, std::unique_ptr<PoolReader>& pool,
                     H& host) {
    Outcome how = with_roster(host, [&](int64_t patience_ns) {
        pool = open_pool(reader.directory, reader.topic, reader.name, patience_ns);
        if (pool && pool->pool().epoch() != epoch) pool.reset();
    });
    return how == Outcome::ready && !pool ? Outcome::not_there : how;
}

// A frame whose buffer is leased, and whose message is not yet taken.
struct FoundFrame {
    View view;
    Descriptor descriptor;
};

// A reader of descriptors. One thread at a time.
struct FrameReader {
    uint64_t joined_at = 0;  // position where it joined: earlier frames do not count as lost

    // To be called whenever the reader has joined its topic.
    void joined(const BlockingReader& reader);

    // Waits for the next frame that still exists, and leases its buffer. `attach(epoch, pool)` sets the pool of that epoch: ready,
    // or not_there if it is gone; other Outcomes end the wait. Throws a Failure for a message that is no frame.
    template <ReaderHost H, class Attach>
    Outcome next(BlockingReader& reader, Deadline& deadline, FoundFrame& found, Attach attach, H& host) {
        for (;;) {
            View& view = found.view;
            bool there = reader.attached() && !reader.slow_path && reader.reader->peek(view) == Status::ok;
            if (!there) [[unlikely]]
                if (Outcome how = reader.wait(deadline, view, false, host); how != Outcome::ready) return how;
            if (!read_descriptor(reader, found)) continue;
            PoolReader* pool = nullptr;
            Outcome how = attach(found.descriptor.pool, pool);
            if (how == Outcome::ready) [[likely]]
                how = lease(reader, found, *pool);
            if (how == Outcome::not_there)
                count_lost(reader, view);
            else
                return how;
        }
    }

    // Once what else the message says was copied out: takes it. False: it was overwritten meanwhile, and the caller gives the
    // buffer back.
    static bool take(BlockingReader& reader, const FoundFrame& found, uint64_t& lost) {
        if (!reader.reader->still_whole(found.view)) [[unlikely]]
            return false;
        lost = reader.reader->take(found.view);
        reader.reader->release(reader.keep());
        return true;
    }

  private:
    // Takes the message, and throws a Failure that says why it is no frame.
    [[noreturn]] static void refuse(BlockingReader& reader, const View& view, const char* why);
    void count_lost(BlockingReader& reader, const View& view) const;

    // False: the message was overwritten meanwhile.
    static bool read_descriptor(BlockingReader& reader, FoundFrame& found) {
        Descriptor& descriptor = found.descriptor;
        const View& view = found.view;
        descriptor = {};
        copy_out(&descriptor, view.payload(), std::min<size_t>(view.size, sizeof descriptor));
        if (!reader.reader->still_whole(view)) return false;
        if (view.size < sizeof descriptor || descriptor.magic != kDescriptorMagic)
            refuse(reader, view, "is not a frame");
        if (descriptor.version != kPoolVersion)
            refuse(reader, view, "is a frame of another version of ringmain");
        return true;
    }

    static Outcome lease(BlockingReader& reader, const FoundFrame& found, PoolReader& pool) {
        const Descriptor& descriptor = found.descriptor;
        if (descriptor.buffer >= pool.pool().buffer_count() || descriptor.size > pool.pool().buffer_bytes())
            refuse(reader, found.view, "points outside its pool's buffers");
        Status status = pool.lease(descriptor.buffer, descriptor.number);
        return status == Status::ok           ? Outcome::ready
               : status == Status::taken_over ? Outcome::taken_over
                                              : Outcome::not_there;
    }
};

}  // namespace ringmain
