"""What is stored as a source of things to show: a recording, an incident of one, or a lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ringmain.errors import InvalidArgument, LakeError, RecordingNotFound, TopicNotFound
from ringmain.recording import Recording
from ringmain.recording._filters import check_patterns, matches_any
from ringmain.view._recorded import RecordedTopics

if TYPE_CHECKING:
    from ringmain.lake import Lake
    from ringmain.view._of_lake import LakeTopics

Where: TypeAlias = "Recording | Lake | str | Path"


def stored_topics(
    where: Where,
    topics: str | Sequence[str] | None = None,
    *,
    host: str | None = None,
    since: int | datetime | None = None,
    until: int | datetime | None = None,
    hz: float = inf,
    points_hz: float = inf,
) -> RecordedTopics | LakeTopics:
    """The topics of what is there that match. Raises TopicNotFound if one that is wanted is not there."""
    wanted = None if topics is None else check_patterns("topics", topics)
    opened = open_stored(where) if isinstance(where, str | Path) else where
    if isinstance(opened, Recording):
        if host is not None:
            raise InvalidArgument(f"a host is chosen of a lake, and {opened.store.shown} is a recording")
        if wanted is not None:
            check_there(wanted, opened.topics(), opened.store.shown)
        return RecordedTopics(opened, wanted, since, until, hz=hz, points_hz=points_hz)
    from ringmain.view._of_lake import LakeTopics, topics_of

    if wanted is not None:
        check_there(wanted, topics_of(opened), opened.uri)
    source = LakeTopics(opened, wanted, host, since, until, hz, points_hz)
    if host is not None and source.is_empty():
        raise LakeError(f"{opened.uri} has nothing of a host '{host}'{' then' * ((since, until) != (None, None))}")
    return source


def open_stored(
    where: str | Path,
    storage_options: Mapping[str, str] | None = None,
    *,
    incident: str | None = None,
    skip_damage: bool = False,
) -> Recording | Lake:
    """What is there, of a recording perhaps an incident; of a lake, `narrow` chooses one. Raises RecordingNotFound if
    neither is."""
    try:
        return Recording(where, skip_damage=skip_damage, storage_options=storage_options, incident=incident)
    except RecordingNotFound:
        is_local = "://" not in str(where)
        if is_local and not Path(where, "ops").is_dir():
            raise
        from ringmain.lake import Lake

        lake = Lake(str(where), dict(storage_options or {}))
        if not lake.tables():
            raise
        return lake


def narrow(source: LakeTopics, incident: str) -> None:
    """To the window of an incident, where no narrower one was asked for, and to its host."""
    from ringmain.lake._incidents import find

    host, one = find(source.lake, incident)
    source.host = source.host or host
    source.since = one.start_ns if source.since is None else source.since
    source.until = one.end_ns if source.until is None else source.until


def check_there(wanted: Sequence[str], there: Mapping[str, object] | Sequence[str], where: str) -> None:
    for pattern in wanted:
        if not any(matches_any(topic, [pattern]) for topic in there):
            raise TopicNotFound(
                f"there is no topic '{pattern}' in {where}; it has {', '.join(there) or 'none'}", topic=pattern
            )
