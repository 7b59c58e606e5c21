"""Which native module runs: `_ring`, or with RINGMAIN_LAB set `_ring_lab`, the same code with its crash points
compiled in. Everything else imports the names from here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or not os.environ.get("RINGMAIN_LAB"):
    from ringmain._ring import *  # noqa: F403 (the names are below)
else:
    from ringmain._ring_lab import *  # noqa: F403

__all__ = [  # noqa: F405
    "CONTRACTS",
    "DEFAULT_CAPACITY",
    "FRAMES_LAYOUT",
    "KEPT_KINDS",
    "LAYOUT",
    "MAX_KEPT_KINDS",
    "MAX_SLOT_COUNT",
    "SLOT_COUNT",
    "Batch",
    "Call",
    "ClientEnd",
    "Event",
    "Frame",
    "FrameDraft",
    "FramePublisher",
    "FrameSubscriber",
    "HeapBuffer",
    "Lease",
    "NativeClient",
    "NativeRequest",
    "NativeServer",
    "Publisher",
    "Reservation",
    "Subscriber",
    "Track",
    "Waiter",
    "borrow",
    "borrow_many",
    "clean_waiting",
    "glance",
    "inspect",
    "inspect_all",
    "inspect_pool",
    "leave_pools",
    "nothing",
    "peek",
    "pools",
    "recv_batch",
    "replay",
    "reserve",
    "set_meta_codec",
    "topics",
    "unlink",
    "unlink_if_dead",
    "unlink_pool",
    "wait",
]
