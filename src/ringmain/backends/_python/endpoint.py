"""What the endpoints of the backends written in Python share: being closed properly, and checking arguments as the
native types do. See plain_publisher.py and plain_subscriber.py."""

from __future__ import annotations

import atexit
import operator
import os
import warnings
import weakref
from abc import abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from ringmain._closing import Closing

if TYPE_CHECKING:
    from ringmain.typed import Schema

FOREVER_S = 9e9
ROOM_SLICE_S = 0.001
"""How often asyncio looks for room: neither ZeroMQ nor a virtual clock has an event for it."""
_open: weakref.WeakSet[PlainEndpoint] = weakref.WeakSet()


def parse_timeout(timeout: float | None) -> int | None:
    """Nanoseconds; None for ever."""
    if timeout is None:
        return None
    if not timeout >= 0:
        raise ValueError("timeout is a number of seconds, 0 or more, or None to wait for ever")
    return None if timeout > FOREVER_S else int(timeout * 1e9)


def seconds(timeout_ns: int | None) -> str:
    return "for ever" if timeout_ns is None else f"{timeout_ns / 1e9:.6g} s"


class PlainEndpoint(Closing):
    """Being closed properly, as `ringmain._endpoint.Endpoint` does it for the native types."""

    _backend: ClassVar[str]
    topic: str
    _options: dict[str, Any]
    _is_closed: bool = True

    def _opened(self) -> None:
        self._is_closed = False
        self._pid = os.getpid()
        _open.add(self)

    @abstractmethod
    def _close(self) -> None:
        """Leave the topic."""

    @property
    def closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Leave the topic. Closing twice is harmless."""
        if not self._is_closed:
            self._close()

    def __del__(self) -> None:
        if not self._is_closed:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
            self._close()

    def __repr__(self) -> str:
        state = " closed" if self._is_closed else ""
        return f"<ringmain.{type(self).__name__} '{getattr(self, 'topic', '?')}'{state}>"


@atexit.register
def _close_all() -> None:
    for endpoint in list(_open):
        with suppress(Exception):
            endpoint.close()


def check_count(name: str, count: int) -> int:
    """A number of bytes or messages."""
    count = operator.index(count)
    if count < 0:
        raise ValueError(f"{name} must be 0 or more, not {count}")
    return count


def check_kind(kind: str) -> None:
    if not isinstance(kind, str):
        raise TypeError(f"kind is a str, not {type(kind).__name__}")
    size = len(kind.encode())
    if size > 255:
        raise ValueError(f"kind is at most 255 bytes of UTF-8, this one has {size}")


def parse_schema(schema: bytes) -> Schema | None:
    if not schema:
        return None
    from ringmain import typed

    return typed.Schema.from_bytes(schema)
