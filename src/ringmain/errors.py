"""The family of errors: each is a `RingmainError` and also the builtin a Python person would catch.

Every message says what happened, to which topic, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Sequence


class RingmainError(Exception):
    """The base of everything that ringmain raises on its own account."""


class SchemaError(RingmainError, ValueError):
    """The bytes kept as a topic's schema are not a schema, or describe something that cannot exist."""


class SchemaMismatch(RingmainError, TypeError):
    """A reader's type cannot take what the topic's writer sends; `differences` lists why, one line each."""

    def __init__(
        self, writer: str, reader: str, differences: Sequence[str], *, topic: str | None = None
    ) -> None:
        self.writer = writer
        self.reader = reader
        self.differences = tuple(differences)
        self.topic = topic
        where = f"topic {topic!r} is" if topic is not None else "messages are"
        lines = "".join(f"\n  - {difference}" for difference in self.differences)
        super().__init__(f"{where} written as {writer}, which does not read as {reader}:{lines}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_mismatch, (self.writer, self.reader, self.differences, self.topic)


def _rebuild_mismatch(
    writer: str, reader: str, differences: Sequence[str], topic: str | None
) -> SchemaMismatch:
    return SchemaMismatch(writer, reader, differences, topic=topic)


class DecodeError(RingmainError, ValueError):
    """One message's payload does not decode. The subscriber has moved past it, to the next one."""

    def __init__(self, topic: str, seq: int, reason: str) -> None:
        self.topic = topic
        self.seq = seq
        self.reason = reason
        super().__init__(
            f"message {seq} of topic {topic!r} does not decode: {reason}. "
            "It was skipped; receive again for the next one."
        )

    def __reduce__(self) -> tuple[object, ...]:
        return DecodeError, (self.topic, self.seq, self.reason)


class CodecNotFound(RingmainError, LookupError):
    """No codec handles this type, or this schema names a codec that is not registered here."""
