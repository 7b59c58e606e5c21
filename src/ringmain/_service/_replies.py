"""`Replies`: a server's way to its clients. One publisher for each client, kept open while it is in use.

Owns this invariant: no client makes a server wait, and none ends it. A reply that has no room, because its client does
not read, waits in `_unsent`. What is wrong with the topic of one client's replies (removed, corrupt, of another
contract or type) costs that client its replies, which are dropped and counted, and no other anything.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from ringmain import _inspect, backends
from ringmain._extension import Outcome, Said, of_reply
from ringmain._publisher import Publisher
from ringmain._service._endpoints import has_readers
from ringmain._service._topics import replies_topic
from ringmain._service._unsent import Reply, Unsent
from ringmain.errors import Closed, Full, MessageTooLarge, RingmainError, SchemaMismatch

_MOST_OPEN = 4096
_CHECKED_AT_ONCE = 256
"""Clients that one round of `forget_dead` looks at."""


class BufferedReply(bytearray):
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

    def __init__(
        self, service: str, type_: Any, backend: Any, changed: Callable[[], None], clock_s: Callable[[], float]
    ) -> None:
        self._service, self._type, self._backend = service, type_, backend
        self._changed, self._clock_s = changed, clock_s
        self.publishers: OrderedDict[str, Publisher] = OrderedDict()
        """By client. The native `reply` uses it; `changed` is called when one is closed, or a reply has no room."""
        self._unsent = Unsent()
        self._lock = threading.RLock()
        """For all but the usual `send`: several threads may answer, and one of them may close the server."""
        self._closed = False

    def send(self, client: str, number: int, value: Any, left_s: float | None = None) -> None:
        """`left_s`: for so long somebody waits for it; None: without a limit."""
        publisher = self._publisher(client, number)
        if publisher is None:
            return
        says, codec = of_reply(number, ""), publisher._codec
        try:
            if client not in self._unsent:
                publisher.send(value, says, 0)  # type: ignore[arg-type]
                return
        except Full:
            pass
        except Closed:  # by another thread
            return
        except MessageTooLarge as error:
            self.send_text(client, number, "failed", _too_large(error), left_s)
            return
        except RingmainError:
            if codec is not None:
                codec.encode(value)  # raises if it is the value's fault
            self._drop(client)
            return
        self._send_or_queue(client, number, says, bytes(value if codec is None else codec.encode(value)), left_s)

    def send_text(self, client: str, number: int, outcome: Outcome, text: str, left_s: float | None = None) -> None:
        """A reply without a result."""
        publisher = self._publisher(client, number)
        if publisher is not None:
            payload = text.encode(errors="replace")[: publisher.max_message_bytes // 2]
            self._send_or_queue(client, number, of_reply(number, outcome), payload, left_s)

    @contextmanager
    def reserve(self, client: str, number: int, size: int, left_s: float | None = None) -> Iterator[Any]:
        """A reply that is written in place; where there is no room for it, beside the ring."""
        written = False
        try:
            with self._buffer(client, number, size, left_s) as buffer:
                yield buffer
                written = True
        except RingmainError:
            if not written:  # raised by the block
                raise
            self._drop(client)

    def _buffer(self, client: str, number: int, size: int, left_s: float | None) -> Any:
        publisher = self._publisher(client, number)
        says = of_reply(number, "")
        try:
            if publisher is not None and client not in self._unsent:
                return publisher.reserve(size, kind=says, timeout=0)  # type: ignore[arg-type]
        except Full:
            pass
        except MessageTooLarge as error:
            reason = _too_large(error)
            return BufferedReply(size, lambda payload: self.send_text(client, number, "failed", reason, left_s))
        except RingmainError:
            self._drop(client)
        return BufferedReply(size, lambda payload: self._send_or_queue(client, number, says, payload, left_s))

    # ------------------------------------------------------------------------------------ publishers

    def _publisher(self, client: str, number: int) -> Publisher | None:
        """None: the client is gone, or cannot be told."""
        if (known := self.publishers.get(client)) is not None:
            return known
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
        while len(self.publishers) >= _MOST_OPEN:
            self._close(next(iter(self.publishers)))
        options: Any = {"contract": "reliable", "min_readers": 1, "backend": self._backend}
        try:
            try:
                publisher = Publisher(topic, type=self._type, **options)
            except SchemaMismatch as error:
                with Publisher(topic, **options) as publisher:
                    publisher._send_as(str(error).encode(), -1, 0, of_reply(number, "failed"), 0)
                return None
        except RingmainError:
            self._unsent.dropped += 1
            return None
        self.publishers[client] = publisher
        return publisher

    def _send_or_queue(self, client: str, number: int, says: Said, payload: bytes, left_s: float | None) -> None:
        """Now, if there is room and nothing waits before it."""
        with self._lock:
            reply = Reply(number, says, payload, None if left_s is None else self._clock_s() + left_s)
            if client not in self._unsent and self._send_one(client, reply):
                return
            if client in self.publishers:
                self._unsent.add(client, reply)
                self._changed()

    def _send_one(self, client: str, reply: Reply) -> bool:
        """False: there is no room."""
        publisher = self.publishers.get(client)
        try:
            if publisher is not None:
                publisher._send_as(reply.payload, -1, 0, reply.says, 0)
        except Full:
            if publisher is not None and has_readers(publisher):
                return False
            self._forget(client)
        except RingmainError:
            self._drop(client)
        return True

    def _drop(self, client: str) -> None:
        """A reply could not be sent, for another reason than room. The next one opens the topic again."""
        with self._lock:
            self._unsent.dropped += 1
            self._forget(client)

    def _forget(self, client: str) -> None:
        self._unsent.forget(client)
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

    @property
    def dropped(self) -> int:
        return self._unsent.dropped

    @property
    def pause_s(self) -> float | None:
        """How long to do other things before `send_unsent`; None: all are sent."""
        return self._unsent.pause_s if self._unsent else None

    def send_unsent(self) -> None:
        """Try again what had no room. Each client gets its replies in order."""
        with self._lock:
            self._unsent.send(self._clock_s(), self._send_one)

    def forget_dead(self) -> None:
        """Close the publishers to clients that have died or left, a few at a time; the last to leave removes the
        topic."""
        with self._lock:
            self._unsent.drop_late(self._clock_s())
            for client in list(self.publishers)[:_CHECKED_AT_ONCE]:
                if has_readers(self.publishers[client]):
                    self.publishers.move_to_end(client)
                else:
                    self._forget(client)

    def remove_left(self) -> None:
        """Remove the topics of clients that died before any server replied to them."""
        requests = backends.requests(self._backend)
        for name in requests.topic_names():
            if name.startswith(replies_topic(self._service, "")):
                requests.unlink_if_dead(name)

    def abandon(self) -> None:
        """In a forked child: what was not sent is the parent's to send. The publishers join again by themselves."""
        self._unsent.clear()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._unsent.clear()
            while self.publishers:
                self._close(next(iter(self.publishers)))


def _too_large(error: MessageTooLarge) -> str:
    return f"the reply does not fit: {error}. Open the client with a larger reply_capacity"
