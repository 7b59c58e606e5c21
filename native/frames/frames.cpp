#include "frames/frames.hpp"

#include <pthread.h>
#include <unistd.h>

#include <mutex>

#include "topic/endpoint.hpp"
#include "topic/reaping.hpp"

namespace ringmain {

using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

Pool::Pool(std::shared_ptr<TopicFile> topic_file) : topic_file_(std::move(topic_file)) {
    const PoolTable& t = table();
    buffer_count_ = t.buffer_count;
    buffer_bytes_ = t.buffer_bytes;
    stride_bytes_ = t.buffer_stride_bytes;
    bool sane = t.magic == kPoolMagic && t.version == kPoolVersion && buffer_count_ >= 1 &&
                buffer_count_ <= kMaxBuffers && buffer_bytes_ <= stride_bytes_ &&
                stride_bytes_ <= 2 * kMaxBufferBytes &&
                kPoolTableBytes + buffer_count_ * stride_bytes_ <= topic_file_->capacity_bytes;
    if (!sane)
        throw Failure{Fault::corrupt,
                      "the pool of frame topic '" + topic_file_->topic +
                          "' is refused: its table is damaged, of another version, or larger than the "
                          "file. Close its participants and unlink the topic"};
}

bool Pool::glance(uint32_t buffer, uint64_t number, void* to, size_t size) const {
    const Word<uint64_t>& there = table().buffers[buffer].number;
    // [GLANCE] acquire: the frame's pixels are visible; pairs with [NUMBER]. Checked again after a fence: if a copied
    // pixel belonged to a later frame, the number would have changed; pairs with [REWRITE].
    if (there.load(memory_order_acquire) != number) return false;
    copy_out(to, this->buffer(buffer), size);
    fence(memory_order_acquire);
    return there.load(memory_order_relaxed) == number;  // relaxed: the fence orders it
}

std::string Pool::describe_holders() const {
    std::string text;
    uint32_t used = topic_file_->slots_used();
    for (uint32_t i = 0; i < used; ++i) {
        // relaxed: only for an error message.
        uint64_t buffers = buffers_of(topic_file_->slot(i).hold.load(memory_order_relaxed));
        if (!buffers || !slot_taken(*topic_file_, i)) continue;
        text += (text.empty() ? "" : ", ") + look_at(*topic_file_, i, true).describe() + " holds " +
                std::to_string(std::popcount(buffers));
    }
    return text;
}

// -------------------------------------------------------------------------------------------- publisher

PoolWriter::PoolWriter(std::unique_ptr<Participant> participant)
    : pool_(participant->shared()), participant_(std::move(participant)) {}

// Prefers the buffer most likely to be in the cache whose frame no reader still needs: one that all readers have read,
// most recently written first. Then a buffer never used, then the oldest frame. The newest frame comes last, because a
// reader that joins late wants it.
uint32_t PoolWriter::choose(uint64_t candidates, uint64_t read_by_all) const {
    auto rank = [&](uint32_t b) -> std::pair<int, uint64_t> {
        const Use& use = uses_[b];
        if (use.number == 0) return {2, 0};
        if (use.number == newest_) return {0, 0};
        if (use.end <= read_by_all) return {3, use.number};
        return {1, UINT64_MAX - use.number};
    };
    uint32_t best = static_cast<uint32_t>(std::countr_zero(candidates));
    for (uint64_t rest = candidates & (candidates - 1); rest; rest &= rest - 1)
        if (uint32_t b = static_cast<uint32_t>(std::countr_zero(rest)); rank(b) > rank(best)) best = b;
    return best;
}

Status PoolWriter::claim(uint64_t read_by_all, uint32_t& buffer) {
    // relaxed: a hint for the choice. [INSPECT] decides.
    uint64_t candidates = pool_.all() & ~taken_ & ~pool_.held(memory_order_relaxed);
    while (candidates) {
        uint32_t chosen = choose(candidates, read_by_all);
        uint64_t bit = uint64_t{1} << chosen;
        Word<uint64_t>& number = pool_.table().buffers[chosen].number;
        CRASH_POINT("frame: buffer chosen");
        // [REWRITE] seq_cst: announced before we read the holds. With [INSPECT], [LEASE] and [MATCH], all seq_cst, at
        // least one side sees the other. A fence would cost more and is not needed, since only these words take part.
        number.exchange(0, memory_order_seq_cst);
        // release: also before any pixel changes, for [GLANCE], which holds nothing. Free on x86.
        fence(memory_order_release);
        CRASH_POINT("frame: rewriting announced");
        // [INSPECT] seq_cst: after [REWRITE]. If a hold is gone, its reader has finished reading the pixels: pairs with
        // [RETURN].
        if (!(pool_.held(memory_order_seq_cst) & bit)) {
            uses_[chosen] = {};
            taken_ |= bit;
            buffer = chosen;
            return Status::ok;
        }
        // A reader was first. Nothing was written: the frame is still complete, and can be leased again.
        number.store(uses_[chosen].number, memory_order_release);
        candidates &= ~bit;
    }
    return Status::blocked;
}

uint64_t PoolWriter::seal(uint32_t buffer) {
    PoolTable& table = pool_.table();
    uses_[buffer].number = ++newest_;
    // [NUMBER] release: makes the pixels visible to a reader that finds this number. Pairs with [MATCH].
    table.buffers[buffer].number.store(newest_, memory_order_release);
    // relaxed, all four: statistics.
    int64_t now_ns = monotonic_ns(), last_ns = table.last_ns.load(memory_order_relaxed);
    int64_t average_ns = table.interval_ns.load(memory_order_relaxed);
    int64_t interval_ns = last_ns && now_ns > last_ns ? now_ns - last_ns : average_ns;
    table.interval_ns.store(average_ns ? average_ns + (interval_ns - average_ns) / 8 : interval_ns,
                            memory_order_relaxed);
    table.last_ns.store(now_ns, memory_order_relaxed);
    table.frames.store(newest_, memory_order_relaxed);
    CRASH_POINT("frame: numbered, not sent");
    return newest_;
}

bool PoolWriter::reap() {
    bool any = false;
    const TopicFile& s = pool_.topic_file();
    uint32_t used = s.slots_used();
    // relaxed: a reader that holds nothing does not block us; the kernel tells whether the others are alive.
    for (uint32_t i = 0; i < used; ++i)
        if (i != participant_->slot() && buffers_of(s.slot(i).hold.load(memory_order_relaxed)))
            any |= reap_if_dead(s, i);
    return any;
}

std::vector<Bell> PoolWriter::arm() {
    std::vector<Bell> bells;
    const TopicFile& s = pool_.topic_file();
    uint32_t used = s.slots_used();
    uint64_t held = 0;
    for (uint32_t i = 0; i < used && bells.size() < kMaxBells; ++i) {
        Word<uint64_t>& word = s.slot(i).hold;
        if (!buffers_of(word.load(memory_order_relaxed))) continue;  // relaxed: the next line reads it again
        // seq_cst: either the holder's exchange returns our flag, or we see its new hold.
        uint64_t seen = word.fetch_or(kSleeper, memory_order_seq_cst) | kSleeper;
        held |= buffers_of(seen);
        bells.push_back({word.futex(), static_cast<uint32_t>(seen)});
    }
    if (((held | taken_) & pool_.all()) != pool_.all()) bells.clear();
    return bells;
}

// ----------------------------------------------------------------------------------------------- reader

namespace {

// Never destroyed: leases may exist until the process ends. A forked child begins with an empty list: the pools of its
// parent are not its own to leave, and a thread of the parent may have held the lock.
struct OpenReaders {
    std::mutex mutex;
    std::vector<PoolReader*> readers;

