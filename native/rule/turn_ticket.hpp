// A writer's ticket in the queue for the turn. Who has not got the turn draws the ticket after the last one; they are numbered as
// `turn` counts its takings. When the turn is free, those that others come before leave it to them for a moment: otherwise
// the one nearest to the writer that gave it back would get it each time.
//
// Only a hint. One that does not take the turn when it could (it died, sleeps, has given up) is passed after that moment. If it finds the turn
// free when it comes, it takes it, and otherwise draws again.
// Whatever the word in shared memory says, no writer waits for longer.
#pragma once

#include "rule/ring.hpp"

namespace ringmain {

class TurnTicket {
    uint32_t ticket_ = 0;
    bool drawn_ = false;

    // `turn` counts on so far until our ticket is served; 0: we were passed.
    uint32_t takings_to(uint64_t turn) const {
        auto takings = static_cast<int32_t>(ticket_ - turn_count(turn));
        return drawn_ && takings > 0 ? static_cast<uint32_t>(takings) : 0;
    }

    void draw(const Ring& ring, uint64_t turn) {
        drawn_ = true;
        // relaxed, both: a hint.
        uint32_t last = ring.header.last_ticket.load(std::memory_order_relaxed);
        do {
            uint32_t waiting = last - turn_count(turn);
            if (waiting > ring.slot_count) waiting = 0;  // the last one was served, or the word is damaged
            ticket_ = turn_count(turn) + waiting + 1;
        } while (!ring.header.last_ticket.compare_exchange(last, ticket_, std::memory_order_relaxed));
    }

  public:
    void come_to_free(const Ring& ring, uint64_t turn) {
        if (!drawn_) draw(ring, turn);
    }
    void come_to_taken(const Ring& ring, uint64_t turn) {
        if (takings_to(turn) == 0) draw(ring, turn);
    }
    // The turn is ours.
    void discard() { drawn_ = false; }

    bool others_before(uint64_t turn) const { return takings_to(turn) > 1; }
    // How far `turn` counts on when we take it: those before us that did not come are passed.
    uint32_t taking(uint64_t turn) const { return std::max(takings_to(turn), 1u); }
};

}  // namespace ringmain
