#include "explore/kept_check.hpp"

#include "explore/actors.hpp"
#include "explore/checks.hpp"
#include "rule/kept_messages.hpp"

namespace ringmain::explore {

namespace {

// Is there no later message of the kind before number `end`?
bool is_last_of_kind(uint64_t seq, uint64_t end) {
    for (uint64_t later = seq + 1; later < end; ++later)
        if (topic.kind_of(later) == topic.kind_of(seq)) return false;
    return true;
}

}  // namespace

void find_kept_and_check(const Ring& ring, Reader& reader, int file) {
    KeptSearch search(ring);
    require(find_kept(search, reader, "") == Status::ok, "a reader finds the table or the ring corrupt");
    uint64_t next = 0;
    auto pass_to = [&](uint64_t seq) {
        for (; next < seq; ++next)
            require(!is_last_of_kind(next, search.number), "the last message of a kind was not found");
    };
    for (const std::string& message : search.messages()) {
        MessageHeader header;
        uint64_t id;
        std::memcpy(&header, message.data(), sizeof header);
        std::memcpy(&id, message.data() + message.size() - sizeof id, sizeof id);
        pass_to(header.seq);
        require(header.seq == next && is_last_of_kind(next, search.number),
                "another message than the last of its kind was found");
        note_delivered({file, header.seq}, id);
        ++next;
    }
    pass_to(search.number);
}

}  // namespace ringmain::explore
