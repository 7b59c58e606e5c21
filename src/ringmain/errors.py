"""The errors. All derive from `RingmainError`, and each also from the builtin that a Python program would catch without
knowing ringmain. The text says what happened, to which topic, and what to do. It is for people, and made of the fields,
which are for programs: nothing here or in a user's program needs to look into a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

__all__ = [
    "AddressError",
    "Busy",
    "Closed",
    "CodecNotFound",
    "Corrupt",
    "DecodeError",
    "FrameTopicChanged",
    "Full",
    "InUse",
    "InvalidArgument",
    "JavaNotFound",
    "LakeError",
    "Lapped",
    "MessageTooLarge",
    "NotAllowed",
    "RecorderBusy",
    "RecordingCorrupt",
    "RecordingError",
    "RecordingNotFound",
    "RequestFailed",
    "RingmainError",
    "RosterFull",
    "SchemaError",
    "SchemaMismatch",
    "ServerGone",
    "SparkUnavailable",
    "SystemFailure",
    "TakenOver",
    "Timeout",
    "TopicBusy",
    "TopicMismatch",
    "TopicNotFound",
    "Unsupported",
]


class RingmainError(Exception):
    """The base of all errors of ringmain. Their fields say what the text says, for programs; one that is not known, or
    does not apply, is None. An error keeps its fields when it is pickled."""

    topic: str | None
    """Which topic it is about."""
    service: str | None
    """Which service, if it is about a request."""

    def __init__(self, *args: object, topic: str | None = None, service: str | None = None) -> None:
        super().__init__(*args)
        self.topic, self.service = topic, service

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by the constructor of the class, whose arguments may be others. An errno is not among the fields.
        _, args, *fields = cast("tuple[Any, ...]", super().__reduce__())
        return _rebuild, (type(self), args, {**fields[0], "errno": getattr(self, "errno", None)})


def _rebuild(cls: type[RingmainError], args: tuple[Any, ...], fields: dict[str, Any]) -> RingmainError:
    error = cls.__new__(cls)
    RingmainError.__init__(error, *args)
    for name, value in fields.items():
        if name != "errno" or value is not None:
            setattr(error, name, value)
    return error


class InvalidArgument(RingmainError, ValueError):
    """A topic's name, a size, or a number that is given as an argument breaks its rule. The text has the rule."""


class WaitedFor(NamedTuple):
    """A participant that did not do in time what was waited for."""

    role: str
    """writer, reader or observer."""
    name: str
    pid: int | None
    """None: it is in another pid namespace, where its number means another process."""


class Timeout(RingmainError, TimeoutError):
    """The time was up before a message came. Says which participant it waited for."""

    timeout: float | None
    """The seconds that were waited."""
    reason: str
    """Why it took longer: who was waited for, and in what state it was."""
    participants: tuple[WaitedFor, ...]
    """Which participants were waited for, if any had come."""
    lost: int
    """Receiving: how many messages were lost since the last one received."""

    def __init__(
        self,
        what: str = "",
        *,
        topic: str | None = None,
        service: str | None = None,
        timeout: float | None = None,
        reason: str = "",
        participants: Iterable[tuple[str, str, int | None]] = (),
        lost: int = 0,
    ) -> None:
        super().__init__(what, topic=topic, service=service)
        self.timeout, self.reason, self.lost = timeout, reason, lost
        self.participants = tuple(WaitedFor(*each) for each in participants)

    def __str__(self) -> str:
        """From the fields, so that one who waits in slices says how long it waited in all: `error.timeout = 5`."""
        waited = "" if self.timeout is None else f" within {self.timeout:.6g} s"
        lost = f"; {self.lost} message{' was' if self.lost == 1 else 's were'} lost since the last one received"
        return f"{self.args[0]}{waited}{f': {self.reason}' if self.reason else ''}{lost if self.lost else ''}"


class Full(Timeout):
    """A message could not be sent in time, because there was no room. Says which participant it waited for."""

    sent: int = 0
    """With `send_many`: how many messages went out before."""


