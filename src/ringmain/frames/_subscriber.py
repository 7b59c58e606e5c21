"""`FrameSubscriber`: receives a stream's frames. `recv`, `try_recv` and iteration are the native type's own; see
native/python/frame_subscriber.cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn

from ringmain import _native
from ringmain._native import Frame
from ringmain._subscriber import Start, Subscriber
from ringmain.errors import Closed, StreamChanged
from ringmain.frames._layout import FrameLayout
from ringmain.frames._memory import Pinned

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from ringmain._message import Message


class FrameSubscriber(_native.FrameSubscriber, Subscriber):
    """Receives a stream's frames. The stream may not exist yet, and may be restarted meanwhile, with another shape too.

    conflate: deliver only the newest frame; what is passed over does not count as lost.
    start: "latest" begins with the next frame, "oldest" with the oldest that is still there.
    on_change: when the stream comes back with another layout: "follow" it (the frame's shape tells), or "raise"
    `StreamChanged` once before its first frame.
    name: what the roster calls this participant.   spin: as for `Subscriber`.
    """

    def __init__(
        self,
        stream: str,
        *,
        conflate: bool = False,
        start: Start = "latest",
        on_change: Literal["follow", "raise"] = "follow",
        name: str | None = None,
        spin: float | None = None,
    ) -> None:
        if on_change not in ("follow", "raise"):
            raise ValueError(f"on_change is 'follow' or 'raise', not {on_change!r}")
        self.on_change = on_change
        self._layout: FrameLayout | None = None
        self._wants_pinned = False
        self._pinned: Pinned | None = None
        self._previous: Frame | None = None
        super().__init__(stream, start=start, on_lap="oldest", conflate=conflate, name=name, spin=spin)
        self._options = {
            "conflate": conflate,
            "start": start,
            "on_change": on_change,
            "name": self._options["name"],
            "spin": spin,
        }

    @property
    def layout(self) -> FrameLayout | None:
        """Of the newest frame received; before the first, of the stream as it is, or None if there is none."""
        if self._layout is None:
            from ringmain.frames._streams import frame_stream

            try:
                return frame_stream(self.topic).layout
            except FileNotFoundError:
                return None
        return self._layout

    def _pool_attached(self, schema: bytes, buffer_bytes: int) -> FrameLayout:
        """Called when a frame lies in a pool that is not the one before: the first, or after a restart."""
        layout = FrameLayout.from_bytes(schema, self.topic, buffer_bytes)
        before, self._layout = self._layout, layout
        if before is not None and before != layout and self.on_change == "raise":
            raise StreamChanged(
                f"stream '{self.topic}' was {_summary(before)} and is now {_summary(layout)}; "
                "receive again to go on with it"
            )
        if self._wants_pinned:
            self._pin()
        return layout

    # --------------------------------------------------------------------- the subscriber's other ways to receive

    def recv_message(self, timeout: float | None = None) -> Frame:  # type: ignore[override]
        """The same as `recv`: a frame has all that a message has."""
        return self.recv(timeout)

    def try_recv_message(self) -> Frame | None:  # type: ignore[override]
        """The same as `try_recv`."""
        return self.try_recv()

    def borrow(self, timeout: float | None = None) -> Frame:  # type: ignore[override]
        """The same as `recv`: frames are always read where they lie."""
        return self.recv(timeout)

    def recv_many(self, max_messages: int, timeout: float | None = 0) -> list[Frame]:
        """What is there, up to max_messages. Each frame holds its buffer."""
        frames: list[Frame] = []
        if max_messages > 0:
            first = self.try_recv() if timeout == 0 else self.recv(timeout)
            while first is not None:
                frames.append(first)
                first = self.try_recv() if len(frames) < max_messages else None
        return frames

    def recv_into(self, buffer: WriteableBuffer, timeout: float | None = None) -> int:
        """Copy the next frame into a buffer; returns its size. If the buffer is too small, `ValueError`."""
        target = memoryview(buffer).cast("B")
        with self.recv(timeout) as frame:
            if frame.size > len(target):
                raise ValueError(f"the frame has {frame.size} bytes and the buffer {len(target)}")
            target[: frame.size] = frame.data
            return frame.size

    def recv_batch(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("frames do not come in batches of columns: receive them one by one")

    async def arecv(self, timeout: float | None = None) -> Frame:
        """`recv` for asyncio. A cancelled call has taken nothing."""
        from ringmain import _aio

        frame: Any = await _aio.receive(self, timeout)
        return frame  # type: ignore[no-any-return]

    async def arecv_message(self, timeout: float | None = None) -> Message:
        raise TypeError("use arecv(): a frame has all that a message has")

    async def __anext__(self) -> Frame:
        if self._previous is not None:
            self._previous.release()
            self._previous = None
        if self.closed:
            raise StopAsyncIteration
        try:
            self._previous = await self.arecv()
        except Closed:
            raise StopAsyncIteration from None
        return self._previous

    # ------------------------------------------------------------------------------------------ memory, and the end

    def pin_memory(self) -> bool:
        """Register the buffers with CUDA, so that copies to a GPU are asynchronous; again when the stream restarts.
        False where there is no torch with CUDA, or no frame has come yet."""
        self._wants_pinned = True
        return self._pin()

    def _pin(self) -> bool:
        self._unpin()
        memory = self._memory()
        self._pinned = None if memory is None else Pinned.register(*memory, writable=False)
        return self._pinned is not None

    def _unpin(self) -> None:
        if self._pinned is not None:
            self._pinned.release()
            self._pinned = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.topic, self._options)

    def _close(self) -> None:
        self._unpin()
        if self._previous is not None:
            self._previous.release()
            self._previous = None
        if self.closed:
            return
        super()._close()
        self._leave_pool()


def _rebuild(cls: type[FrameSubscriber], stream: str, options: dict[str, Any]) -> FrameSubscriber:
    return cls(stream, **options)


def _summary(layout: FrameLayout) -> str:
    if layout.width:
        return f"{layout.format} of {layout.width} x {layout.height}"
    return f"{layout.array.dtype} of shape {layout.shape}"