    static OpenReaders* current;
    static OpenReaders& all() { return *current; }
};

OpenReaders* OpenReaders::current = [] {
    pthread_atfork(nullptr, nullptr, [] { OpenReaders::current = new OpenReaders; });
    return new OpenReaders;
}();

}  // namespace

PoolReader::PoolReader(std::unique_ptr<Participant> participant)
    : pool_(participant->shared()), participant_(std::move(participant)) {
    pool_.topic_file().populate(false);
    std::lock_guard lock(OpenReaders::all().mutex);
    OpenReaders::all().readers.push_back(this);
}

PoolReader::~PoolReader() {
    std::lock_guard lock(OpenReaders::all().mutex);
    std::erase(OpenReaders::all().readers, this);
}

void leave_all_pools() {
    std::lock_guard lock(OpenReaders::all().mutex);
    for (PoolReader* reader : OpenReaders::all().readers) reader->leave();
}

// False: the slot is no longer ours.
bool PoolReader::announce(uint64_t buffers) {
    Slot& own = participant_->own();
    uint64_t seen = hold_of(held_);
    // Compared, not just exchanged: if the slot has a new owner, its holds must not change.
    // [LEASE] / [RETURN] seq_cst. A lease is announced before we read the number; see [REWRITE]. A return comes after
    // all our reads of the pixels; pairs with [INSPECT].
    while (!own.hold.compare_exchange(seen, hold_of(buffers), memory_order_seq_cst))
        if (buffers_of(seen) != held_) return false;
    held_ = buffers;
    CRASH_POINT("frame: hold changed, bell not rung");
    if (seen & kSleeper) wake(own.hold.futex());
    // relaxed: it only detects accidents, such as a participant whose lock is gone although it lives.
    return own.generation.load(memory_order_relaxed) == participant_->generation();
}

Status PoolReader::lease(uint32_t buffer, uint64_t number) {
    if (!participant_) return Status::taken_over;
    uint64_t bit = uint64_t{1} << buffer;
    if (!(held_ & bit)) {
        if (!announce(held_ | bit)) return Status::taken_over;
        CRASH_POINT("frame: lease announced");
    }
    // [MATCH] seq_cst, after [LEASE]: if it is the descriptor's number, the publisher has not begun to rewrite, and will
    // see our lease before it does. Pairs with [NUMBER] and [REWRITE].
    if (pool_.table().buffers[buffer].number.load(memory_order_seq_cst) == number) {
        ++leases_[buffer];
        return Status::ok;
    }
    if (leases_[buffer] == 0) announce(held_ & ~bit);
    return Status::empty;
}

void PoolReader::release(uint32_t buffer) {
    if (--leases_[buffer] == 0 && participant_ && !forked()) announce(held_ & ~(uint64_t{1} << buffer));
}

// ------------------------------------------------------------------------------------------ open, create

namespace {

std::shared_ptr<TopicFile> lay_out(const std::shared_ptr<Directory>& directory, const std::string& topic,
                                   const PoolRequest& request) {
    uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    uint64_t stride = align_up(request.buffer_bytes, request.huge_pages ? kHugePageBytes : page);
    TopicOptions options;
    options.contract = Contract::frames;
    options.capacity_bytes = align_up(kPoolTableBytes + request.buffer_count * stride, page);
    options.mode = request.mode;
    options.huge_pages = request.huge_pages;
    options.slot_count = request.slot_count;
    options.schema = request.schema;
    std::shared_ptr<TopicFile> topic_file = TopicFile::create(directory, topic, options);
    PoolTable& table = *reinterpret_cast<PoolTable*>(topic_file->data());
    table.magic = kPoolMagic;
    table.version = kPoolVersion;
    table.buffer_count = request.buffer_count;
    table.buffer_bytes = request.buffer_bytes;
    table.buffer_stride_bytes = stride;
    return topic_file;
}

// Removes the name of an existing pool. Its readers keep the buffers that they hold.
void retire_old(const std::shared_ptr<Directory>& directory, const std::string& topic, int64_t patience_ns) {
    try {
        std::shared_ptr<TopicFile> old = TopicFile::open(directory, topic, Access::read, FileKind::pool);
        RosterLock lock(*old, patience_ns);
        if (!old->retired() && old->has_its_name()) old->retire();
    } catch (const Failure& failure) {
        if (failure.fault != Fault::not_found) throw;
    }
}

}  // namespace

std::unique_ptr<PoolWriter> create_pool(const std::shared_ptr<Directory>& directory, const std::string& topic,
                                        const PoolRequest& request) {
    constexpr int kAttempts = 100;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        retire_old(directory, topic, request.patience_ns);
        CRASH_POINT("frame: old pool retired, none there");
        std::shared_ptr<TopicFile> topic_file = lay_out(directory, topic, request);
        std::unique_ptr<Participant> participant;
        {
            RosterLock lock(*topic_file);
            participant = std::make_unique<Participant>(topic_file, Role::writer, request.name, false, lock);
        }
        auto writer = std::make_unique<PoolWriter>(std::move(participant));
        if (topic_file->give_name()) return writer;
    }
    throw Failure{Fault::timed_out,
                  "the pool of frame topic '" + topic + "' was replaced by others each time it was made"};
}

std::unique_ptr<PoolReader> open_pool(const std::shared_ptr<Directory>& directory, const std::string& topic,
                                      const std::string& name, int64_t patience_ns) {
    std::unique_ptr<Participant> participant =
        join_as_reader(directory, topic, name, ObserveMode::never, FileKind::pool, patience_ns);
    return participant ? std::make_unique<PoolReader>(std::move(participant)) : nullptr;
}

}  // namespace ringmain
