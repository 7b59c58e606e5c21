// What a reader of a shared contract has taken and not finished. Owns this invariant: a message that its caller did not get, or
// whose work failed, is given back.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/room.hpp"
#include "rule/worker.hpp"

namespace ringmain {

// What a face keeps beside a message that it gave to its caller; dropped with the message.
using Note = std::unique_ptr<void, void (*)(void*)>;
inline Note no_note() {
    return {nullptr, [](void*) {}};
}

struct Taken {
    View view;
    uint32_t returns;  // how often it was given back before
    Note note = no_note();
};

// Messages in the order in which they were taken, and where the first of them lies: that is asked for with every message.
class TakenMessages {
    std::vector<Taken> messages_;
    size_t gone_ = 0;  // so many at the front were removed: mostly it is the oldest that is done
    uint64_t first_ = kNoHold;
    bool ordered_ = true;  // they lie in this order, too: none was given back by another worker

    void find_first() {
        first_ = kNoHold;
        for (const Taken& taken : *this) {
            first_ = std::min(first_, taken.view.position);
            if (ordered_) break;
        }
    }

  public:
    uint64_t first() const { return first_; }
    bool empty() const { return messages_.size() == gone_; }
    size_t size() const { return messages_.size() - gone_; }
    Taken& operator[](size_t i) { return messages_[gone_ + i]; }
    Taken& back() { return messages_.back(); }
    Taken* begin() { return messages_.data() + gone_; }
    Taken* end() { return messages_.data() + messages_.size(); }

    // Before a message is taken: then it can be added.
    void make_room() { ringmain::make_room(messages_); }
    void add(Taken taken) {
        uint64_t position = taken.view.position;
        if (empty()) clear();
        ordered_ = ordered_ && (empty() || position > back().view.position);
        first_ = std::min(first_, position);
        messages_.push_back(std::move(taken));
    }
    Taken remove(Taken* at) {
        Taken removed = std::move(*at);
        if (at == begin() && size() > 1)
            ++gone_;
        else
            messages_.erase(messages_.begin() + (at - messages_.data()));
        if (gone_ > size())
            messages_.erase(messages_.begin(),
                            messages_.begin() + static_cast<ptrdiff_t>(std::exchange(gone_, 0)));
        if (removed.view.position == first_) find_first();
        return removed;
    }
    Taken remove_last() { return remove(end() - 1); }
    void keep_only(size_t count) {
        while (size() > count) messages_.pop_back();
        find_first();
    }
    void clear() {
        messages_.clear();
        gone_ = 0;
        first_ = kNoHold;
        ordered_ = true;
    }
};

// One thread at a time. `leases`: positions of what is borrowed, and of what was made from it.
struct Unfinished {
    Worker worker;
    TakenMessages received;        // done when the caller asks for more, or closes
    TakenMessages fresh;           // taken in this call
    TakenMessages lent;            // borrowed
    uint64_t consumed_before = 0;  // Reader::messages() when this call began to take
    int64_t looked_for_dead_ns = 0;
    uint32_t found_over = 0;  // ringmain::found_over() when we looked last

    Unfinished(const Ring& ring, uint32_t slot) : worker(ring, slot) {}

    // The position from which bytes are still needed.
    uint64_t keep(const std::vector<uint64_t>& leases) const {
        uint64_t first = std::min({received.first(), fresh.first(), lent.first()});
        for (uint64_t position : leases) first = std::min(first, position);
        return first;
    }
    // A call begins: the messages of the calls before it are done.
    void finish_received() {
        for (const Taken& taken : received) worker.finish(taken.view);
        received.clear();  // the hold moves when the next message is taken
    }
    void give_back(TakenMessages& taken, size_t from, bool counts) {
        for (size_t i = from; i < taken.size(); ++i) worker.give_back(taken[i].view, counts);
        taken.keep_only(from);
    }
    // And ends: what its caller does not get goes back; all of it, as one more delivery that failed, if the call did. The caller
    // gets as many as Reader::take() was called for.
    void end_of_call(uint64_t messages, bool failed, const std::vector<uint64_t>& leases) {
        if (fresh.empty()) return;
        give_back(fresh, std::min(fresh.size(), static_cast<size_t>(messages - consumed_before)), false);
        if (failed) give_back(fresh, 0, true);
        // What was received before is finished since the call began. Swapped, as this is a destructor's to do: it needs no memory.
        std::swap(received, fresh);
        fresh.clear();
        worker.release(keep(leases));
    }

    // A message of this call is lent; returns how often it was given back before. Among those that are lent there is room for it.
    uint32_t lend() {
        lent.add(fresh.remove_last());
        return lent.back().returns;
    }
    // Its use has ended.
    void end_loan(uint64_t position, bool failed, const std::vector<uint64_t>& leases) {
        auto at = std::ranges::find_if(lent, [&](const Taken& t) { return t.view.position == position; });
        if (at == lent.end()) return;
        failed ? worker.give_back(at->view, true) : worker.finish(at->view);
        lent.remove(at);
        worker.release(keep(leases));
    }
    // One that was received goes to another worker.
    void reject(Taken* at, const std::vector<uint64_t>& leases) {
        worker.give_back(at->view, true);
        received.remove(at);
        worker.release(keep(leases));
    }
    void give_back_received(const std::vector<uint64_t>& leases) {
        give_back(received, 0, true);
        worker.release(keep(leases));
    }
};

}  // namespace ringmain
