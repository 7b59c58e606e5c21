// What a subscriber has taken from a shared contract and not finished. Owns this invariant: a message that a caller did not
// get, or whose block raised, is given back.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "py.hpp"
#include "worker.hpp"

namespace ringmain::py {

struct SubscriberState;

struct Taken {
    View view;
    uint32_t returns;  // how often it was given back before
    Ref object;        // what the caller got, for reject()
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

struct Work {
    Worker worker;
    TakenMessages unfinished;      // received: done when the caller asks for more, or closes
    TakenMessages fresh;           // taken in this call
    TakenMessages lent;            // borrowed
    uint64_t consumed_before = 0;  // Reader::messages() when this call began to take
    int64_t looked_for_dead_ns = 0;

    Work(const Ring& ring, uint32_t slot) : worker(ring, slot) {}
    // The position from which bytes are still needed. `leases`: of borrowed messages, and what was made from them.
    uint64_t keep(const std::vector<uint64_t>& leases) const;
};

// A receiving call begins: the messages of the calls before it are done.
void finish_received(SubscriberState& s);
// And ends: what its caller does not get goes back.
void end_of_call(SubscriberState& s);
// As look(): 1: a message is taken; 0: none; -1: raised. `self` is nullptr where no Python code may run.
int take_work(PyObject* self, SubscriberState& s, View& view);
// What the caller gets for the newest messages of this call.
void note_object(SubscriberState& s, PyObject* object);
void note_objects(SubscriberState& s, PyObject* list);

// A message of this call is lent; returns how often it was given back before.
uint32_t lend(SubscriberState& s, const View& view);
// Its block has ended.
void end_loan(SubscriberState& s, uint64_t position, bool failed);

// Is another worker there? Only a look finds that it has died with a message. One that joins rouses those that sleep.
bool works_with_others(const SubscriberState& s);

// For reject(): false: it is not one of ours, and nothing was raised.
bool reject(SubscriberState& s, PyObject* object);
// Gives back all that was received and not finished.
void give_back_received(SubscriberState& s);

}  // namespace ringmain::py