class Busy(Timeout):
    """No server is free to take a request at once, or there is no room for it, and the call does not wait:
    `call(..., if_idle=True)`, `call(..., room_timeout=0)`."""


class ServerGone(RingmainError, ConnectionError):
    """The server that had the request died, or left without an answer. It may have run, in part or whole; it will not
    run again."""


class RequestFailed(RingmainError, RuntimeError):
    """The server could not do what was asked; the text is its reason."""


class TopicNotFound(RingmainError, FileNotFoundError):
    """There is no such topic, or it was removed."""


class TopicBusy(RingmainError, OSError):
    """The topic has its one writer or reader already, or is in use. Says which participant that is."""


class TopicMismatch(RingmainError, ValueError):
    """The topic exists with another contract or capacity, and cannot be replaced."""


class TakenOver(RingmainError, ConnectionAbortedError):
    """Another writer has taken over from this one."""


class RosterFull(RingmainError, OSError):
    """All slots of the topic are taken by living participants."""


class MessageTooLarge(RingmainError, ValueError):
    """The message can never fit. Says the limit, and the capacity to ask for."""

    size_bytes: int | None = None
    """Of the message."""
    limit_bytes: int | None = None
    """Of the largest that fits."""
    needed_capacity: int | None = None
    """What to ask for: `capacity=`. None: no topic takes such a message."""


class Lapped(RingmainError, BufferError):
    """A borrowed message was overwritten while it was in use. Only on `broadcast`."""

    seq: int | None = None
    """Of the message."""


class InUse(RingmainError, BufferError):
    """A view into shared memory is still alive, or a block is still open."""


class Closed(RingmainError, ValueError):
    """The publisher or subscriber is closed."""


class NotAllowed(RingmainError, PermissionError):
    """A file or directory belongs to another user, is a link, or may not be opened."""


class Corrupt(RingmainError, ValueError):
    """A file is not a valid topic: another format, another version, or damaged."""


class Unsupported(RingmainError, ValueError):
    """The backend cannot do what was asked. Says why, and what to use instead."""


class AddressError(RingmainError, ValueError):
    """A zmq address, the table of addresses or a file of keys cannot be used. Says which, and why."""


class FrameTopicChanged(RingmainError, ValueError):
    """A frame topic restarted with another layout, and the subscriber was opened with `on_change="raise"`."""


class SystemFailure(RingmainError, OSError):
    """The operating system refused something; `errno` says what. A full /dev/shm is one of these."""


class SchemaError(RingmainError, ValueError):
    """The bytes kept as a topic's schema are not a schema, or describe something that cannot exist."""


class SchemaMismatch(RingmainError, TypeError):
    """A reader's type cannot take what the topic's writer sends; `differences` lists why, one line each."""

    writer: str
    """What is sent."""
    reader: str
    """What was asked for."""
    differences: tuple[str, ...]
    """Why the one cannot be read as the other."""

    def __init__(self, writer: str, reader: str, differences: Sequence[str], *, topic: str | None = None) -> None:
        self.writer = writer
        self.reader = reader
        self.differences = tuple(differences)
        where = f"topic {topic!r} is" if topic is not None else "messages are"
        lines = "".join(f"\n  - {difference}" for difference in self.differences)
        super().__init__(f"{where} written as {writer}, which does not read as {reader}:{lines}", topic=topic)


class DecodeError(RingmainError, ValueError):
    """One message's payload does not decode. The subscriber has moved past it, to the next one; on `work`, the message
    is given back."""

    seq: int
    """Of the message."""
    reason: str
    """What the decoder said."""

    def __init__(self, topic: str, seq: int, reason: str) -> None:
        self.seq = seq
        self.reason = reason
        super().__init__(
            f"message {seq} of topic {topic!r} does not decode: {reason}. "
            "It was skipped, or on a work topic given back; receive again for the next one.",
            topic=topic,
        )


class CodecNotFound(RingmainError, LookupError):
    """No codec handles this type, or this schema names a codec that is not registered here."""


class RecordingError(RingmainError, OSError):
    """A recording could not be written or reached: disk full, directory gone, no permission."""


