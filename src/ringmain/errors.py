"""What can go wrong. One small family under `RingmainError`; each member is also the builtin that a Python
program would catch without knowing ringmain. The text says what happened, to which topic, and what to do."""

from __future__ import annotations

__all__ = [
    "Closed",
    "Corrupt",
    "DecodeError",
    "Full",
    "InUse",
    "Lapped",
    "MessageTooLarge",
    "NotAllowed",
    "RingmainError",
    "RosterFull",
    "SchemaMismatch",
    "SystemFailure",
    "TakenOver",
    "Timeout",
    "TopicBusy",
    "TopicMismatch",
    "TopicNotFound",
]


class RingmainError(Exception):
    """The base of all errors that ringmain raises by itself."""


class Timeout(RingmainError, TimeoutError):
    """Nothing came in time. Says for whom it waited."""


class Full(Timeout):
    """A message could not be sent in time, because somebody had not made room. Says who."""

    sent: int = 0
    """With `send_many`: how many messages went out before."""


class TopicNotFound(RingmainError, FileNotFoundError):
    """There is no such topic, or it was removed."""


class TopicBusy(RingmainError, OSError):
    """Somebody who lives has the place that was asked for. Says who."""


class TopicMismatch(RingmainError, ValueError):
    """The topic exists with another contract or capacity, and cannot be replaced."""


class TakenOver(RingmainError, ConnectionAbortedError):
    """Another participant has taken this one's place."""


class RosterFull(RingmainError, OSError):
    """All places of the topic are taken by living participants."""


class MessageTooLarge(RingmainError, ValueError):
    """The message can never fit. Says the limit, and the capacity to ask for."""


class Lapped(RingmainError, BufferError):
    """A borrowed message was overwritten while it was in use. Only on `broadcast`."""


class InUse(RingmainError, BufferError):
    """A view into shared memory is still alive, or a block has not been left."""


class Closed(RingmainError, ValueError):
    """The publisher or subscriber is closed."""


class NotAllowed(RingmainError, PermissionError):
    """A file or directory belongs to somebody else, is a link, or may not be opened."""


class Corrupt(RingmainError, ValueError):
    """Shared memory does not hold what it must: not a topic, another version, or written over."""


class SystemFailure(RingmainError, OSError):
    """The operating system refused something; `errno` says what. A full /dev/shm is one of these."""


class SchemaMismatch(RingmainError, TypeError):
    """The types of publisher and subscriber do not fit. Lists the fields that differ."""


class DecodeError(RingmainError, ValueError):
    """A message is not what the topic's schema says. The next one can be received as usual."""
