"""`FrameSubscriber`: receives the frames of a frame topic. Its `recv`, `try_recv` and iteration are native
(native/python/frame_subscriber.cpp); it reads the descriptors with a `Subscriber` of its own."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, cast

from ringmain import _names, _native
from ringmain._endpoint import AsyncIteration, Endpoint
from ringmain._screens import ScreenSet
from ringmain._subscriber import Start, Subscriber
from ringmain.errors import FrameTopicChanged, Timeout
from ringmain.frames._layout import FrameLayout
from ringmain.frames._memory import Pinning, check_backend
from ringmain.frames._topics import frame_topic

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from ringmain._native import EndpointRecord, Frame


class FrameSubscriber(Endpoint, AsyncIteration, _native.FrameSubscriber):
    """Receives the frames of a frame topic. The topic may not exist yet, and may be restarted, with another shape too.

    conflate: deliver only the newest frame; skipped frames do not count as lost.
    start: "next" begins with the next frame, "oldest" with the oldest one that is still available, "newest" with the
        newest one.
    on_change: when the topic restarts with another layout, "follow" it (each frame has its shape), or "raise"
    `FrameTopicChanged` once before its first frame.
    name: this participant's name in the roster.   spin: as for `Subscriber`.
    """

    _backend = "shm"
    _role = "subscriber"  # isinstance(..., Subscriber) is true
    _waits_natively = True

    def __init__(
        self,
        topic: str,
        *,
        conflate: bool = False,
        start: Start = "next",
        on_change: Literal["follow", "raise"] = "follow",
        name: str | None = None,
        spin: float | None = None,
    ) -> None:
        check_backend()
        if on_change not in ("follow", "raise"):
            raise ValueError(f"on_change is 'follow' or 'raise', not {on_change!r}")
        self.topic = _names.check_topic(topic)
        self.on_change = on_change
        self._directory = _names.runtime_directory()
        self._in_a_row = 0  # frames that asyncio took without waiting
        self._layout: FrameLayout | None = None
        self._pinning = Pinning(writable=False)
        self._pins = False
        self._options = {"conflate": conflate, "start": start, "on_change": on_change, "name": name, "spin": spin}
        options = {"conflate": conflate, "start": start, "name": name, "spin": spin}
        self._descriptors = _Descriptors(topic, self, options)
        self._opened()

    @property
    def layout(self) -> FrameLayout | None:
        """Of the newest frame received; before the first frame, of the topic as it is, or None if there is none."""
        if self._layout is None:
            try:
                return frame_topic(self.topic).layout
            except FileNotFoundError:
                return None
        return self._layout

    def _pool_attached(self, schema: bytes, buffer_bytes: int) -> FrameLayout:
        """Called natively when the pool is mapped: before the first frame, and after each restart of the publisher."""
        layout = FrameLayout.from_bytes(schema, self.topic, buffer_bytes)
        before, self._layout = self._layout, layout
        if before is not None and before != layout and self.on_change == "raise":
            raise FrameTopicChanged(
                f"frame topic '{self.topic}' was {_summary(before)} and is now {_summary(layout)}; "
                "receive again to continue with it",
                topic=self.topic,
            )
        if self._pins:
            self._pinning.register(self._memory())
        return layout

    # ----------------------------------------------------------------------------------------------- receiving

    recv_message = borrow = _native.FrameSubscriber.recv  # a frame has what a message has, and is never copied
    try_recv_message = _native.FrameSubscriber.try_recv

    def recv_many(self, max_messages: int, timeout: float | None = 0) -> list[Frame]:
        """The available frames, up to max_messages. Waits, if at all, only for the first; an empty list if none comes
        in time, where `recv` raises `Timeout`. Each frame holds its buffer."""
        frames: list[Frame] = []
        with suppress(Timeout):
            while len(frames) < max_messages:
                frame = self.try_recv() if frames or timeout == 0 else self.recv(timeout)
                if frame is None:
                    break
                frames.append(frame)
        return frames

    recv_messages = recv_many

    def recv_into(self, buffer: WriteableBuffer, timeout: float | None = None) -> int:
        """Copy the next frame into a buffer; returns its size. If the buffer is too small, `ValueError`."""
        target = memoryview(buffer).cast("B")
        with self.recv(timeout) as frame:
            if frame.size > len(target):
                raise ValueError(f"the frame has {frame.size} bytes and the buffer {len(target)}")
            target[: frame.size] = frame.data
            return frame.size

    def recv_batch(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("frames are not received as columns: receive them one by one")

    async def arecv(self, timeout: float | None = None) -> Frame:
        """`recv` for asyncio. A cancelled call has taken nothing."""
        from ringmain import _aio  # loads asyncio

        return cast("Frame", await _aio.receive(cast("Any", self), timeout))

    arecv_message = arecv

    def __aiter__(self) -> AsyncIterator[Frame]:
        return _AsyncLoop(self)

    # ---------------------------------------------------------------------------------- what the descriptors tell

    @property
    def lost(self) -> int:
        """Frames lost since it was opened."""
        return self._descriptors.lost

    @property
    def attached(self) -> bool:
        """Does the topic exist?"""
        return self._descriptors.attached

    @property
    def contract(self) -> str | None:
        """The contract of the topic of descriptors; None before it exists."""
        return self._descriptors.contract

    @property
    def epoch(self) -> int | None:
        """When the topic of descriptors was created, in nanoseconds; None before it exists."""
        return self._descriptors.epoch

    @property
    def schema(self) -> None:
        """Frames have a `layout` instead."""

    @property
    def closed(self) -> bool:
        return self._descriptors.closed

    @property
    def ignore_senders(self) -> ScreenSet:
        """Senders whose frames are skipped. Change it like any set."""
        return self._descriptors.ignore_senders

    @ignore_senders.setter
    def ignore_senders(self, senders: Iterable[str]) -> None:
        self._descriptors.ignore_senders = senders

    @property
    def ignore_kinds(self) -> ScreenSet:
        """Kinds of frames that are skipped. Change it like any set."""
        return self._descriptors.ignore_kinds

    @ignore_kinds.setter
    def ignore_kinds(self, kinds: Iterable[str]) -> None:
        self._descriptors.ignore_kinds = kinds

    @property
    def only_senders(self) -> ScreenSet | None:
        """Senders whose frames are received, and no others; None: all."""
        return self._descriptors.only_senders

    @only_senders.setter
    def only_senders(self, senders: Iterable[str] | None) -> None:
        self._descriptors.only_senders = senders

    @property
    def only_kinds(self) -> ScreenSet | None:
        """Kinds of frames that are received, and no others; None: all."""
        return self._descriptors.only_kinds

    @only_kinds.setter
    def only_kinds(self, kinds: Iterable[str] | None) -> None:
        self._descriptors.only_kinds = kinds

    def fileno(self) -> int:
        """A file descriptor that is readable while a frame is available, for select and event loops."""
        return self._descriptors.fileno()

    def _arm(self, event: _native.Event, /) -> int:
        return self._descriptors._arm(event)

    def _pass_on(self) -> None:
        self._descriptors._pass_on()

    def _raise_timeout(self, timeout: float | None, /) -> None:
        self._descriptors._raise_timeout(timeout)

    def _describe(self) -> EndpointRecord | None:
        return self._descriptors._describe()

    def _schema(self) -> bytes:
        return self._descriptors._schema()

    # --------------------------------------------------------------------------------------- memory, and closing

    def pin_memory(self) -> bool:
        """Register the buffers with CUDA, so that copies to a GPU are asynchronous; repeated when the topic restarts.
        False if torch with CUDA is not available, or no frame has been received yet."""
        self._pins = True
        return self._pinning.register(self._memory())

    def _close(self) -> None:
        self._pinning.release()
        self._descriptors.close()
        self._leave_pool()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._directory, self.topic, self._options)


class _AsyncLoop:
    """What `async for frame in subscriber` runs: each loop has its own, so several tasks can loop over one subscriber.
    A frame's block ends when its loop asks for the next one."""

    def __init__(self, frames: FrameSubscriber) -> None:
        self._frames = frames
        self._previous: Frame | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        if self._previous is not None:
            self._previous.release()
            self._previous = None
        self._previous = await self._frames.__anext__()
        return self._previous


class _Descriptors(Subscriber):
    """Reads the descriptors of a frame topic, and tells the frame subscriber whenever it has joined the topic."""

    def __init__(self, topic: str, frames: FrameSubscriber, options: dict[str, Any]) -> None:
        if not self._waits_natively:
            raise TypeError(f"Lockstep cannot pause the frame subscriber of '{topic}': leave its topic out")
        self._frames = weakref.ref(frames)
        frames._descriptors = self  # before joining: `_attached` uses it
        frames._open(self)
        super().__init__(topic, **options)

    def _attached(self) -> None:
        frames = self._frames()
        if frames is not None:
            frames._attached()


def _rebuild(cls: type[FrameSubscriber], directory: str, topic: str, options: dict[str, Any]) -> FrameSubscriber:
    with _names.directory_as(directory):
        return cls(topic, **options)


def _summary(layout: FrameLayout) -> str:
    if layout.width:
        return f"{layout.format} of {layout.width} x {layout.height}"
    return f"{layout.array.dtype} of shape {layout.shape}"