class RecordingNotFound(RecordingError, FileNotFoundError):
    """There is no recording at this path, or the segment asked for is no longer in it."""


class RecordingCorrupt(RingmainError, ValueError):
    """Bytes of a recording fail their checksum; `Recording.verify()` says which rows are affected."""


class RecorderBusy(RingmainError, BlockingIOError):
    """Another living recorder holds the directory; a directory has one recorder at a time."""


class SparkUnavailable(RingmainError, ImportError):
    """A package that Spark needs is not installed. Says which, and how to get it."""


class JavaNotFound(RingmainError, FileNotFoundError):
    """No Java that Spark can run on was found. Says which were tried, and what to install."""


class LakeError(RingmainError, RuntimeError):
    """A lake cannot be written as it is: its row counts do not add up, or it was built another way. Says which."""


# The texts that more than one backend says, or that the native module says, too.


def no_message(
    topic: str, timeout: float | None, reason: str, participants: Iterable[tuple[str, str, int | None]], lost: int
) -> Timeout:
    return Timeout(
        f"no message on topic '{topic}'",
        topic=topic,
        timeout=timeout,
        reason=reason,
        participants=participants,
        lost=lost,
    )


def no_room(
    topic: str, timeout: float | None, waiting_for: str, participants: Iterable[tuple[str, str, int | None]] = ()
) -> Full:
    reason = f"waiting for {waiting_for}"
    return Full(f"topic '{topic}' had no room", topic=topic, timeout=timeout, reason=reason, participants=participants)


def no_buffer(topic: str, timeout: float | None, buffers: int, holders: str) -> Full:
    what = f"frame topic '{topic}' had no free buffer"
    return Full(what, topic=topic, timeout=timeout, reason=f"of its {buffers}, {holders}")


def too_few_readers(topic: str, timeout: float | None, readers: int, wanted: int, sends: bool) -> Timeout:
    """`sends`: a message was to be sent, which needs so many."""
    what = f"topic '{topic}' had {readers} of {wanted} readers"
    if sends:
        return Full(what, topic=topic, timeout=timeout, reason="nothing was sent")
    return Timeout(what, topic=topic, timeout=timeout)


def too_large(
    topic: str, size_bytes: int, capacity_bytes: int, limit_bytes: int, needed_capacity: int | None, keeps: bool
) -> MessageTooLarge:
    """`keeps`: the topic keeps the last message of each kind."""
    why = ", since a topic with keep_last_per_kind has a 1024th of it for each kind" if keeps else ""
    error = MessageTooLarge(
        f"a message of {size_bytes} bytes is too large for topic '{topic}': with its {capacity_bytes} bytes it takes "
        f"up to {limit_bytes}; "
        + (
            f"ask for capacity={needed_capacity} or more{why}"
            if needed_capacity is not None
            else "no topic takes more than 4 GiB in one message"
        ),
        topic=topic,
    )
    error.size_bytes, error.limit_bytes, error.needed_capacity = size_bytes, limit_bytes, needed_capacity
    return error


def wrong_type(topic: str, accepts: tuple[type, ...] | None, value: object, cause: object = None) -> TypeError:
    """For a message that its topic does not carry. `accepts`: the classes of a typed topic. `cause`: of an encoder."""
    given = type(value)
    name = given.__name__
    if cause is not None:
        way_out = "; give the field the type numpy.ndarray, or send it as a list (tolist)"
        return TypeError(
            f"topic '{topic}' cannot encode this {name}: {cause}{way_out if 'numpy' in str(cause) else ''}"
        )
    if accepts is None:
        return TypeError(f"topic '{topic}' carries bytes, not {name}: open both ends with type={name}, or send bytes")
    if any(each.__qualname__ == given.__qualname__ and each.__module__ == given.__module__ for each in accepts):
        return TypeError(
            f"topic '{topic}' takes {name}, but the class was defined again after the publisher was opened (by a "
            "notebook cell that ran twice?): open the publisher again"
        )
    wanted = " or ".join(each.__name__ for each in accepts)
    return TypeError(f"topic '{topic}' takes {wanted}, not {name}")
