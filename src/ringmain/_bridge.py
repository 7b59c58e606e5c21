"""`bridge`: carries messages from one topic to another, on any backends: shared memory to zmq and back.

Owns this invariant: a message that is carried keeps its number, time, sender and kind, and one that is dropped is
counted. So a reader of the target sees all losses on the way as gaps in the numbers. Frames are copied from one frame
topic to another; they get new numbers, and losses are counted by the bridge.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, cast

from ringmain import _native, backends
from ringmain._closing import Closing
from ringmain._contracts import CONTRACTS
from ringmain._publisher import Publisher
from ringmain._subscriber import Subscriber
from ringmain.backends import BACKENDS, _features
from ringmain.errors import Closed, Full, MessageTooLarge, Timeout, TopicBusy, TopicMismatch

if TYPE_CHECKING:
    from ringmain.frames import Frame, FramePublisher, FrameSubscriber

SLICE_S = 0.1
"""How long a bridge waits before it checks whether it was closed."""
AT_ONCE = 256


@dataclass(slots=True)
class Traffic:
    """What a bridge has done so far."""

    carried: int = 0
    """Messages sent to the target."""
    carried_bytes: int = 0
    lost: int = 0
    """Messages that were overwritten in the source before the bridge read them."""
    full: int = 0
    """Messages dropped because the target had no room in time."""
    too_large: int = 0
    """Messages dropped because the target's capacity can never hold them."""

    @property
    def dropped(self) -> int:
        """All messages that did not reach the target."""
        return self.lost + self.full + self.too_large


