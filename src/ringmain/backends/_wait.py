"""`ringmain.wait` for subscribers that are not all native: each backend waits in its own way, several take turns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ringmain import _native
from ringmain.backends._python.endpoint import parse_timeout
from ringmain.backends._python.subscriber import PlainSubscriber

MIXED_SLICE_S = 0.002
"""Where backends are mixed there is nothing to sleep on for all of them: look at each so often."""


def wait(subscribers: Sequence[Any], timeout: float | None) -> list[Any]:
    """Those of the subscribers that have something to read; empty when the time is up."""
    groups: dict[str, list[Any]] = {}
    for subscriber in subscribers:
        if not isinstance(subscriber, _native.Subscriber | _native.FrameSubscriber | PlainSubscriber):
            raise TypeError(f"wait() takes subscribers, not {subscriber!r}")
        kind = subscriber._backend if isinstance(subscriber, PlainSubscriber) else "shm"
        groups.setdefault(kind, []).append(subscriber)
    if "fake" in groups and len(groups) > 1:
        raise ValueError("wait() cannot mix the fake's subscribers with real ones: their clocks are not the same")
    if len(groups) == 1:
        ((kind, group),) = groups.items()
        return _wait_for(kind, group, timeout)
    timeout_ns = parse_timeout(timeout)
    deadline_ns = None if timeout_ns is None else time.monotonic_ns() + timeout_ns
    while True:
        found = [subscriber for kind, group in groups.items() for subscriber in _wait_for(kind, group, 0)]
        left_s = MIXED_SLICE_S if deadline_ns is None else (deadline_ns - time.monotonic_ns()) / 1e9
        if found or left_s <= 0:
            return found
        kind = "zmq"
        if ready := _wait_for(kind, groups[kind], min(left_s, MIXED_SLICE_S)):
            return ready


def _wait_for(kind: str, group: list[Any], timeout: float | None) -> list[Any]:
    if kind == "shm":
        if all(subscriber._waits_natively for subscriber in group):
            return _native.wait(group, timeout)
        from ringmain.backends.shm import _lockstep_client

        return _lockstep_client.wait(group, timeout, _native.wait)
    if kind == "fake":
        from ringmain.backends import fake

        return fake.wait(group, timeout)
    from ringmain.backends import zmq

    return zmq.wait(group, timeout)
