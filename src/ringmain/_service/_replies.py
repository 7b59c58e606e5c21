"""`Replies`: a server's way to its clients. One publisher for each client, kept open while it is in use.

Owns this invariant: no client makes a server wait. A reply that has no room, because its client does not read, waits
here in `_unsent`, and is dropped when the client's time is up or the client is gone.
"""

from __future__ import annotations

import resource
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Self

from ringmain import _inspect, _names, _native
from ringmain._publisher import Publisher
from ringmain._service._endpoints import has_readers
from ringmain._service._topics import Outcome, kind_of_reply, replies_topic
from ringmain.errors import Closed, Full, MessageTooLarge, RingmainError, SchemaMismatch

_MOST_OPEN = 4096
_CHECKED_AT_ONCE = 256
"""Clients that one round of `forget_dead` looks at."""


class Unsent(NamedTuple):
    client: str
    payload: bytes
    kind: str


class Aside(bytearray):
    """Stands in for a reservation. `done` is called with what was written, unless the block raises."""

    def __init__(self, size: int, done: Callable[[bytes], None]) -> None:
        super().__init__(size)
        self._used, self._done = size, done

    def truncate(self, size: int) -> None:
        """Send only the first `size` bytes."""
        self._used = size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None:
            self._done(bytes(self[: self._used]))


class Replies:
    """The publishers to the clients of one server."""

    def __init__(self, service: str, type_: Any, backend: Any, changed: Callable[[], None]) -> None:
        self._service, self._type, self._backend, self._changed = service, type_, backend, changed
        self.publishers: OrderedDict[str, Publisher] = OrderedDict()
        """By client. The native `reply` uses it; `changed` is called when one is closed, or a reply has no room."""
        self._unsent: list[Unsent] = []
        self._lock = threading.RLock()
        """For all but the usual `send`: several threads may answer, and one of them may close the server."""
        self._closed = False
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Each publisher has a descriptor. Half of what the process may have is left to the program.
        self._most_open = min(_MOST_OPEN, max(8, soft // 2)) if soft > 0 else _MOST_OPEN

    def send(self, client: str, number: int, value: Any) -> None:
        publisher = self.publishers.get(client) or self._publisher(client, number)
        if publisher is None:
            return
        kind = kind_of_reply(number, "")
        try:
            publisher.send(value, kind, 0)
        except Closed:  # by another thread
            return
        except Full:
            codec = publisher._codec
            self._later(client, bytes(value if codec is None else codec.encode(value)), kind)
        except MessageTooLarge as error:
            self.send_text(
                client,
                number,
                "failed",
                f"the reply does not fit: {error}. Open the client with a larger reply_capacity",
            )

    def send_text(self, client: str, number: int, outcome: Outcome, text: str) -> None:
        """A reply without a result."""
        publisher = self.publishers.get(client) or self._publisher(client, number)
        if publisher is None:
            return
        payload, kind = (
            text.encode(errors="replace")[: publisher.max_message_bytes // 2],
            kind_of_reply(number, outcome),
        )
        try:
            publisher._send_as(payload, -1, 0, kind, 0)
        except Full:
            self._later(client, payload, kind)

    def reserve(self, client: str, number: int, size: int) -> Any:
        """A reply that is written in place; where there is no room for it, beside the ring."""
        publisher = self.publishers.get(client) or self._publisher(client, number)
        kind = kind_of_reply(number, "")
        if publisher is None:
            return Aside(size, lambda payload: None)
        try:
            return publisher.reserve(size, kind=kind, timeout=0)
        except Full:
            return Aside(size, lambda payload: self._later(client, payload, kind))

    # ------------------------------------------------------------------------------------ publishers

    def _publisher(self, client: str, number: int) -> Publisher | None:
        """None: the client is gone."""
        with self._lock:
            return None if self._closed else self.publishers.get(client) or self._join(client, number)

    def _join(self, client: str, number: int) -> Publisher | None:
        topic = replies_topic(self._service, client)
        try:
            there = _inspect.info(topic)
        except (RingmainError, ValueError):  # removed, or sent by a publisher that is no client
            return None
        if not any(reader.alive and reader.role == "reader" for reader in there.readers):
            return None
        while len(self.publishers) >= self._most_open:
            self._close(next(iter(self.publishers)))
        options: Any = {"contract": "reliable", "min_readers": 1, "backend": self._backend}
        try:
            publisher = Publisher(topic, type=self._type, **options)
        except SchemaMismatch as error:
            with Publisher(topic, **options) as publisher:
                publisher._send_as(str(error).encode(), -1, 0, kind_of_reply(number, "failed"), 0)
            return None
        self.publishers[client] = publisher
        return publisher

    def _later(self, client: str, payload: bytes, kind: str) -> None:
        """There was no room, or no reader."""
        with self._lock:
            publisher = self.publishers.get(client)
            if publisher is not None and has_readers(publisher):
                self._unsent.append(Unsent(client, payload, kind))
                self._changed()
            else:
                self._forget(client)

    def _forget(self, client: str) -> None:
        self._unsent = [each for each in self._unsent if each.client != client]
        if client in self.publishers:
            self._close(client)

    def _close(self, client: str) -> None:
        publisher = self.publishers.pop(client)
        self._changed()
        publisher.close()

    # -------------------------------------------------------------------------------------- upkeep

    @property
    def unsent(self) -> int:
        return len(self._unsent)

    def send_unsent(self) -> None:
        """Try again what had no room. Each client gets its replies in order."""
        with self._lock:
            waiting, self._unsent = self._unsent, []
            full: set[str] = set()
            for each in waiting:
                publisher = self.publishers.get(each.client)
                if publisher is None:
                    continue
                try:
                    if each.client not in full:
                        publisher._send_as(each.payload, -1, 0, each.kind, 0)
                        continue
                except Full:
                    full.add(each.client)
                self._unsent.append(each)

    def forget_dead(self) -> None:
        """Close the publishers to clients that have died or left, a few at a time; the last to leave removes the
        topic."""
        with self._lock:
            for client in list(self.publishers)[:_CHECKED_AT_ONCE]:
                if has_readers(self.publishers[client]):
                    self.publishers.move_to_end(client)
                else:
                    self._forget(client)

    def remove_left(self) -> None:
        """Remove the topics of clients that died before any server replied to them."""
        if self._backend != "shm":
            return
        directory = _names.runtime_directory()
        for name in _native.topics(directory):
            if name.startswith(replies_topic(self._service, "")):
                with suppress(RingmainError, ValueError):
                    _native.unlink_if_dead(directory, name)

    def abandon(self) -> None:
        """In a forked child: what was not sent is the parent's to send. The publishers join again by themselves."""
        self._unsent.clear()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._unsent.clear()
            while self.publishers:
                self._close(next(iter(self.publishers)))
