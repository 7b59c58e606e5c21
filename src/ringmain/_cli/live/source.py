"""The observations of the live view. It reads the topic files: it takes no slot, holds nothing and slows no one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ringmain import _names, _native
from ringmain._cli.live.model import Seen
from ringmain._cli.message_text import Decoder
from ringmain._cli.observe import read_counters
from ringmain._cli.service_text import without_parts
from ringmain._cli.topic_summary import frames_of, survey
from ringmain._inspect import info
from ringmain._message import Message
from ringmain._service import services as all_services
from ringmain.errors import RingmainError
from ringmain.frames._peek import FrameCopy, peek_frame

if TYPE_CHECKING:
    from ringmain.recording import Incident

_MOST_BYTES = 1 << 20  # of a larger message only the size is shown


class Source(Protocol):
    """What the app observes."""

    def look(self) -> list[Seen]: ...
    def incidents(self) -> dict[str, list[Incident] | None]: ...
    def newest(self, topic: str, count: int) -> list[Message]: ...
    def newest_frame(self, topic: str) -> FrameCopy | None: ...


class Topics:
    """The real topics, and the incidents in these recordings."""

    def __init__(self, recordings: Sequence[str] = ()) -> None:
        self._recordings = recordings

    def incidents(self) -> dict[str, list[Incident] | None]:
        """By recording; None for one that cannot be read, or is not there yet."""
        return {path: _incidents_in(path) for path in self._recordings}

    def look(self) -> list[Seen]:
        services = {each.name: each for each in all_services()}
        return [
            Seen(topic, reading, frames_of(topic.name), services.get(topic.name))
            for topic in without_parts(survey()[0], services.values())
            if (reading := read_counters(topic.name)) is not None
        ]

    def newest(self, topic: str, count: int) -> list[Message]:
        """The newest messages, decoded, oldest first. None if the topic is gone."""
        try:
            decoder = Decoder(info(topic).schema)
            seen = _native.peek(_names.runtime_directory(), topic, count, _MOST_BYTES)
        except (RingmainError, ValueError):
            return []
        return [
            Message(
                _shown(decoder, each["data"], each["size"]),
                each["seq"],
                each["time_ns"],
                each["sender"],
                each["kind"],
            )
            for each in seen
        ]

    def newest_frame(self, topic: str) -> FrameCopy | None:
        """A copy of the newest frame. None if there is none, or it was overwritten while it was copied."""
        try:
            return peek_frame(topic)
        except (RingmainError, ValueError):
            return None


def _incidents_in(path: str) -> list[Incident] | None:
    from ringmain.recording import Store
    from ringmain.recording._upkeep.incidents import incidents_in

    try:
        return incidents_in(Store.of(path))
    except (RingmainError, OSError):
        return None


def _shown(decoder: Decoder, data: bytes | None, size: int) -> object:
    if data is None:
        return f"({size} bytes)"
    try:
        return decoder.plain(data)
    except ValueError:
        return data
