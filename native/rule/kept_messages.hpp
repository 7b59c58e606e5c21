// The last message of each kind, as a reader that joins late finds it: in the ring, or in the table beside it (kept.hpp).
// Owns this invariant: what is found, and the position where the reader goes on, belong together: of each kind the last message
// before that position, whatever the writers do meanwhile. Nothing in the table or the ring is trusted: each size is checked on
// a copy.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "rule/kept.hpp"
#include "rule/reader.hpp"

namespace ringmain {

// Messages in memory of their own, laid out as a ring, so that a Reader gives them to all that receives. Its positions are
// above all of a topic, so that no check of a topic's ring finds them overwritten.
class KeptMessages {
  public:
    static constexpr uint64_t kOrigin = uint64_t{1} << 62;

    explicit KeptMessages(const std::vector<std::string>& messages, std::shared_ptr<const void> topic_file)
        : topic_file_(std::move(topic_file)) {
        uint64_t bytes = 0;
        for (const std::string& message : messages) bytes += message.size();
        words_.resize(std::bit_ceil(bytes + sizeof(uint64_t)) / sizeof(uint64_t));
        auto* to = reinterpret_cast<std::byte*>(words_.data());
        for (const std::string& message : messages) {
            std::memcpy(to, message.data(), message.size());
            to += message.size();
        }
        // relaxed: this process alone has them.
        header_.tail.store(kOrigin, std::memory_order_relaxed);
        for (auto* word : {&header_.claim, &header_.commit})
            word->store(kOrigin + bytes, std::memory_order_relaxed);
        slot_.hold.store(kNoHold, std::memory_order_relaxed);
    }

    // Conflating, with `newest` at 0: it skips nothing, and counts no gap between two messages as lost.
    std::unique_ptr<Reader> reader() {
        Ring ring{header_,
                  &slot_,
                  reinterpret_cast<std::byte*>(words_.data()),
                  words_.size() * sizeof(uint64_t),
                  traits(Contract::broadcast),
                  1};
        auto made = std::make_unique<Reader>(ring, 0, Start::oldest, true);
        (void)made->attach(Start::oldest);
        return made;
    }

  private:
    std::shared_ptr<const void> topic_file_;  // stays as long as what was borrowed from us
    Header header_{};
    Slot slot_{};
    std::vector<uint64_t> words_;
};

// One look at the table and the ring.
class KeptSearch {
  public:
    explicit KeptSearch(const Ring& ring) : ring_(ring) {}

    uint64_t end = 0;     // where the reader goes on
    uint64_t number = 0;  // of the message there

    // `blocked`: a writer overwrote what was being read. Look again.
    Status look() {
        found_.clear();
        // [OLDEST] acquire: what was dropped below it is in the table. Pairs with [TAIL].
        uint64_t tail = ring_.header.tail.load(std::memory_order_acquire);
        look_at_table();
        // [OBSERVE] acquire: pairs with [COMMIT]. After the table: what it has was committed before.
        end = ring_.header.commit.load(std::memory_order_acquire) & kPositionMask;
        if (tail % kAlignBytes != 0 || tail > end || end > kMaxPosition) return Status::corrupt;
        if (end - tail > ring_.capacity_bytes) return Status::blocked;
        if (Status status = look_at_ring(tail); status != Status::ok) return status;
        for (auto& [kind, message] : found_) {
            if (!message.bytes.empty()) continue;  // from the table
            message.bytes.resize(message.size);
            copy_out(message.bytes.data(), ring_.at(message.position), message.size);
        }
        number = ring_.word_at(end).load(std::memory_order_relaxed);  // relaxed: checked by intact()
        return !intact(tail) ? Status::blocked : consistent() ? Status::ok : Status::corrupt;
    }

    // The messages that were found, in the order of their positions.
    std::vector<std::string> messages() const {
        std::map<uint64_t, const std::string*> by_position;
        for (const auto& [kind, message] : found_)
            if (message.position < end) by_position[message.position] = &message.bytes;
        std::vector<std::string> all;
        for (const auto& [position, bytes] : by_position) all.push_back(*bytes);
        return all;
    }

  private:
    struct Found {
        uint64_t position, size;
        std::string bytes = {};  // header, names and payload; empty: to be copied from the ring
    };
    const Ring& ring_;
    std::map<std::string, Found, std::less<>> found_;

    // [CHECK] as Reader::intact.
    bool intact(uint64_t position) const {
        fence(std::memory_order_acquire);
        return ring_.header.claim.load(std::memory_order_relaxed) <= position + ring_.capacity_bytes;
    }

