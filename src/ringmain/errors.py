"""The errors. All derive from `RingmainError`, and each also from the builtin that a Python program would catch without
knowing ringmain. The text says what happened, to which topic, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

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
    "StreamChanged",
    "SystemFailure",
    "TakenOver",
    "Timeout",
    "TopicBusy",
    "TopicMismatch",
    "TopicNotFound",
    "Unsupported",
]


class RingmainError(Exception):
    """The base of all errors of ringmain."""


class Timeout(RingmainError, TimeoutError):
    """The time was up before a message came. Says which participant it waited for."""


class Full(Timeout):
    """A message could not be sent in time, because there was no room. Says which participant it waited for."""

    sent: int = 0
    """With `send_many`: how many messages went out before."""


class Busy(Timeout):
    """No server is free to take a request at once, and the call does not wait: `call(..., timeout=0)`."""


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


class Lapped(RingmainError, BufferError):
    """A borrowed message was overwritten while it was in use. Only on `broadcast`."""


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


StreamChanged = FrameTopicChanged
"""Its name before 0.2."""


class SystemFailure(RingmainError, OSError):
    """The operating system refused something; `errno` says what. A full /dev/shm is one of these."""


class SchemaError(RingmainError, ValueError):
    """The bytes kept as a topic's schema are not a schema, or describe something that cannot exist."""


class SchemaMismatch(RingmainError, TypeError):
    """A reader's type cannot take what the topic's writer sends; `differences` lists why, one line each."""

    def __init__(self, writer: str, reader: str, differences: Sequence[str], *, topic: str | None = None) -> None:
        self.writer = writer
        self.reader = reader
        self.differences = tuple(differences)
        self.topic = topic
        where = f"topic {topic!r} is" if topic is not None else "messages are"
        lines = "".join(f"\n  - {difference}" for difference in self.differences)
        super().__init__(f"{where} written as {writer}, which does not read as {reader}:{lines}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_mismatch, (self.writer, self.reader, self.differences, self.topic)


def _rebuild_mismatch(writer: str, reader: str, differences: Sequence[str], topic: str | None) -> SchemaMismatch:
    return SchemaMismatch(writer, reader, differences, topic=topic)


class DecodeError(RingmainError, ValueError):
    """One message's payload does not decode. The subscriber has moved past it, to the next one; on `work`, the message
    is given back."""

    def __init__(self, topic: str, seq: int, reason: str) -> None:
        self.topic = topic
        self.seq = seq
        self.reason = reason
        super().__init__(
            f"message {seq} of topic {topic!r} does not decode: {reason}. "
            "It was skipped, or on a work topic given back; receive again for the next one."
        )

    def __reduce__(self) -> tuple[object, ...]:
        return DecodeError, (self.topic, self.seq, self.reason)


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
