// How the end of a topic's life reaches those who sleep on its words. Owns this invariant: the very word that a reader
// awaits changes, so none sleeps on past the end, even if the remover dies before it has woken anyone.
#pragma once

#include "bell.hpp"
#include "layout.hpp"

namespace ringmain {

// Call under the roster lock, when no writer commits any more.
inline void mark_retired(Header& header) {
    // [RETIRE] acq_rel: a reader's fetch_or in Reader::bell comes either before, and then the kernel finds another value
    // than the reader gives it, or after, and then it returns our bit, and the reader finds the topic removed. First,
    // since a remover that died between the two would leave a sleeper whose word stays as it was.
    header.commit.fetch_or(kRetired, std::memory_order_acq_rel);
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
    wake(header.commit.futex());
    wake(header.turn.futex());
    header.membership.fetch_add(1, std::memory_order_release);
    wake(header.membership.futex());
}

}  // namespace ringmain
