"""Observing a topic without disturbing it.

`watch` is an observer: writers never wait for it, it is not the one reader of a pipe, and it can be lapped on every
contract. `read_counters` needs no subscriber: it reads the counters in the topic file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from ringmain import _names, _native
from ringmain._cli.exit_codes import CommandError, Exit
from ringmain._cli.message_text import Decoder
from ringmain._cli.missing_topic import say_not_there_yet, similar_topic
from ringmain._cli.topic_summary import frames_of
from ringmain._message import Message
from ringmain._subscriber import Subscriber
from ringmain.errors import RingmainError, Timeout, TopicNotFound

_HEADER_BYTES = 24  # the least overhead of a message in the ring


def watch(topic: str, command: str, *, timeout: float | None, **options: Any) -> Subscriber:
    """A subscriber that only observes. The topic may come later; if it does not within `timeout`, the error says so."""
    sub = Subscriber(topic, name=f"ringmain {command}", observe="always", **options)
    if not sub.attached and (timeout is None or similar_topic(topic)):
        say_not_there_yet(command, topic)
    return sub


def messages(sub: Subscriber, timeout: float | None, *, decode: bool = True) -> Iterator[Message]:
    """The topic's messages, decoded into plain data. One that does not decode is yielded as bytes, with a warning on
    stderr. When no message arrives for `timeout` seconds, the command ends with exit code 4."""
    decoder, life = None, None
    while True:
        try:
            message = sub.recv_message(timeout)
        except Timeout as error:
            raise CommandError(str(error), Exit.TIMEOUT) from None
        if not decode:
            yield message
            continue
        if decoder is None or life != sub.epoch:
            decoder, life = _decoder(sub), sub.epoch
        try:
            data = decoder.plain(message.data)
        except ValueError as error:
            decoder = _decoder(sub)  # a new writer may have set a new schema
            try:
                data = decoder.plain(message.data)
            except ValueError:
                _say(f"message {message.seq} {error}; its bytes follow")
                data = message.data
        yield msgspec.structs.replace(message, data=data)


def _decoder(sub: Subscriber) -> Decoder:
    decoder = Decoder(sub.schema, frames=frames_of(sub.topic) is not None)
    if decoder.why_bytes:
        _say(f"printing bytes: {decoder.why_bytes}")
    return decoder


def _say(text: str) -> None:
    print(f"ringmain: {text}", file=sys.stderr)


# ------------------------------------------------------------------------------------------------- counters


@dataclass(frozen=True)
class Reading:
    """A topic's counters at one moment."""

    time_ns: int
    epoch: int
    messages: int
    ring_bytes: int
    """Written since the topic was created, envelopes included."""
    written: dict[tuple[int, int], tuple[int, int]]
    """By writer (slot, generation): messages and payload bytes."""
    frame_bytes: int = 0
    """Of a frame topic: the size of the buffer that each message refers to."""


@dataclass(frozen=True)
class Flow:
    """The traffic of a topic between two readings."""

    seconds: float
    messages: int
    payload_bytes: float

    @property
    def rate_hz(self) -> float:
        return self.messages / self.seconds

    @property
    def bytes_per_s(self) -> float:
        return self.payload_bytes / self.seconds


def read_counters(topic: str) -> Reading | None:
    """The counters now. None if there is no such topic."""
    try:
        seen = _native.inspect(_names.runtime_directory(), topic)
    except TopicNotFound:
        return None
    try:
        frame_bytes = _native.inspect_pool(_names.runtime_directory(), topic)["buffer_bytes"]
    except RingmainError:
        frame_bytes = 0
    return reading_of(seen, time.monotonic_ns(), frame_bytes)


def reading_of(seen: Any, now_ns: int, frame_bytes: int = 0) -> Reading:
    """The counters in an inspection."""
    written = {}
    for each in seen["participants"]:
        if each["role"] == "writer":
            written[each["slot"], each["generation"]] = (each["messages"], each["bytes"])
    return Reading(now_ns, seen["epoch"], seen["next_sequence"], seen["position"], written, frame_bytes)


def flow(before: Reading | None, now: Reading | None) -> Flow | None:
    """The traffic between two readings. None without both. A topic that was created again counts from zero."""
    if before is None or now is None or now.time_ns <= before.time_ns:
        return None
    seconds = (now.time_ns - before.time_ns) / 1e9
    if now.epoch != before.epoch:
        before = Reading(before.time_ns, now.epoch, 0, 0, {})
    count = max(0, now.messages - before.messages)
    # Writers count payload bytes. A writer that left took its count with it, so they give the mean size, not the sum.
    moved = [(c - b[0], n - b[1]) for who, (c, n) in now.written.items() for b in [before.written.get(who, (0, 0))]]
    counted, payload = sum(m for m, _ in moved), sum(n for _, n in moved)
    if counted > 0:
        return Flow(seconds, count, (payload / counted + now.frame_bytes) * count)
    return Flow(
        seconds, count, max(0, now.ring_bytes - before.ring_bytes - _HEADER_BYTES * count) + now.frame_bytes * count
    )
