"""The C face, with the names that the lab's acts call: the same scenarios with participants that are not Python's.

What dies, or goes on, is `libringmain.so` with its crash points; the headers of C++ are inline calls of it. Owns this
invariant: a call here is one of ringmain.h, and nothing of Python's own module touches a topic.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import ringmain as rm
from ringmain._cli.commands import config
from ringmain.errors import Closed, Lapped, TakenOver, Timeout, TopicBusy, TopicMismatch, TopicNotFound

Full, Message = rm.Full, rm.Message

EMPTY, TOO_LARGE = 1, 6
ERRORS: dict[int, type[Exception]] = {
    2: Timeout,
    3: Full,
    5: Closed,
    7: TakenOver,
    8: TopicNotFound,
    9: TopicBusy,
    10: TopicMismatch,
    12: rm.RosterFull,
    17: Lapped,
}
CONTRACTS = ["", "broadcast", "pipe", "bus", "reliable", "work"]
STARTS = {"next": 0, "oldest": 1, "newest": 2}
u8, u32, i32, u64, i64, size_t, text, pointer = (
    ctypes.c_uint8,
    ctypes.c_uint32,
    ctypes.c_int,
    ctypes.c_uint64,
    ctypes.c_int64,
    ctypes.c_size_t,
    ctypes.c_char_p,
    ctypes.c_void_p,
)


def struct(**fields: Any) -> type[ctypes.Structure]:
    return type("Struct", (ctypes.Structure,), {"_fields_": list(fields.items())})


Wait = struct(timeout_ns=i64, stop=pointer)
PublisherOptions = struct(
    size=size_t, contract=i32, mode=u32, capacity=u64, sender=text, name=text, directory=text, min_readers=u32,
    max_participants=u32, keep_last_per_kind=u32, persist=u8, takeover=u8, spins=u8, reserved=u8 * 5, spin_ns=i64,
    struct_name=text, struct_layout=text,
)  # fmt: skip
Screen = struct(ignore=pointer, ignore_count=size_t, only=pointer, only_count=size_t)
SubscriberOptions = struct(
    size=size_t, start=i32, on_lap=i32, observe=i32, conflate=u8, on_lap_given=u8, spins=u8, reserved=u8,
    spin_ns=i64, name=text, directory=text, senders=Screen, kinds=Screen, struct_name=text, struct_layout=text,
)  # fmt: skip
RawMessage = struct(
    data=pointer, size=size_t, sequence=u64, time_ns=i64, lost=u64, sender=pointer, kind=pointer, sender_size=u8,
    kind_size=u8, redelivered=u8, reserved=u8 * 5, position=u64,
)  # fmt: skip
FramePublisherOptions = struct(
    size=size_t, layout=pointer, buffers=u32, mode=u32, max_participants=u32, drops=u8, huge_pages=u8, takeover=u8,
    spins=u8, spin_ns=i64, sender=text, name=text, directory=text,
)  # fmt: skip
LARGEST_STRUCT = 4096
"""More than any that is only handed from one call to the next."""
Endpoint = struct(contract=i32, reserved=u32, capacity=u64, epoch=u64, max_message_bytes=u64, next_sequence=u64)

library = ctypes.CDLL(str(next((config.root() / "lab").glob("libringmain.so.*"))))
library.ringmain_last_error.restype = text


def checked(status: int) -> int:
    """OK or EMPTY; otherwise raises what Python's would."""
    if status in (0, EMPTY):
        return status
    said = (library.ringmain_last_error() or b"").decode()
    raise ERRORS.get(status, AssertionError)(said)


def waiting(timeout: float | None) -> Any:
    return ctypes.byref(Wait(-1 if timeout is None else int(timeout * 1e9), None))


