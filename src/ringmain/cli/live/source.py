"""Where the live view looks: topics seen from outside. No slot is taken, nothing is held, nobody is slowed."""

from __future__ import annotations

from typing import Protocol

from ringmain import _native, names
from ringmain.cli.messages import Decoder
from ringmain.cli.survey import survey
from ringmain.cli.watching import Reading, read_counters
from ringmain.errors import RingmainError
from ringmain.inspect import TopicInfo, info
from ringmain.message import Message

_MOST_BYTES = 1 << 20  # a larger message is named, not shown


class Source(Protocol):
    """What the app needs to see."""

    def look(self) -> list[tuple[TopicInfo, Reading]]: ...
    def newest(self, topic: str, count: int) -> list[Message]: ...


class Topics:
    """The real topics."""

    def look(self) -> list[tuple[TopicInfo, Reading]]:
        return [(seen, reading) for seen in survey()[0] if (reading := read_counters(seen.name)) is not None]

    def newest(self, topic: str, count: int) -> list[Message]:
        """The newest messages, decoded, oldest first; none if the topic is gone."""
        try:
            decoder = Decoder(info(topic).schema)
            seen = _native.peek(names.runtime_directory(), topic, count, _MOST_BYTES)
        except (RingmainError, ValueError):
            return []
        return [
            Message(_shown(decoder, data, size), seq, time_ns, sender, kind)
            for seq, time_ns, sender, kind, size, data in seen
        ]


def _shown(decoder: Decoder, data: bytes | None, size: int) -> object:
    if data is None:
        return f"({size} bytes)"
    try:
        return decoder.plain(data)
    except ValueError:
        return data
