"""Which native module runs: `_ring`, or with RINGMAIN_LAB set `_ring_lab`, the same code with its crash points
compiled in. Everything else imports the names from here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or not os.environ.get("RINGMAIN_LAB"):
    from ringmain._ring import (
        DEFAULT_CAPACITY,
        LAYOUT,
        SLOT_COUNT,
        Batch,
        Event,
        Lease,
        Publisher,
        Reservation,
        Subscriber,
        borrow,
        inspect,
        nothing,
        peek,
        recv_batch,
        reserve,
        topics,
        unlink,
        unlink_if_dead,
        wait,
    )
else:
    from ringmain._ring_lab import (
        DEFAULT_CAPACITY,
        LAYOUT,
        SLOT_COUNT,
        Batch,
        Event,
        Lease,
        Publisher,
        Reservation,
        Subscriber,
        borrow,
        inspect,
        nothing,
        peek,
        recv_batch,
        reserve,
        topics,
        unlink,
        unlink_if_dead,
        wait,
    )

__all__ = [
    "DEFAULT_CAPACITY",
    "LAYOUT",
    "SLOT_COUNT",
    "Batch",
    "Event",
    "Lease",
    "Publisher",
    "Reservation",
    "Subscriber",
    "borrow",
    "inspect",
    "nothing",
    "peek",
    "recv_batch",
    "reserve",
    "topics",
    "unlink",
    "unlink_if_dead",
    "wait",
]