class Handle:
    """What both ends have."""

    role: str

    def __init__(self, topic: str, options: ctypes.Structure) -> None:
        self._handle = pointer()
        opened = getattr(library, f"ringmain_{self.role}_open")
        checked(opened(topic.encode(), ctypes.byref(options), ctypes.byref(self._handle)))

    def close(self) -> None:
        getattr(library, f"ringmain_{self.role}_close")(self._handle)
        self._handle = pointer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def epoch(self) -> int | None:
        there = Endpoint()
        checked(getattr(library, f"ringmain_{self.role}_endpoint")(self._handle, ctypes.byref(there)))
        return int(there.epoch) or None

    def _schema(self) -> bytes:
        return b""


class Publisher(Handle):
    role = "publisher"

    def __init__(
        self, topic: str, *, contract: str = "", capacity: int = 0, name: str = "", sender: str = "",
        takeover: bool = False, spin: float | None = None, struct: str = "",
    ) -> None:  # fmt: skip
        self._opened = (topic, {"contract": contract, "capacity": capacity, "name": name, "spin": spin})
        super().__init__(
            topic,
            PublisherOptions(
                size=ctypes.sizeof(PublisherOptions), contract=CONTRACTS.index(contract), capacity=capacity,
                sender=sender.encode(), name=name.encode(), takeover=takeover, spins=spin is not None,
                spin_ns=int((spin or 0) * 1e9), struct_name=struct.encode(),
                struct_layout=b"{a:|u1@0}1" if struct else None,
            ),
        )  # fmt: skip

    def send(self, data: bytes, timeout: float | None = None) -> int:
        sequence = u64()
        checked(
            library.ringmain_send(
                self._handle, data, size_t(len(data)), None, size_t(0), waiting(timeout), ctypes.byref(sequence)
            )
        )
        return sequence.value

    def send_many(self, messages: list[bytes], timeout: float | None = None) -> None:
        for each in messages:
            self.send(each, timeout)

    @contextmanager
    def reserve(self, size: int, timeout: float | None = None) -> Iterator[memoryview]:
        data = pointer()
        checked(
            library.ringmain_reserve(self._handle, size_t(size), None, size_t(0), waiting(timeout), ctypes.byref(data))
        )
        try:
            assert data.value is not None
            yield memoryview((u8 * size).from_address(data.value)).cast("B")
        except BaseException:
            library.ringmain_discard(self._handle)
            raise
        checked(library.ringmain_commit(self._handle, size_t(size), None))

    @contextmanager
    def stream(self, timeout: float | None = None) -> Iterator[Any]:
        """C has none: what is written is a message in the end."""
        written = _Written()
        yield written
        self.send(bytes(written.data), timeout)

    @property
    def all_read(self) -> bool:
        yes = i32()
        checked(library.ringmain_all_read(self._handle, ctypes.byref(yes)))
        return bool(yes.value)

    def wait_for_readers(self, count: int, timeout: float | None = None) -> None:
        checked(library.ringmain_wait_for_readers(self._handle, u32(count), waiting(timeout), None))

    def _set_schema(self, schema: bytes) -> None:
        """Whose schema is a struct's: it is that of a publisher that opens the topic."""
        topic, options = self._opened
        self.close()
        self.__init__(topic, struct=f"T{'x' * (len(schema) % 256)}", **options)  # type: ignore[misc]


class FramePublisher(Handle):
    role = "frame_publisher"

    def __init__(self, topic: str, *, size: int, buffers: int) -> None:
        layout = ctypes.create_string_buffer(LARGEST_STRUCT)
        checked(library.ringmain_layout_of_bytes(u64(size), layout))
        options = FramePublisherOptions(
            size=ctypes.sizeof(FramePublisherOptions), layout=ctypes.addressof(layout), buffers=buffers
        )
        super().__init__(topic, options)

    def send(self, timeout: float | None = None) -> None:
        draft = ctypes.create_string_buffer(LARGEST_STRUCT)
        checked(library.ringmain_frame_begin(self._handle, waiting(timeout), draft))
        checked(library.ringmain_frame_commit(self._handle, draft, None))


class _Written:
    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, part: bytes) -> None:
        self.data += part