class Bridge(Closing):
    """Carries messages from `source` to `target`: in a thread of its own after `start()`, or by calling `carry()`.

    timeout: seconds to wait for room, on contracts whose writer waits; then the message is dropped and counted.
        A message of a `work` topic is kept and tried again, and given back when the bridge is closed.
    The bridge closes both ends when it is closed.
    """

    def __init__(
        self, source: Subscriber | FrameSubscriber, target: Publisher | FramePublisher, *, timeout: float | None = 1.0
    ) -> None:
        self.source, self.target = source, target
        self.traffic = Traffic()
        self.error: BaseException | None = None
        """The exception that ended the thread, if any."""
        self._timeout = timeout
        self._lost_before = 0
        self._carries = _carrier(source, target, self.traffic, timeout)
        self._target_options: dict[str, Any] | None = None  # of a target that the bridge opened itself
        self._agreed = False
        self._kept: Any = None  # of a work topic: a message that the target had no room for
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def carry(self, timeout: float | None = None) -> int:
        """Wait for a message and carry all that are there, up to a few hundred; returns how many were carried."""
        before = self.traffic.carried
        for received in range(AT_ONCE):
            message = self._kept or self._receive(0 if received else timeout)
            if message is None:
                break
            if not self._agreed:
                self._agree_on_contract(stack=2)
            self._kept = None if self._carries.send(message) else message
            if self._kept is not None:
                break
        self.traffic.lost = self._lost_before + self.source.lost
        return self.traffic.carried - before

    def _receive(self, timeout: float | None) -> Any:
        try:
            message = self.source.try_recv_message() if timeout == 0 else self.source.recv_message(timeout)
        except Timeout:
            return None
        except TopicMismatch:
            self._carry_frames()
            return None
        if isinstance(self.source, Subscriber) and message is not None and _is_descriptor(self.source, message):
            self._carry_frames()
            return None
        return message

    def _carry_frames(self) -> None:
        """The source turned out to be a frame topic, after it was opened as a topic of messages."""
        from ringmain.frames import FrameSubscriber

        options = self._target_options
        if options is None or isinstance(self.source, FrameSubscriber):
            raise _not_alike(self.source, self.target)
        self._lost_before += self.source.lost
        self.source.close()
        self.target.close()
        # What was sent to it in this life is new: it begins with the oldest.
        self.source = FrameSubscriber(self.source.topic, name="bridge", start="oldest")
        self.target = _open_frame_target(options, self.source)
        self._carries = _carrier(self.source, self.target, self.traffic, self._timeout)

    def _agree_on_contract(self, stack: int) -> None:
        """The target gets the source's contract, where the bridge opened it and the target can. Otherwise it says what
        differs. When a bridge is opened before its source exists, that is only known with the first message."""
        self._agreed = True
        options, source = self._target_options, self.source
        if options is None or isinstance(self.target, _native.FramePublisher):
            return
        if self.target.contract != source.contract and not _missing_contract(options, source):
            self.target.close()
            with suppress(TopicMismatch, TopicBusy):  # others write to it: it stays as it is
                self.target = _open_target(options, source)
            if self.target.closed:
                self.target = Publisher(**options, name="bridge")
            self._carries = _carrier(source, self.target, self.traffic, self._timeout)
        if note := contract_note(source, self.target):
            warnings.warn(f"bridge from '{source.topic}'{note}", RuntimeWarning, stacklevel=stack + 1)

    def describe(self) -> str:
        """What is carried where, in one line: which ends, which contracts, and what differs between them."""
        return f"{_describe_end(self.source)} -> {_describe_end(self.target)}{contract_note(self.source, self.target)}"

    def start(self) -> Self:
        """Carry in a thread, until `close`."""
        self._thread = threading.Thread(target=self._run, name=f"bridge {self.source.topic}", daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.carry(SLICE_S)
        except Closed:
            pass
        except BaseException as error:
            self.error = error

    def run(self) -> None:
        """Carry here, until Ctrl-C or `close` from another thread."""
        while not self._stop.is_set():
            self.carry(SLICE_S)

    def close(self) -> None:
        """Stop, and close both ends. Raises the exception that ended the thread, if any."""
        self._stop.set()
        # Ctrl-C may come while the thread starts: it then ends by itself, since it looks at _stop first.
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join()
        if self._kept is not None and not self.source.closed:
            cast(Subscriber, self.source).reject(self._kept)
        self.source.close()
        self.target.close()
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def __repr__(self) -> str:
        return f"<ringmain.Bridge {self.source!r} -> {self.target!r}: {self.traffic}>"


class _MessageCarrier:
    """Sends messages to the target with their own numbers, times, senders and kinds."""

    def __init__(self, source: Subscriber, target: Publisher, traffic: Traffic, timeout: float | None) -> None:
        self._source, self._target, self._traffic = source, target, traffic
        self._wait_s = -1 if timeout is None else timeout
        self._epoch: int | None = None
        self._offset = 0
        self._sender = target.sender

    def send(self, message: Any) -> bool:
        """False: there is no room, and it must not be dropped."""
        self._follow_source(message.seq)
        try:
            if message.sender != self._sender:
                self._target._set_sender(message.sender)
                self._sender = message.sender
            number = message.seq + self._offset
            if number < self._target.next_sequence:  # other writers send to the target too
                self._offset += self._target.next_sequence - number
                number = self._target.next_sequence
            self._target._send_as(message.data, number, message.time_ns, message.kind, self._wait_s)
        except Full:
            if _gives_back(self._source):
                return False
            self._traffic.full += 1
        except MessageTooLarge:
            self._traffic.too_large += 1
        else:
            self._traffic.carried += 1
            self._traffic.carried_bytes += len(message.data)
        return True

    def _follow_source(self, seq: int) -> None:
        """Numbers are kept, but never go back: when the source is recreated, its numbers continue after those that
        were sent already."""
        if self._source.epoch != self._epoch:
            self._epoch = self._source.epoch
            sent = self._target.next_sequence
            self._offset = sent - seq if seq < sent else 0
            if (schema := self._source.schema) is not None:
                self._target._set_schema(schema.to_bytes())


class _FrameCarrier:
    """Copies frames into the target's buffers."""

    def __init__(self, target: FramePublisher, traffic: Traffic, timeout: float | None) -> None:
        self._target, self._traffic, self._timeout = target, traffic, timeout

    def send(self, frame: Frame) -> bool:
        with frame:
            if frame.layout != self._target.layout:
                raise TopicMismatch(
                    f"the frames of the source have another layout than frame topic '{self._target.topic}': start the "
                    "bridge again"
                )
            try:
                with self._target.frame(self._timeout) as draft:
                    draft.id, draft.start_ns, draft.end_ns = frame.id, frame.start_ns, frame.end_ns
                    draft.valid, draft.meta = frame.valid, frame.meta
                    draft._fill(frame.data)
                    if draft.size != frame.size:
                        draft.size = frame.size
            except Full:
                self._traffic.full += 1
                return True
        self._traffic.carried += 1
        self._traffic.carried_bytes += frame.size
        return True


def _carrier(source: Any, target: Any, traffic: Traffic, timeout: float | None) -> _MessageCarrier | _FrameCarrier:
    frames = [isinstance(end, _native.FrameSubscriber | _native.FramePublisher) for end in (source, target)]
    if frames[0] != frames[1]:
        raise _not_alike(source, target)
    if frames[0]:
        return _FrameCarrier(target, traffic, timeout)
    return _MessageCarrier(source, target, traffic, timeout)


def _gives_back(source: Subscriber) -> bool:
    """Does a message that the bridge has taken, and not carried, go to another worker?"""
    contract, backend = source.contract, backends.choose(source._backend)
    shared = contract is not None and CONTRACTS[contract].shared
    return shared and _features.missing(backend, "a worker gives messages back") is None


def _not_alike(source: Any, target: Any) -> TopicMismatch:
    return TopicMismatch(
        f"'{source.topic}' and '{target.topic}' are not both topics of messages, or both frame topics: give the bridge "
        "a FrameSubscriber and a FramePublisher, or a Subscriber and a Publisher"
    )


def bridge(
    source: Subscriber | FrameSubscriber | str,
    target: Publisher | FramePublisher | str,
    *,
    timeout: float | None = 1.0,
    start: bool = True,
    keys: str | None = None,
    server_key: str | None = None,
    clients: str | None = None,
    insecure: bool = False,
) -> Bridge:
    """Carry messages from one topic to another, in a thread: `with rm.bridge("imu", "zmq:imu") as carrying: ...`

    Each end is a subscriber or publisher (which is closed with the bridge), or a text: a topic of shared memory,
     "zmq:topic", or "zmq:topic@tcp://host:port". The frames of a frame topic are copied into another one; only shared
     memory has those.
    keys, server_key, clients, insecure: for an end that is a text with an address; `Address` explains them.
    """
    security = {"keys": keys, "server_key": server_key, "clients": clients, "insecure": insecure}
    subscriber = _open_source(source, security) if isinstance(source, str) else source
    options = parse_end(target, security) if isinstance(target, str) else None
    try:
        publisher: Any = target if options is None else _open_target(options, subscriber)
        carrying = Bridge(subscriber, publisher, timeout=timeout)
    except BaseException:
        subscriber.close()
        raise
    carrying._target_options = options
    if subscriber.contract is not None:
        carrying._agree_on_contract(stack=3)
    return carrying.start() if start else carrying


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


def _describe_end(end: Any) -> str:
    frames = isinstance(end, _native.FrameSubscriber | _native.FramePublisher)
    backend, contract = ("shm", "frames") if frames else (end._backend, end.contract)
    return f"{backend}:{end.topic} ({contract or 'not there yet'})"


def _open_source(text: str, security: Mapping[str, Any]) -> Subscriber | FrameSubscriber:
    options = parse_end(text, security)
    try:
        return Subscriber(**options, name="bridge", start="oldest")
    except TopicMismatch:
        from ringmain.frames import FrameSubscriber

        return FrameSubscriber(options["topic"], name="bridge", start="oldest")


def _open_target(options: dict[str, Any], source: Any) -> Publisher | FramePublisher:
    """With the source's contract, if it is known and the backend has it; otherwise the topic's, or the default."""
    if isinstance(source, _native.FrameSubscriber):
        return _open_frame_target(options, source)
    contract: Any = None if _missing_contract(options, source) else source.contract
    return Publisher(**options, name="bridge", contract=contract)


def _missing_contract(options: dict[str, Any], source: Any) -> bool:
    """Is the source's contract unknown, or can the target's backend not have it?"""
    contract = source.contract
    return contract is None or _features.missing(options["backend"], f"contract {contract}") is not None


def _open_frame_target(options: dict[str, Any], source: Any) -> FramePublisher:
    from ringmain.frames import FramePublisher, frame_topic

    if options["backend"] != "shm":
        raise TopicMismatch(
            f"'{source.topic}' is a frame topic, and the backend {options['backend']!r} has no frames: send what is "
            "needed of them as messages, for example type=numpy.ndarray, and bridge that topic"
        )
    there = frame_topic(source.topic)
    return FramePublisher(options["topic"], layout=there.layout, buffers=there.buffers, name="bridge")


def _is_descriptor(source: Subscriber, message: Any) -> bool:
    """A frame topic exists before its pool, so it may have been opened as a topic of messages."""
    return message.data[:4] == b"FRME" and source._backend == "shm" and source._has_frames()
