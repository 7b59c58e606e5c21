"""A publisher in Python: the public methods, on top of a few primitives that each backend provides.

Owns this invariant: arguments, errors and return values are those of the native type, on every backend.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from ringmain import _names
from ringmain._contracts import CONTRACTS, ContractName
from ringmain._extension import Said
from ringmain._message_stream import MessageStream
from ringmain._publisher import Publisher
from ringmain.backends._python import reference_ring
from ringmain.backends._python.buffers import PythonReservation
from ringmain.backends._python.endpoint import PythonEndpoint, check_count, check_kind, parse_timeout
from ringmain.errors import Full, InUse, RingmainError, too_large, wrong_type

ROOM_SLICE_S = 0.001
"""How often asyncio looks for room: neither ZeroMQ nor a virtual clock has an event for it."""


class PythonPublisher(PythonEndpoint):
    """A publisher in Python. A backend provides `_start`, `_finish` and `_abort`."""

    _role = "publisher"
    sender: str
    contract: ContractName
    capacity: int
    """Bytes in the ring."""
    epoch: int
    """Which life of the topic this is."""
    _keeps = False
    """Does the topic keep the last message of each kind?"""

    def _prepare_options(self, topic: str, options: dict[str, Any]) -> None:
        self._set_options(Publisher, topic, options)
        asked = self._asked
        self.sender = asked.sender
        if asked.contract is not None and asked.contract not in CONTRACTS:
            known = [repr(name) for name in CONTRACTS]
            raise ValueError(f"contract is {', '.join(known[:-1])} or {known[-1]}, not '{asked.contract}'")
        asked.capacity = _names.parse_capacity(asked.capacity)
        if asked.mode is not None:
            _names.check_mode(asked.mode)
        _names.check_max_participants(asked.max_participants)
        asked.keep_last_per_kind = _names.check_kept_kinds(asked.keep_last_per_kind, asked.contract)
        _names.check_min_readers(asked.min_readers, asked.max_participants)
        self._reservation: PythonReservation | None = None
        self._own_schema = b"" if self._codec is None else self._codec.schema.to_bytes()

    # ---------------------------------------------------------------------------------- for the backend

    @abstractmethod
    def _start(self, size: int, kind: Said | str, timeout_ns: int | None) -> None:
        """Make room for a message of this size, waiting if need be: `Full` when the time is up. May be called again
        with a larger size. No other writer can publish until `_finish` or `_abort`."""

    @abstractmethod
    def _finish(self, data: bytes, kind: Said | str, seq: int | None = None, time_ns: int | None = None) -> int:
        """Publish what `_start` made room for; returns its number."""

    @abstractmethod
    def _abort(self) -> None:
        """Let other writers publish."""

    @property
    def max_message_bytes(self) -> int:
        """The largest message the topic takes, without sender and kind."""
        return reference_ring.largest_message(self.contract, self.capacity, self._keeps)

    # ------------------------------------------------------------------------------------------ sending

    def _usable(self) -> None:
        self._check_open()
        if self._reservation is not None and not self._reservation.settled():
            raise InUse(
                f"a reservation or stream of topic '{self.topic}' is still open, or a view of one is still alive: "
                "finish it first",
                topic=self.topic,
            )

    def _encode(self, data: Any) -> bytes:
        if self._codec is not None:
            accepts = self._codec.accepts
            if accepts is not None and not isinstance(data, accepts):
                raise wrong_type(self.topic, accepts, data)
            try:
                data = self._codec.encode(data)
            except TypeError as error:
                raise wrong_type(self.topic, accepts, data, error) from error
        try:
            return data if type(data) is bytes else bytes(memoryview(data).cast("B"))
        except TypeError as error:
            raise wrong_type(self.topic, None, data) from error

    def _check_size(self, size: int, kind: Said | str) -> None:
        envelope = reference_ring.envelope_bytes(self.sender, kind)
        if size + envelope > self.max_message_bytes:
            needed = reference_ring.needed_capacity(self.contract, size, envelope, self._keeps)
            fits_some = size <= reference_ring.MAX_MESSAGE_BYTES
            limit = self.max_message_bytes - envelope
            raise too_large(self.topic, size, self.capacity, limit, needed if fits_some else None, bool(self._keeps))

    def send(self, data: Any, kind: str = "", timeout: float | None = None) -> int:
        self._usable()
        check_kind(kind)
        timeout_ns = parse_timeout(timeout)
        payload = self._encode(data)
        self._check_size(len(payload), kind)
        self._start(len(payload), kind, timeout_ns)
        return self._finish(payload, kind)

    def _send_as(self, data: Any, seq: int, time_ns: int, kind: Said | str = "", timeout: float = -1, /) -> int:
        """Send with this number and time, or with new ones if the number is negative."""
        self._usable()
        check_kind(kind)
        payload = bytes(data)
        self._check_size(len(payload), kind)
        self._start(len(payload), kind, None if timeout < 0 else parse_timeout(timeout))
        return self._finish(payload, kind, seq, time_ns) if seq >= 0 else self._finish(payload, kind)

    def _set_sender(self, sender: str, /) -> None:
        """The sender of the messages from now on."""
        self.sender = _names.check_envelope("sender", sender)

    @abstractmethod
    def _set_schema(self, schema: bytes, /) -> None:
        """Replace the topic's schema."""

    async def asend(self, data: Any, kind: str = "", timeout: float | None = None) -> int:
        """`send` for asyncio: waits for room without blocking the loop."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            try:
                return self.send(data, kind, 0)
            except Full as full:
                if deadline is not None and loop.time() >= deadline:
                    full.timeout = timeout
                    raise
            await asyncio.sleep(ROOM_SLICE_S)

    def send_many(
        self,
        messages: Iterable[Any],
        kind: str = "",
        timeout: float | None = None,
        kinds: Iterable[str] | None = None,
    ) -> int:
        self._usable()
        check_kind(kind)
        timeout_ns = parse_timeout(timeout)
        payloads = [self._encode(message) for message in messages]  # all are checked before the first is sent
        each = [kind] * len(payloads) if kinds is None else list(kinds)
        if kinds is not None and (kind or len(each) != len(payloads)):
            raise ValueError("kinds= has one kind for each message, and then kind= has none")
        batch = list(zip(payloads, each, strict=True))
        for payload, its_kind in batch:
            check_kind(its_kind)
            self._check_size(len(payload), its_kind)
        for sent, (payload, its_kind) in enumerate(batch):
            try:
                self._start(len(payload), its_kind, timeout_ns)
            except RingmainError as error:
                error.sent = sent  # type: ignore[attr-defined]  # lets the caller continue after the last one sent
                raise
            self._finish(payload, its_kind)
        return len(batch)

    def reserve(self, size: int, *, kind: str = "", timeout: float | None = None) -> PythonReservation:
        """A message of `size` bytes to write into. Sent when the block is left, dropped on an exception."""
        self._usable()
        timeout_ns = parse_timeout(timeout)
        check_kind(kind)
        size = check_count("size", size)
        self._check_size(size, kind)
        self._start(size, kind, timeout_ns)
        self._reservation = PythonReservation(self, size, kind)
        return self._reservation

    def stream(self, *, kind: str = "", timeout: float | None = None) -> MessageStream:
        """A message of a size not known yet, as a file to write to."""
        return MessageStream(self.reserve(0, kind=kind, timeout=timeout), timeout)

    def _grow(self, size: int, kind: Said | str, timeout: float | None) -> None:
        """Make room for a stream that has become longer."""
        self._check_size(size, kind)
        self._start(size, kind, parse_timeout(timeout))

    def close(self) -> None:
        """Leave the topic. Closing twice is harmless."""
        if not self._is_closed and self._reservation is not None and not self._reservation.settled():
            raise InUse(
                f"topic '{self.topic}' cannot be closed: a reservation or stream is open, or a view of one is alive",
                topic=self.topic,
            )
        super().close()
