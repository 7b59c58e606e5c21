"""Every way to send one message, for tests and measurements that must try them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import ringmain as rm

MESSAGE = b"whole"


def _reserve(pub: rm.Publisher, timeout: float | None) -> None:
    with pub.reserve(len(MESSAGE), timeout=timeout) as buffer:
        buffer[:] = MESSAGE


def _stream(pub: rm.Publisher, timeout: float | None) -> None:
    with pub.stream(timeout=timeout) as out:
        out.write(MESSAGE)


WAYS: dict[str, Callable[[rm.Publisher, float | None], object]] = {
    "send": lambda pub, timeout: pub.send(MESSAGE, timeout=timeout),
    "send_many": lambda pub, timeout: pub.send_many([MESSAGE], timeout=timeout),
    "reserve": _reserve,
    "stream": _stream,
    "asend": lambda pub, timeout: asyncio.run(pub.asend(MESSAGE, timeout=timeout)),
}

SPINS = (None, 0, 1.0)
