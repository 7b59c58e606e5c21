// The requests of one client that have no reply yet: by number, and by who is told of their outcome. No lock is taken here, and
// nothing waits; see client_end.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/bell.hpp"
#include "requests/terms.hpp"

namespace ringmain {

template <class Payload>
struct WaiterOf;

// A request that was sent, or is about to be.
template <class Payload>
struct CallOf {
    uint64_t number = 0;
    Terms terms;
    Answer answer = Answer::none;
    bool listed = false;                  // is it among the calls in flight?
    Payload payload{};                    // of its reply
    WaiterOf<Payload>* waiter = nullptr;  // who is told of its outcome; none: a thread that waits for it
    uint32_t word = 0;                    // that this thread sleeps on
    CallOf* next = nullptr;               // of its bucket; of those that its waiter has yet to take

    bool finished() const { return answer != Answer::none; }
    int64_t left_ns() const {
        return terms.deadline_ns == kForever ? kForever
                                             : std::max<int64_t>(0, terms.deadline_ns - monotonic_ns());
    }
};

// Is told of the outcomes of calls that no thread waits for: the thread of futures, or the tasks of an event loop.
template <class Payload>
struct WaiterOf {
    uint32_t word = 0;    // changes when there is something to take, or the turn to receive is free
    bool asleep = false;  // on it
    bool wants_turn = false;
    size_t in_flight = 0;        // of its calls
    int64_t late_ns = kForever;  // the first of them is late then; perhaps it is finished
    CallOf<Payload>*first = nullptr, *last = nullptr;  // finished, and yet to be taken

    void give(CallOf<Payload>& call) {
        (first ? last->next : first) = &call;
        last = &call;
        call.next = nullptr;
    }
    CallOf<Payload>* take() {
        CallOf<Payload>* call = first;
        if (call) first = std::exchange(call->next, nullptr);
        return call;
    }
};

// A hash table whose entries are the calls themselves: listing one allocates nothing.
template <class Payload>
class Calls {
    using Entry = CallOf<Payload>;
    std::vector<Entry*> buckets_ = std::vector<Entry*>(16);
    int shift_ = 60;
    size_t size_ = 0;

    // The numbers of one client may all be multiples of that of the clients.
    Entry*& bucket(uint64_t number) { return buckets_[(number * 0x9e3779b97f4a7c15) >> shift_]; }

  public:
    size_t size() const { return size_; }

    // For one more. Throws std::bad_alloc, and then has changed nothing.
    void make_room() {
        if (size_ < buckets_.size()) [[likely]]
            return;
        std::vector<Entry*> before = std::exchange(buckets_, std::vector<Entry*>(2 * buckets_.size()));
        --shift_;
        for (Entry* call : before)
            while (call) {
                Entry* next = std::exchange(call->next, bucket(call->number));
                bucket(call->number) = call;
                call = next;
            }
    }
    void add(Entry& call) {
        call.next = std::exchange(bucket(call.number), &call);
        call.listed = true;
        ++size_;
    }
    Entry* find(uint64_t number) {
        Entry* call = bucket(number);
        while (call && call->number != number) call = call->next;
        return call;
    }
    void remove(Entry& call) {
        Entry** at = &bucket(call.number);
        while (*at != &call) at = &(*at)->next;
        *at = std::exchange(call.next, nullptr);
        call.listed = false;
        --size_;
    }
    // Removes those that fit, all before the first is used.
    template <class Fits, class Use>
    void remove_if(Fits fits, Use use) {
        Entry *removed = nullptr, **last = &removed;
        for (Entry*& first : buckets_)
            for (Entry** at = &first; *at;) {
                Entry* call = *at;
                if (!fits(*call)) {
                    at = &call->next;
                    continue;
                }
                *at = std::exchange(call->next, nullptr);
                call->listed = false;
                --size_;
                *last = call;
                last = &call->next;
            }
        while (Entry* call = removed) {
            removed = std::exchange(call->next, nullptr);
            use(*call);
        }
    }
};

}  // namespace ringmain
