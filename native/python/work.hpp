// What a subscriber has taken from a shared contract and not finished. Owns this invariant: a message that a caller did not
// get, or whose block raised, is given back.
#pragma once

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

struct Work {
    Worker worker;
    std::vector<Taken> unfinished;  // received: done when the caller asks for more, or closes
    std::vector<Taken> fresh;       // taken in this call
    std::vector<Taken> lent;        // borrowed
    uint64_t consumed_before = 0;   // Reader::messages() when this call began to take
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

// For reject(): false: it is not one of ours, and nothing was raised.
bool reject(SubscriberState& s, PyObject* object);
// Gives back all that was received and not finished.
void give_back_received(SubscriberState& s);

}  // namespace ringmain::py