class Subscriber(Handle):
    role = "subscriber"

    def __init__(
        self, topic: str, *, start: str = "next", on_lap: str = "oldest", name: str = "", spin: float | None = None
    ) -> None:
        super().__init__(
            topic,
            SubscriberOptions(
                size=ctypes.sizeof(SubscriberOptions), start=STARTS[start], on_lap=STARTS[on_lap], on_lap_given=1,
                spins=spin is not None, spin_ns=int((spin or 0) * 1e9), name=name.encode(),
            ),
        )  # fmt: skip

    def recv_message(self, timeout: float | None = None) -> rm.Message:
        found = self._receive(timeout)
        assert found is not None
        return found

    def try_recv_message(self) -> rm.Message | None:
        return self._receive(0)

    def recv(self, timeout: float | None = None) -> bytes:
        return self.recv_message(timeout).data

    def try_recv(self) -> bytes | None:
        found = self._receive(0)
        return None if found is None else found.data

    def recv_many(self, count: int) -> list[bytes]:
        found = []
        while len(found) < count and (data := self.try_recv()) is not None:
            found.append(data)
        return found

    def recv_into(self, buffer: bytearray, timeout: float | None = None) -> int:
        message = RawMessage()
        room = (u8 * len(buffer)).from_buffer(buffer)
        checked(
            library.ringmain_receive(self._handle, waiting(timeout), room, size_t(len(buffer)), ctypes.byref(message))
        )
        return int(message.size)

    @contextmanager
    def borrow(self, timeout: float | None = None) -> Iterator[Any]:
        message = RawMessage()
        checked(library.ringmain_borrow(self._handle, waiting(timeout), ctypes.byref(message)))
        failed = 1
        try:
            yield _Lease(message)
            failed = 0
        finally:
            status = library.ringmain_return(self._handle, ctypes.byref(message), failed)
        checked(status)

    def reject(self, _message: object) -> None:
        checked(library.ringmain_reject(self._handle))

    def _receive(self, timeout: float | None) -> rm.Message | None:
        message = RawMessage()
        if checked(library.ringmain_receive(self._handle, waiting(timeout), None, size_t(0), ctypes.byref(message))):
            return None
        return rm.Message(
            _Lease(message).data,
            message.sequence,
            message.time_ns,
            ctypes.string_at(message.sender, message.sender_size).decode(),
            ctypes.string_at(message.kind, message.kind_size).decode(),
            message.lost,
        )


class FrameSubscriber(Handle):
    role = "frame_subscriber"

    def __init__(self, topic: str) -> None:
        super().__init__(topic, SubscriberOptions(size=ctypes.sizeof(SubscriberOptions)))

    def recv(self, timeout: float | None = None) -> None:
        frame = ctypes.create_string_buffer(LARGEST_STRUCT)
        checked(library.ringmain_frame_receive(self._handle, waiting(timeout), frame))
        library.ringmain_frame_release(frame)


class _Lease:
    def __init__(self, message: Any) -> None:
        self.data: bytes = ctypes.string_at(message.data, message.size) if message.size else b""


class Follower(Subscriber):
    """As `actors.Follower`: it looks after each call in which life of the topic it is."""

    def __init__(self, ledger: Any, topic: str) -> None:
        self._ledger = ledger
        super().__init__(topic, name="survivor", on_lap="oldest", spin=0)
        self._note()

    def _note(self) -> None:
        if (epoch := self.epoch) is not None:
            self._ledger.join(epoch)

    def recv_message(self, timeout: float | None = None) -> rm.Message:
        try:
            return super().recv_message(timeout)
        finally:
            self._note()


def wait(subscribers: list[Subscriber], timeout: float | None = None) -> list[Subscriber]:
    handles = (pointer * len(subscribers))(*(each._handle.value for each in subscribers))
    ready = (u8 * len(subscribers))()
    checked(library.ringmain_wait_any(handles, size_t(len(subscribers)), waiting(timeout), ready))
    return [each for each, has in zip(subscribers, ready, strict=True) if has]


def unlink(topic: str, *, force: bool = False) -> None:
    checked(library.ringmain_unlink(topic.encode(), None, i32(force)))


def clean() -> None:
    """What a process does when it opens its first publisher."""
    Publisher("lab/other", contract="broadcast").close()
