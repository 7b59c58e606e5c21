"""A message with its envelope: number, time, sender and kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

import msgspec

from ringmain import _extension

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)  # so that a plain `Message` or `Subscriber` is one of anything
else:
    from typing import TypeVar

    T = TypeVar("T")


class Message(msgspec.Struct, Generic[T], frozen=True):
    """A message as it was received. `data` is bytes, or the decoded object on a typed topic."""

    data: T
    seq: int
    """Its number in the topic, counted from 0."""
    time_ns: int
    """When it was published: wall clock, nanoseconds since 1970."""
    sender: str = ""
    kind: str = ""
    lost: int = 0
    """How many messages were lost just before this one."""
    topic: str = ""
    """The topic that it came on."""
    redelivered: int = 0
    """On `work`: how often another worker had it before and gave it back; 15 stands for 15 or more."""
    extension: bytes = b""
    """What ringmain's own parts say of it; empty for most messages. To send it on, with what carries it."""

    @property
    def trace(self) -> str:
        """The `traceparent` of the span in which it was sent (`ringmain.tracing`); empty if there was none."""
        return _extension.trace_of(self.extension)

    @property
    def reply_to(self) -> int | None:
        """Of a reply (`ringmain.Server`): the number of its request."""
        answer = _extension.answer_of(self.extension)
        return None if answer is None else answer.number

    @property
    def text(self) -> str:
        """The data as a string."""
        data: Any = self.data
        return data if isinstance(data, str) else bytes(data).decode()
