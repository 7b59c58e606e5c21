"""The two ends of a bridge: how they are written, opened and described."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ringmain import _native
from ringmain._contracts import CONTRACTS
from ringmain._publisher import Publisher
from ringmain._subscriber import Start, Subscriber
from ringmain.backends import BACKENDS, _features
from ringmain.errors import TopicMismatch, TopicNotFound

if TYPE_CHECKING:
    from ringmain.frames import FramePublisher, FrameSubscriber


_POOL_PATIENCE_S = 10.0
"""How long a frame topic may be without its pool. It takes the memory of all buffers to make one."""


def parse_end(text: str, security: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The arguments for an end written as text. `security`: further fields of its address."""
    backend, separator, rest = text.partition(":")
    if not separator:
        return {"topic": text, "backend": "shm"}
    if backend not in BACKENDS:
        raise ValueError(f"{text!r} is not an end of a bridge: write topic, zmq:topic or zmq:topic@tcp://host:port")
    topic, at, address = rest.partition("@")
    return {"topic": topic, "backend": backend, **({"address": {"endpoint": address, **security}} if at else {})}


def contract_note(source: Any, target: Any) -> str:
    """What a reader of the target must know, if its contract is not the source's; otherwise nothing."""
    if isinstance(target, _native.FramePublisher):
        return ""
    there, here = source.contract, target.contract
    if there is None or here is None or there == here:
        return ""
    return (
        f": its contract is {there}, that of '{target.topic}' is {here}, on which a slow reader "
        f"{'is lapped and told what it lost' if not CONTRACTS[here].writer_waits else 'makes the bridge wait'}"
    )


def describe_end(end: Any) -> str:
    frames = isinstance(end, _native.FrameSubscriber | _native.FramePublisher)
    backend, contract = ("shm", "frames") if frames else (end._backend, end.contract)
    return f"{backend}:{end.topic} ({contract or 'not there yet'})"


def open_source(text: str, start: Start, security: Mapping[str, Any]) -> Subscriber | FrameSubscriber:
    options = parse_end(text, security)
    try:
        return Subscriber(**options, name="bridge", start=start)
    except TopicMismatch:
        from ringmain.frames import FrameSubscriber

        return FrameSubscriber(options["topic"], name="bridge", start=start)


def open_target(options: dict[str, Any], source: Any) -> Publisher | FramePublisher:
    """With the source's contract, if it is known and the backend has it; otherwise the topic's, or the default."""
    if isinstance(source, _native.FrameSubscriber):
        return open_frame_target(options, source)
    contract: Any = None if missing_contract(options, source) else source.contract
    return Publisher(**options, name="bridge", contract=contract)


def missing_contract(options: dict[str, Any], source: Any) -> bool:
    """Is the source's contract unknown, or can the target's backend not have it?"""
    contract = source.contract
    return contract is None or _features.missing(options["backend"], f"contract {contract}") is not None


def open_frame_target(options: dict[str, Any], source: Any) -> FramePublisher:
    from ringmain.frames import FramePublisher, frame_topic

    if options["backend"] != "shm":
        raise TopicMismatch(
            f"'{source.topic}' is a frame topic, and the backend {options['backend']!r} has no frames: send what is "
            "needed of them as messages, for example type=numpy.ndarray, and bridge that topic"
        )
    deadline_s = time.monotonic() + _POOL_PATIENCE_S
    while True:
        try:
            there = frame_topic(source.topic)
            break
        except TopicNotFound:  # its publisher is still making the pool
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)
    return FramePublisher(options["topic"], layout=there.layout, buffers=there.buffers, name="bridge")


def in_shared_memory(end: Any) -> bool:
    return isinstance(end, _native.FrameSubscriber) or end._backend == "shm"
