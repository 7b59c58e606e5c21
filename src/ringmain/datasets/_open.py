"""What users name as a source of data, opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ringmain.datasets._sources import OfRecordings, Source
from ringmain.errors import InvalidArgument
from ringmain.recording import Recording
from ringmain.recording._locations import find_recordings

if TYPE_CHECKING:
    from ringmain.lake import Lake

Data: TypeAlias = "Recording | str | Path | list[Recording | str | Path] | Lake"
"""A recording, the path of recordings, several of these, or a lake."""


def open_source(data: Data) -> Source:
    """Raises InvalidArgument for what is none of these."""
    recordings: list[Recording] = []
    for one in data if isinstance(data, list) else [data]:
        if isinstance(one, Recording):
            recordings.append(one)
        elif isinstance(one, str | Path):
            stores = find_recordings(str(one)).values()
            recordings += [Recording(s.directory or s.sealed_uri, storage_options=dict(s.options)) for s in stores]
        elif type(one).__module__.startswith("ringmain.lake") and not isinstance(data, list):
            from ringmain.datasets._of_lake import OfLake  # only who has a lake needs deltalake

            return OfLake(one)
        else:
            raise InvalidArgument(f"data comes from a Recording, a path of recordings, or a Lake, not from {one!r}")
    return OfRecordings(recordings)
