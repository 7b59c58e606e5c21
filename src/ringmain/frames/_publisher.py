"""`FramePublisher`: sends frames to a frame topic. Its `frame` is native (native/python/frame_publisher.cpp)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from ringmain import _names, _native
from ringmain._endpoint import Endpoint
from ringmain._native import FrameDraft
from ringmain._publisher import Participation, Publisher, continued
from ringmain.errors import Closed
from ringmain.frames._layout import FrameLayout, HasLayout, is_count
from ringmain.frames._memory import Pinning, check_backend, huge_page_problem

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_BUFFERS = _native.FRAMES_LAYOUT["max_buffers"]
DESCRIPTOR_RING_BYTES = 64 * 1024
"""Room for some hundred descriptors; there are never more unread frames than buffers."""


class _DescriptorPublisher(Publisher):
    _of_frames = True


class FramePublisher(HasLayout, Endpoint, _native.FramePublisher):
    """Sends frames to a frame topic, and creates the topic if it does not exist.

    shape, dtype: of an array.   size: instead, for bytes without a shape.   layout: instead, a `FrameLayout`, such as
    `FrameLayout.of_image("nv12", 1928, 1208)`.
    buffers: how many frames can be held or unread at once, 60 at most. Few are faster: they stay in the cache.
    when_full: if readers hold all buffers, "wait", or "drop" the new frame and count it in `dropped`.
    huge_pages: ask for huge pages; the attribute `huge_pages` tells whether the system provided them.
    sender, name, mode, takeover, max_participants, spin: as for `Publisher`.
    """

    layout: FrameLayout
    _participation: Participation | None = None  # in a process that it was passed to: of the one it came from

    def __init__(
        self,
        topic: str,
        shape: int | Sequence[int] | None = None,
        dtype: npt.DTypeLike | None = None,
        *,
        size: int | None = None,
        layout: FrameLayout | None = None,
        buffers: int = 4,
        when_full: Literal["wait", "drop"] = "wait",
        huge_pages: bool = False,
        sender: str = "",
        name: str | None = None,
        mode: int | None = None,
        takeover: bool = False,
        max_participants: int | None = None,
        spin: float | None = None,
    ) -> None:
        check_backend()
        self.topic = _names.check_topic(topic)
        self.layout = _choose_layout(shape, dtype, size, layout)
        if not is_count(buffers) or buffers > MAX_BUFFERS:
            raise ValueError(f"buffers is a number from 1 to {MAX_BUFFERS}, not {buffers!r}")
        if when_full not in ("wait", "drop"):
            raise ValueError(f"when_full is 'wait' or 'drop', not {when_full!r}")
        self.buffers = buffers
        self.huge_pages = False
        self._pinning = Pinning(writable=True)
        self._options = {
            "layout": self.layout,
            "buffers": buffers,
            "when_full": when_full,
            "huge_pages": huge_pages,
            "sender": sender,
            "name": name,
            "mode": mode,
            "max_participants": max_participants,
            "spin": spin,
        }
        ring = {
            "contract": "broadcast",
            "capacity": DESCRIPTOR_RING_BYTES,
            "sender": sender,
            "name": name,
            "mode": mode,
            "takeover": takeover,
            "max_participants": max_participants,
            "spin": spin,
            "backend": "shm",
        }
        self._descriptors = continued(_DescriptorPublisher, topic, ring, self._participation)
        try:
            self._make_pool()
        except BaseException:
            self._descriptors.close()
            raise
        self._opened()

    def _make_pool(self) -> None:
        """Also called natively in a forked child, which needs a pool of its own: the inherited one is the parent's."""
        options = self._options
        self._open(
            self._descriptors,
            self.layout,
            self.buffers,
            self.layout.size,
            self.layout.format != "bytes",
            options["mode"] or 0o600,
            options["huge_pages"],
            options["when_full"] == "drop",
            self.layout.to_bytes(),
            self._participant_name(),
        )
        if options["huge_pages"]:
            memory = self._memory()
            problem = huge_page_problem(*memory) if memory else "the pool is closed"
            self.huge_pages = problem is None
            if problem:
                message = f"frame topic '{self.topic}' uses ordinary pages: {problem}"
                warnings.warn(message, RuntimeWarning, stacklevel=3)

    def send(self, frame: Any, *, id: int | None = None, meta: dict[str, Any] | None = None,
             timeout: float | None = None) -> int | None:  # fmt: skip
        """Copy a frame into a buffer and send it; returns its sequence number, or None if it was dropped.

        An array must have the topic's shape and dtype; bytes and planar images may also be any buffer of that size.
        """
        source = _check_source(self.layout, self.topic, frame)
        with self.frame(timeout) as draft:
            if id is not None:
                draft.id = id
            if meta:
                draft.meta = meta
            if not draft.dropped:
                _fill(draft, source)
        return draft.seq

    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> int:
        """Wait until `count` readers have joined; returns how many there are."""
        return self._descriptors.wait_for_readers(count, timeout)

    @property
    def all_read(self) -> bool:
        """Have all readers received the newest frame?"""
        return self._descriptors.all_read

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next frame."""
        return self._descriptors.next_sequence

    def pin_memory(self) -> bool:
        """Register the buffers with CUDA, so that copies to a GPU are asynchronous. False if torch with CUDA is not
        available: copies then still work, synchronously."""
        return self._pinning.register(self._memory())

    def _close(self) -> None:
        self._pinning.release()
        if not self.closed:
            self._check_no_drafts()
            self._descriptors.close()
            self._leave()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.closed:
            raise Closed(
                f"the publisher of frame topic '{self.topic}' is closed: it cannot be passed on", topic=self.topic
            )
        ring = self._descriptors
        return _rebuild, (type(self), ring._directory, self.topic, self._options, ring._participation)


def _rebuild(
    cls: type[FramePublisher], directory: str, topic: str, options: dict[str, Any], participation: Participation
) -> FramePublisher:
    with _names.directory_as(directory):
        return continued(cls, topic, options, participation)


def _choose_layout(
    shape: int | Sequence[int] | None, dtype: npt.DTypeLike | None, size: int | None, layout: FrameLayout | None
) -> FrameLayout:
    given = [what for what, value in (("shape", shape), ("size", size), ("layout", layout)) if value is not None]
    if len(given) != 1:
        raise ValueError(f"give one of shape, size and layout, not {' and '.join(given) or 'none of them'}")
    if dtype is not None and shape is None:
        raise ValueError(f"dtype goes with shape, not with {given[0]}")
    if layout is not None:
        if not isinstance(layout, FrameLayout):
            raise TypeError(f"layout is a FrameLayout, not {type(layout).__name__}")
        return layout
    if shape is not None:
        return FrameLayout.of_array(shape, "u1" if dtype is None else dtype)
    assert size is not None
    return FrameLayout.of_bytes(size)


def _check_source(layout: FrameLayout, topic: str, frame: Any) -> Any:
    """What to copy: an array of the topic's shape, or a buffer of bytes. Checked before a pool buffer is claimed."""
    if layout.format == "bytes" or (layout.planes and not hasattr(frame, "shape")):
        try:
            source = memoryview(frame)
        except TypeError:
            raise TypeError(f"frame topic '{topic}' takes buffers of bytes, not {type(frame).__name__}") from None
        if not source.c_contiguous:
            source = memoryview(source.tobytes())
        if source.nbytes > layout.size or (layout.planes and source.nbytes != layout.size):
            most = "at most " if layout.format == "bytes" else ""
            raise ValueError(f"a frame of topic '{topic}' has {most}{layout.size} bytes, this one {source.nbytes}")
        return source
    import numpy as np

    array = np.asarray(frame)
    if array.shape != layout.shape or array.dtype != layout.dtype:
        raise ValueError(
            f"a frame of topic '{topic}' is {layout.dtype} of shape {layout.shape}, "
            f"this one is {array.dtype} of shape {array.shape}"
        )
    return array


def _fill(draft: FrameDraft, source: Any) -> None:
    if isinstance(source, memoryview):
        draft._fill(source)
        if source.nbytes != draft.size:
            draft.size = source.nbytes
        return
    if source.flags.c_contiguous and not draft.layout.array.strides:
        draft._fill(source)
        return
    import numpy as np

    np.copyto(draft.array, source)
