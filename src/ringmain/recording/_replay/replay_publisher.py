"""Publishers for a replay: the live topic gets the recorded contract, schema and properties, or a pool for frames of
the recorded layout.

The invariant owned here: a topic is created as it was recorded, but for who may open it; a frame is published with the
recorded layout, pixels and metadata.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from ringmain._inspect import info
from ringmain._publisher import Publisher
from ringmain.errors import CodecNotFound, TopicNotFound
from ringmain.frames import FrameLayout, FramePublisher
from ringmain.recording._format import FRAMES
from ringmain.recording._frames import split
from ringmain.recording._meta import TopicMeta

_DEFAULT_CAPACITY = 1 << 20
_DEFAULT_BUFFERS = 4


class Options(NamedTuple):
    """How to create a topic."""

    capacity: int | None
    """Of its ring; None: as recorded, or enough for the largest message several times over."""
    largest: int
    """Bytes of the largest message; 0 where the recorded capacity is known."""
    original: bool
    """Are sequence numbers and publish times to be kept?"""
    first_payload: Callable[[], Any]
    """The first payload to be published: for a frame topic, it has the layout."""


def open_echo(live: str, meta: TopicMeta, options: Options) -> Echo:
    """A publisher on the topic `live` for a recorded life."""
    if meta.contract == FRAMES:
        if options.original:
            raise ValueError(
                f"{meta.name!r} is a frame topic, whose sequence numbers cannot be kept: "
                "replay without original=True, or leave it out with topics="
            )
        return FrameEcho(live, split(options.first_payload())[1].layout, meta.properties.buffers or _DEFAULT_BUFFERS)
    recorded = meta.properties
    enough = recorded.capacity_bytes or max(_DEFAULT_CAPACITY, 4 * (options.largest + 4096))
    capacity = options.capacity or enough
    created: dict[str, Any] = {
        "capacity": capacity,
        "max_participants": recorded.max_participants or None,
        "keep_last_per_kind": recorded.kept_kinds or False,
    }
    with contextlib.suppress(TopicNotFound):
        there = info(live)
        if there.contract == (meta.contract or there.contract) and there.capacity >= capacity:
            created = {}  # as it is
    return MessageEcho(live, meta, contract=meta.contract or None, persist=recorded.persist, **created)


class MessageEcho(Publisher):
    """Publishes messages. Its `send` is not used: rows are published natively (native/python/replay.cpp)."""

    def __init__(self, topic: str, meta: TopicMeta, **created: Any) -> None:
        self._meta = meta
        super().__init__(topic, name="replay", **created)

    def _join(self, takeover: bool) -> None:
        unknown = False
        if self._meta.schema:
            from ringmain import typed

            try:
                self._codec = typed.codec_from_schema(typed.Schema.from_bytes(self._meta.schema))
            except CodecNotFound:  # a codec that readers register themselves; they need the schema for it
                unknown = True
        super()._join(takeover)
        if unknown and not self._schema():
            self._set_schema(self._meta.schema)

    def takes(self, meta: TopicMeta | None) -> bool:
        """Is it the right publisher for messages of this life?"""
        of = self._meta
        return meta is None or (meta.contract, meta.schema, meta.properties) == (of.contract, of.schema, of.properties)


class FrameEcho:
    """Publishes frames. Another layout needs another pool: the frame topic is then created again, as it was when it was
    recorded, and its readers follow."""

    def __init__(self, topic: str, layout: FrameLayout, buffers: int) -> None:
        self.topic, self._buffers = topic, buffers
        self._frames = FramePublisher(topic, layout=layout, buffers=buffers, name="replay")

    def takes(self, meta: TopicMeta | None) -> bool:
        """Is it the right publisher for frames of this life?"""
        return meta is None or meta.contract == FRAMES

    def publish(self, payload: Any, sender: str, timeout_s: float) -> None:
        """Raises `Full`, and publishes nothing, when readers hold all buffers for so long."""
        pixels, trailer = split(payload)
        if self._frames.layout != trailer.layout:
            self._frames.close()
            self._frames = FramePublisher(self.topic, layout=trailer.layout, buffers=self._buffers, name="replay")
        descriptors = self._frames._descriptors
        if descriptors.sender != sender:
            descriptors._set_sender(sender)
            descriptors.sender = sender
        with self._frames.frame(timeout_s) as draft:
            draft.id, draft.start_ns, draft.end_ns = trailer.id, trailer.start_ns, trailer.end_ns
            draft.valid, draft.meta = trailer.valid, trailer.meta
            draft._fill(pixels)
            if pixels.nbytes != draft.size:
                draft.size = pixels.nbytes

    @property
    def all_read(self) -> bool:
        return self._frames.all_read

    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> int:
        return self._frames.wait_for_readers(count, timeout)

    def close(self) -> None:
        self._frames.close()


Echo: TypeAlias = MessageEcho | FrameEcho
