"""`bridge`: carries messages from one topic to another, on any backends: shared memory to zmq and back.

Owns this invariant: a message that is carried keeps its number, time, sender, kind and extension, and one that is
dropped is counted. So a reader of the target sees all losses on the way as gaps in the numbers. Frames are copied from
one frame topic to another; they get new numbers, and losses are counted by the bridge.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from ringmain import _extension, _native, backends
from ringmain._bridge_ends import (
    contract_note,
    describe_end,
    in_shared_memory,
    missing_contract,
    open_frame_target,
    open_source,
    open_target,
    parse_end,
)
from ringmain._closing import Closing
from ringmain._contracts import CONTRACTS
from ringmain._publisher import Publisher
from ringmain._reporting import worth_reporting
from ringmain._subscriber import Start, Subscriber
from ringmain.backends import _features
from ringmain.errors import (
    Closed,
    Corrupt,
    Full,
    MessageTooLarge,
    RingmainError,
    SchemaError,
    Timeout,
    TopicBusy,
    TopicMismatch,
)

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
    invalid: int = 0
    """Messages dropped because they are not valid: not in ringmain's format, or with a number, sender or kind that no
    message may have. The first is reported as a warning, then the tenth, the hundredth and so on."""

    @property
    def dropped(self) -> int:
        """All messages that did not reach the target."""
        return self.lost + self.full + self.too_large + self.invalid


class _InvalidMessage(Exception):
    """One message cannot be carried, whatever the target does; the next one may."""


class Bridge(Closing):
    """Carries messages from `source` to `target`: in a thread of its own after `start()`, or by calling `carry()`.

    timeout: seconds to wait for room, on contracts whose writer waits; then the message is dropped and counted. None:
        without a limit, until the bridge is closed. A message of a `work` topic is kept and tried again, and given back
        when the bridge is closed.
    The bridge closes both ends when it is closed. If its thread ends before, a warning says so at once.
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
        self._stop = threading.Event()
        self._carries = self._carrier()
        self._target_options: dict[str, Any] | None = None  # of a target that the bridge opened itself
        self._agreed = False
        self._kept: Any = None  # of a work topic: a message that the target had no room for
        self._thread: threading.Thread | None = None

    def carry(self, timeout: float | None = None) -> int:
        """Wait for a message and carry all that are there, up to a few hundred; returns how many were carried."""
        before = self.traffic.carried
        for received in range(AT_ONCE):
            if received and self._stop.is_set():  # each may wait for room
                break
            try:
                if not self._carry_one(0 if received else timeout):
                    break
            except _InvalidMessage as error:
                self._drop(error)
        self.traffic.lost = self._lost_before + self.source.lost
        return self.traffic.carried - before

    def _carry_one(self, timeout: float | None) -> bool:
        """False: there is none, or no room for it."""
        wait_s = self._timeout
        if self._kept is not None and wait_s is not None:  # the wait is for room, and no shorter than for a message
            wait_s = max(wait_s, SLICE_S if timeout is None else timeout)
        message = self._kept or self._receive(timeout)
        if message is None:
            return False
        if not self._agreed:
            self._agree_on_contract(stack=3)
        self._kept = None if self._carries.send(message, wait_s) else message
        return self._kept is None

    def _carrier(self) -> _MessageCarrier | _FrameCarrier:
        source, target = self.source, self.target
        frames = [isinstance(end, _native.FrameSubscriber | _native.FramePublisher) for end in (source, target)]
        if frames[0] != frames[1]:
            raise _not_alike(source, target)
        carrier: Any = _FrameCarrier if frames[0] else _MessageCarrier
        return cast(_MessageCarrier | _FrameCarrier, carrier(source, target, self.traffic, self._stop))

    def _drop(self, error: _InvalidMessage) -> None:
        self.traffic.invalid = count = self.traffic.invalid + 1
        if worth_reporting(count):
            warnings.warn(f"{self._called} dropped a message ({count} so far): {error}", RuntimeWarning, stacklevel=3)

    @property
    def _called(self) -> str:
        return f"the bridge from '{self.source.topic}' to '{self.target.topic}'"

    def _receive(self, timeout: float | None) -> Any:
        try:
            message = self.source.try_recv_message() if timeout == 0 else self.source.recv_message(timeout)
        except Timeout:
            return None
        except Corrupt as error:
            if in_shared_memory(self.source):
                raise  # the ring is damaged, and no message will come from it
            raise _InvalidMessage(str(error)) from error
        except TopicMismatch:
            if not in_shared_memory(self.source):
                raise  # another topic's address
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
        self.target = open_frame_target(options, self.source)
        self._carries = self._carrier()

    def _agree_on_contract(self, stack: int) -> None:
        """The target gets the source's contract, where the bridge opened it and the target can. Otherwise it says what
        differs. When a bridge is opened before its source exists, that is only known with the first message."""
        self._agreed = True
        options, source = self._target_options, self.source
        if options is None or isinstance(self.target, _native.FramePublisher):
            return
        if self.target.contract != source.contract and not missing_contract(options, source):
            self.target.close()
            with suppress(TopicMismatch, TopicBusy):  # others write to it: it stays as it is
                self.target = open_target(options, source)
            if self.target.closed:
                self.target = Publisher(**options, name="bridge")
            self._carries = self._carrier()
        if note := contract_note(source, self.target):
            warnings.warn(f"bridge from '{source.topic}'{note}", RuntimeWarning, stacklevel=stack + 1)

    def describe(self) -> str:
        """What is carried where, in one line: which ends, which contracts, and what differs between them."""
        return f"{describe_end(self.source)} -> {describe_end(self.target)}{contract_note(self.source, self.target)}"

    def start(self) -> Self:
        """Carry in a thread, until `close`."""
        self._thread = threading.Thread(target=self._run, name=f"bridge {self.source.topic}", daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.carry(SLICE_S)
        except BaseException as error:
            if isinstance(error, Closed) and self._stop.is_set():
                return
            self.error = error
            warnings.warn(f"{self._called} has ended: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)

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

    def __init__(self, source: Subscriber, target: Publisher, traffic: Traffic, stop: threading.Event) -> None:
        self._source, self._target, self._traffic, self._stop = source, target, traffic, stop
        self._epoch: int | None = None
        self._offset = 0
        self._sender = target.sender

    def send(self, message: Any, wait_s: float | None) -> bool:
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
            send_as = partial(
                self._target._send_as, message.data, number, message.time_ns,
                _extension.said(message.extension, message.kind),
            )  # fmt: skip
            if not _finds_room(send_as, wait_s, self._stop):
                if _gives_back(self._source):
                    return False
                self._traffic.full += 1
                return True
        except MessageTooLarge:
            self._traffic.too_large += 1
        except RingmainError:
            raise
        except (ValueError, OverflowError) as error:
            raise _InvalidMessage(f"message {message.seq} of topic '{self._source.topic}': {error}") from error
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
            try:
                if (schema := self._source.schema) is not None:
                    self._target._set_schema(schema.to_bytes())
            except SchemaError as error:
                warnings.warn(
                    f"the messages of '{self._source.topic}' are carried without their schema: {error}",
                    RuntimeWarning,
                    stacklevel=2,
                )


class _FrameCarrier:
    """Copies frames into the target's buffers."""

    def __init__(self, _: FrameSubscriber, target: FramePublisher, traffic: Traffic, stop: threading.Event) -> None:
        self._target, self._traffic, self._stop = target, traffic, stop

    def send(self, frame: Frame, wait_s: float | None) -> bool:
        with frame:
            if frame.layout != self._target.layout:
                raise TopicMismatch(
                    f"the frames of the source have another layout than frame topic '{self._target.topic}': start the "
                    "bridge again",
                    topic=self._target.topic,
                )
            if not _finds_room(partial(self._copy, frame), wait_s, self._stop):
                self._traffic.full += 1
                return True
        self._traffic.carried += 1
        self._traffic.carried_bytes += frame.size
        return True

    def _copy(self, frame: Frame, wait_s: float) -> None:
        with self._target.frame(wait_s) as draft:
            draft.id, draft.start_ns, draft.end_ns = frame.id, frame.start_ns, frame.end_ns
            draft.valid, draft.meta = frame.valid, frame.meta
            draft._fill(frame.data)
            if draft.size != frame.size:
                draft.size = frame.size


def _finds_room(send: Callable[[float], object], wait_s: float | None, stop: threading.Event) -> bool:
    """Calls `send` with a time to wait: without a limit again and again, until the bridge is closed."""
    while True:
        try:
            send(SLICE_S if wait_s is None else wait_s)
        except Full:
            if wait_s is not None or stop.is_set():
                return False
        else:
            return True


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
    start: Start = "next",
    timeout: float | None = 1.0,
    thread: bool = True,
    keys: str | None = None,
    server_key: str | None = None,
    clients: str | None = None,
    insecure: bool = False,
) -> Bridge:
    """Carry messages from one topic to another, in a thread: `with rm.bridge("imu", "zmq:imu") as carrying: ...`

    Each end is a subscriber or publisher (which is closed with the bridge), or a text: a topic of shared memory,
     "zmq:topic", or "zmq:topic@tcp://host:port". The frames of a frame topic are copied into another one; only shared
     memory has those.
    start: where a source that is a text begins, as a `Subscriber` does: with what comes from now on, or "oldest": with
        what the ring still has, or "newest". A `pipe` and `work` keep what is unread: there a bridge begins with that.
    timeout: seconds to wait for room; `Bridge` explains it.
    thread: carry in a thread, until `close`. False: by calling `carry` or `run`.
    keys, server_key, clients, insecure: for an end that is a text with an address; `Address` explains them.
    """
    security = {"keys": keys, "server_key": server_key, "clients": clients, "insecure": insecure}
    subscriber = open_source(source, start, security) if isinstance(source, str) else source
    options = parse_end(target, security) if isinstance(target, str) else None
    try:
        publisher: Any = target if options is None else open_target(options, subscriber)
        carrying = Bridge(subscriber, publisher, timeout=timeout)
    except BaseException:
        subscriber.close()
        raise
    carrying._target_options = options
    if subscriber.contract is not None:
        carrying._agree_on_contract(stack=3)
    return carrying.start() if thread else carrying
