"""Publishers for a replay: the live topic gets the recorded contract and schema, or a pool for frames of the recorded
layout.

The invariant owned here: a message is published with the recorded sender, kind and bytes; a frame with the recorded
layout, pixels and metadata.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ringmain._contracts import ContractName as Contract
from ringmain._inspect import info
from ringmain._publisher import Publisher
from ringmain.errors import CodecNotFound, TopicNotFound
from ringmain.frames import FrameLayout, FramePublisher
from ringmain.recording._format import FRAMES
from ringmain.recording._frames import split
from ringmain.recording._meta import TopicMeta
from ringmain.recording._replay.merge import Recorded

_DEFAULT_CAPACITY = 1 << 20


class Options(NamedTuple):
    """How to create a topic."""

    capacity: int | None
    """Of its ring; None: enough for the largest message several times over."""
    largest: int
    """Bytes of the largest message."""
    original: bool
    """Are sequence numbers and publish times to be kept?"""
    first_payload: Callable[[], Any]
    """The first payload to be published: for a frame topic, it has the layout."""


class Echo(Protocol):
    """Publishes what was recorded of one topic."""

    def takes(self, meta: TopicMeta | None) -> bool:
        """Is it the right publisher for messages of this life?"""

    def publish(self, message: Recorded, timeout_s: float) -> None:
        """Raises `Full`, and publishes nothing, when readers block it for so long."""

    @property
    def all_read(self) -> bool: ...
    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> int: ...
    def close(self) -> None: ...


def open_echo(live: str, meta: TopicMeta, options: Options) -> Echo:
    """A publisher on the topic `live` for a recorded life."""
    if meta.contract == FRAMES:
        if options.original:
            raise ValueError(
                f"{meta.name!r} is a frame topic, whose sequence numbers cannot be kept: "
                "replay without original=True, or leave it out with topics="
            )
        return FrameEcho(live, split(options.first_payload())[1].layout)
    contract: Any = meta.contract or None
    needed = options.capacity or max(_DEFAULT_CAPACITY, 4 * (options.largest + 4096))
    with contextlib.suppress(TopicNotFound):
        there = info(live)
        if there.contract == (contract or there.contract) and there.capacity >= needed:
            needed = there.capacity
    return MessageEcho(live, meta, needed, contract, options.original)


class MessageEcho(Publisher):
    """Publishes messages."""

    def __init__(self, topic: str, meta: TopicMeta, capacity: int, contract: Contract | None, original: bool) -> None:
        self._meta, self._original = meta, original
        super().__init__(topic, contract=contract, capacity=capacity, name="replay")

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
        return meta is None or (meta.contract, meta.schema) == (self._meta.contract, self._meta.schema)

    def publish(self, message: Recorded, timeout_s: float) -> None:
        if self.sender != message.sender:
            self._set_sender(message.sender)
            self.sender = message.sender
        seq = message.seq if self._original else -1
        self._send_as(message.data, seq, message.time_ns, message.kind, timeout_s)


class FrameEcho:
    """Publishes frames. Another layout needs another pool: the frame topic is then created again, as it was when it was
    recorded, and its readers follow."""

    def __init__(self, topic: str, layout: FrameLayout) -> None:
        self._topic = topic
        self._frames = FramePublisher(topic, layout=layout, name="replay")

    def takes(self, meta: TopicMeta | None) -> bool:
        return meta is None or meta.contract == FRAMES

    def publish(self, message: Recorded, timeout_s: float) -> None:
        pixels, trailer = split(message.data)
        if self._frames.layout != trailer.layout:
            self._frames.close()
            self._frames = FramePublisher(self._topic, layout=trailer.layout, name="replay")
        descriptors = self._frames._descriptors
        if descriptors.sender != message.sender:
            descriptors._set_sender(message.sender)
            descriptors.sender = message.sender
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