    static uint64_t bytes_of(const MessageHeader& header) {
        return footprint(header.size, header.sender_size, header.kind_size);
    }

    static std::string_view kind_of(const MessageHeader& header, const char* names) {
        return parts_of({names + header.sender_size, header.kind_size}).kind;
    }

    void note(std::string_view kind, Found message) {
        auto there = found_.find(kind);
        if (there == found_.end())
            found_.emplace(kind, std::move(message));
        else if (there->second.position <= message.position)
            there->second = std::move(message);
    }

    // An entry that changes meanwhile is passed over: a later message of its kind is in the ring, at `tail` or after it.
    void look_at_table() {
        KeptTable table(ring_);
        for (uint32_t i = 0; i < ring_.kept_kinds; ++i) {
            const KeptEntry& entry = table.entry(i);
            // [KEPT] acquire, and again after a fence: if any byte is newer, the version has changed. Pairs with [KEEP].
            uint64_t version = entry.version.load(std::memory_order_acquire);
            if (version == 0 || version % 2 != 0) continue;
            MessageHeader header;
            copy_out(&header, table.message(i), sizeof header);
            uint64_t bytes = bytes_of(header);
            bool fits = bytes <= table.room_bytes();
            std::string message(fits ? bytes : 0, '\0');
            copy_out(message.data(), table.message(i), message.size());
            uint64_t position = entry.position.load(std::memory_order_relaxed);  // relaxed: checked below
            fence(std::memory_order_acquire);
            // acquire, since an entry is passed over: the `commit` that we read next has the later message.
            if (entry.version.load(std::memory_order_acquire) != version || !fits) continue;
            std::memcpy(message.data(), &header, sizeof header);
            std::string_view kind = kind_of(header, message.data() + sizeof header);
            note(kind, {position, bytes, message});
        }
    }

    // The sizes and kinds of the messages in the ring; their bytes are copied afterwards, of the last of each kind alone.
    Status look_at_ring(uint64_t tail) {
        char names[2 * kMaxEnvelopeNameBytes];
        for (uint64_t at = tail; at < end;) {
            Envelope e = Envelope::load(ring_, at);
            MessageHeader header{e.seq, e.time_ns, e.size, e.sender_size, e.kind_size, 0};
            copy_out(names, ring_.at(at) + sizeof header, size_t{e.sender_size} + e.kind_size);
            if (!intact(at)) return Status::blocked;
            if (e.bytes() > end - at) return Status::corrupt;
            note(kind_of(header, names), {at, e.bytes()});
            at += e.bytes();
        }
        return Status::ok;
    }

    // A buggy or hostile peer may have changed a header between our two looks at it.
    bool consistent() const {
        for (const auto& [kind, message] : found_) {
            MessageHeader header;
            std::memcpy(&header, message.bytes.data(), sizeof header);
            if (bytes_of(header) != message.bytes.size()) return false;
        }
        return true;
    }
};

// Finds the last message of each kind for a reader that has just joined, and moves the reader on to where they end.
inline Status find_kept(KeptSearch& search, Reader& reader, const std::string& topic) {
    constexpr int kMaxLooks = 1000;
    Status status = search.look();
    for (int look = 1; status == Status::blocked; ++look, status = search.look()) {
        if (look == kMaxLooks)
            throw Failure{
                Fault::timed_out,
                "the last message of each kind of topic '" + topic +
                    "' cannot be read: each time a writer overwrote the ring meanwhile. Ask for a larger "
                    "capacity, or leave out start='newest'"};
    }
    if (status != Status::ok) return status;
    (void)reader.has_more();  // it may go as far as the writers have come
    Reader::Mark there = reader.mark();
    there.position = search.end;
    there.expected = search.number;
    reader.back_to(there);
    (void)reader.release();
    return Status::ok;
}

// The same, and `kept` gives what was found.
inline Status find_kept(const Ring& ring, Reader& reader, const std::string& topic,
                        std::shared_ptr<const void> topic_file, std::shared_ptr<KeptMessages>& kept) {
    KeptSearch search(ring);
    if (Status status = find_kept(search, reader, topic); status != Status::ok) return status;
    std::vector<std::string> messages = search.messages();
    if (!messages.empty()) kept = std::make_shared<KeptMessages>(messages, std::move(topic_file));
    return Status::ok;
}

}  // namespace ringmain
