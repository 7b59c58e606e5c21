"""A publisher in Python: the whole public face, on top of a handful of primitives that each backend provides.

Owns this invariant: arguments, errors and return values are those of the native type, whatever the backend.
"""

from __future__ import annotations

import asyncio
import io
from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ringmain import _names
from ringmain.backends._python import reference_ring
from ringmain.backends._python.endpoint import (
    ROOM_SLICE_S,
    PlainEndpoint,
    check_count,
    check_kind,
    parse_schema,
    parse_timeout,
)
from ringmain.backends._python.leases import PlainReservation
from ringmain.errors import Closed, Full, InUse, MessageTooLarge, RingmainError

if TYPE_CHECKING:
    from ringmain.typed import Schema


class Asked(NamedTuple):
    """What is asked of the topic."""

    contract: reference_ring.Contract | None
    capacity: int | None
    persist: bool
    mode: int
    takeover: bool


class PlainPublisher(PlainEndpoint):
    """A publisher in Python. A backend provides `_start`, `_finish` and `_abort`."""

    _backend_role = "publisher"
    sender: str

    def _prepare_options(
        self,
        topic: str,
        *,
        contract: reference_ring.Contract | None = None,
        capacity: int | str | None = None,
        type: Any = None,
        sender: str = "",
        name: str | None = None,
        persist: bool = False,
        mode: int = 0o600,
        takeover: bool = False,
        spin: float | None = None,
    ) -> None:
        _names.parse_spin(spin)
        if contract is not None and contract not in reference_ring.CONTRACTS:
            raise ValueError(f"contract is 'broadcast', 'pipe', 'bus' or 'reliable', not '{contract}'")
        self._asked = Asked(contract, _names.parse_capacity(capacity), persist, mode, takeover)
        self.topic = _names.check_topic(topic)
        self.sender = _names.check_envelope("sender", sender)
        self.name = _names.participant_name(name, sender)
        self._reservation: PlainReservation | None = None
        self._codec: Any = None
        if type is not None:
            from ringmain import typed

            self._codec = typed.codec_for(type)
        self._own_schema = b"" if self._codec is None else self._codec.schema.to_bytes()

    # ---------------------------------------------------------------------------------- for the backend

    @abstractmethod
    def _start(self, size: int, kind: str, timeout_ns: int | None) -> None:
        """Make room for a message of this size, waiting if need be: `Full` when the time is up. May be called again
        with a larger size. The turn is ours until `_finish` or `_abort`."""

    @abstractmethod
    def _finish(self, data: bytes, kind: str, seq: int | None = None, time_ns: int | None = None) -> int:
        """Publish what `_start` made room for; returns its number."""

    @abstractmethod
    def _abort(self) -> None:
        """Give the turn back."""

    @property
    @abstractmethod
    def contract(self) -> Any: ...
    @property
    @abstractmethod
    def capacity(self) -> int:
        """Bytes in the ring."""

    @property
    def max_message_bytes(self) -> int:
        """The largest message the topic takes, without sender and kind."""
        return reference_ring.largest_message(self.contract, self.capacity)

    @abstractmethod
    def _schema(self) -> bytes: ...

    @property
    def schema(self) -> Schema | None:
        """What the topic's messages look like, if it is typed."""
        return parse_schema(self._schema())

    # ------------------------------------------------------------------------------------------ sending

    def _usable(self) -> None:
        if self._is_closed:
            raise Closed(f"the publisher of topic '{self.topic}' is closed")
        if self._reservation is not None and not self._reservation.settled():
            raise InUse(
                f"a reservation or stream of topic '{self.topic}' is still open, or a view of one is still alive: "
                "finish it first"
            )

    def _encode(self, data: Any) -> bytes:
        if self._codec is not None:
            accepts = self._codec.accepts
            if accepts is not None and not isinstance(data, accepts):
                raise TypeError(f"topic '{self.topic}' takes {accepts!r}, not {type(data)!r}")
            data = self._codec.encode(data)
        return data if type(data) is bytes else bytes(memoryview(data).cast("B"))

    def _check_size(self, size: int, kind: str) -> None:
        envelope = reference_ring.envelope_bytes(self.sender, kind)
        if size + envelope > self.max_message_bytes:
            raise MessageTooLarge(
                f"a message of {size} bytes is too large for topic '{self.topic}': with its {self.capacity} bytes it "
                f"takes up to {self.max_message_bytes - envelope}; "
                + (
                    f"ask for capacity={reference_ring.needed_capacity(self.contract, size, envelope)} or more"
                    if size <= reference_ring.MAX_MESSAGE_BYTES
                    else "no topic takes more than 4 GiB in one message"
                )
            )

    def send(self, data: Any, kind: str = "", timeout: float | None = None) -> int:
        self._usable()
        check_kind(kind)
        timeout_ns = parse_timeout(timeout)
        payload = self._encode(data)
        self._check_size(len(payload), kind)
        self._start(len(payload), kind, timeout_ns)
        return self._finish(payload, kind)

    def _send_as(self, data: Any, seq: int, time_ns: int, kind: str = "", timeout: float = -1, /) -> int:
        """Under the number and time it had elsewhere, or new ones if the number is negative."""
        self._usable()
        check_kind(kind)
        payload = bytes(data)
        self._check_size(len(payload), kind)
        self._start(len(payload), kind, None if timeout < 0 else parse_timeout(timeout))
        return self._finish(payload, kind, seq, time_ns) if seq >= 0 else self._finish(payload, kind)

    def _set_sender(self, sender: str, /) -> None:
        """What is written on the messages from now on."""
        self.sender = _names.check_envelope("sender", sender)

    @abstractmethod
    def _set_schema(self, schema: bytes, /) -> None:
        """Replace the topic's schema."""

    async def asend(self, data: Any, kind: str = "", timeout: float | None = None) -> int:
        """`send` for asyncio: waits for room without stopping the loop."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            try:
                return self.send(data, kind, 0)
            except Full as full:
                if deadline is not None and loop.time() >= deadline:
                    raise Full(str(full).replace("within 0 s", f"within {timeout:g} s")) from None
            await asyncio.sleep(ROOM_SLICE_S)

    def send_many(self, messages: Iterable[Any], kind: str = "", timeout: float | None = None) -> int:
        self._usable()
        check_kind(kind)
        timeout_ns = parse_timeout(timeout)
        batch = [self._encode(message) for message in messages]  # everything is looked at before anything is sent
        for payload in batch:
            self._check_size(len(payload), kind)
        for sent, payload in enumerate(batch):
            try:
                self._start(len(payload), kind, timeout_ns)
            except RingmainError as error:
                error.sent = sent  # type: ignore[attr-defined]  # so that nothing is sent twice or lost
                raise
            self._finish(payload, kind)
        return len(batch)

    def reserve(self, size: int, *, kind: str = "", timeout: float | None = None) -> PlainReservation:
        """A message of `size` bytes to write into. Sent when the block is left, dropped on an exception."""
        self._usable()
        timeout_ns = parse_timeout(timeout)
        check_kind(kind)
        size = check_count("size", size)
        self._check_size(size, kind)
        self._start(size, kind, timeout_ns)
        self._reservation = PlainReservation(self, size, kind)
        return self._reservation

    def stream(self, *, kind: str = "", timeout: float | None = None) -> io.RawIOBase:
        """A message whose size is not known yet, as a file to write to."""
        from ringmain._publisher import MessageStream

        return MessageStream(self.reserve(0, kind=kind, timeout=timeout), timeout)

    def _grow(self, size: int, kind: str, timeout: float | None) -> None:
        """A stream needs more."""
        self._check_size(size, kind)
        self._start(size, kind, parse_timeout(timeout))

    def close(self) -> None:
        """Leave the topic. Closing twice is harmless."""
        if self._is_closed:
            return
        if self._reservation is not None and not self._reservation.settled():
            raise InUse(
                f"topic '{self.topic}' cannot be closed: a reservation or stream is open, or a view of one is alive"
            )
        self._close()
