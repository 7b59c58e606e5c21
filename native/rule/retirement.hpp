// How the end of a topic's life reaches those who sleep on its bell. Owns this invariant: a reader that is about to sleep
// finds the mark in `commit`, or the kernel finds that its bell has changed.
#pragma once

#include "base/bell.hpp"
#include "format/layout.hpp"

namespace ringmain {

// Call under the roster lock, when no writer commits any more.
inline void mark_retired(Header& header) {
    // [RETIRE] the mark first, then the bell, acq_rel: a reader arms the bell either before that, and then the kernel finds
    // another value than the reader gives it, or after, and then the reader sees the mark.
    header.commit.fetch_or(kRetired, std::memory_order_acq_rel);
    header.bell.fetch_add(kRung, std::memory_order_acq_rel);
    header.work_bell.fetch_add(1, std::memory_order_acq_rel);  // what a worker sleeps on
    // release: pairs with is_retired.
    header.retired.store(1, std::memory_order_release);
}

// Either is enough: the remover may have died between the two, and a writer that ignored its end has overwritten the bit.
inline bool is_retired(const Header& header) {
    return (header.commit.load(std::memory_order_acquire) & kRetired) != 0 ||
           header.retired.load(std::memory_order_acquire) != 0;
}

// Wakes the readers, the writers that wait for the turn, and the processes that wait for readers.
inline void wake_for_retirement(Header& header) {
    wake(header.bell.futex());
    wake(header.work_bell.futex());
    wake(header.turn.futex());
    header.membership.fetch_add(1, std::memory_order_release);
    wake(header.membership.futex());
}

}  // namespace ringmain
