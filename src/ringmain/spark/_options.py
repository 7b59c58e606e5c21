"""The options of `format("ringmain")`, checked once, with errors that name the option and what it takes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ringmain import _names
from ringmain.recording import Store
from ringmain.recording._format import COLUMNS, HOST, INCIDENTS_COLUMN, LATCHED_COLUMN, decoded_name
from ringmain.recording._locations import find_recordings
from ringmain.recording._plan import SPLIT_BYTES
from ringmain.recording._scan import POSITION_COLUMNS

PUSHDOWN_VARIABLE = "RINGMAIN_SPARK_PUSHDOWN"
STORAGE = "storage."  # how options of the recordings' object store begin; Spark hides the secret ones by their names

_KNOWN = {
    "path": "the recording, a directory of recordings, or a pattern of either",
    "mode": "recording (the default) or live",
    "topic": "names or patterns, separated by commas: imu,camera/*",
    "decode": "true: the fields of the topic's schema as columns; the others then begin with rm_",
    "columns": "the columns to read, separated by commas",
    "positions": "true: the columns segment and row, each message's position in its recording",
    "host": "true: the column host, where each message was recorded",
    "incident": "of flight recordings, the incident of this id, or part of an id: what it has, with the column latched",
    "incidents": "true: the column incidents, the ids of those that each message is in",
    "startingposition": "earliest (the default), latest, SEGMENT:ROW, or one of these for each recording as JSON",
    "maxbytespertrigger": "how much a micro-batch reads at most, in bytes or like 64MiB",
    "maxrowspertrigger": "how many messages a micro-batch reads at most",
    "maxpayload": "a larger payload is an error, in bytes or like 256MiB; no limit by default",
    "failondataloss": "true (the default): rows that cannot be read are an error; false: a counted gap",
    "consumer": "the name under which retention knows the stream; none: it is not registered",
    "pushdown": "true: filters on topic, publish_time and seq (rm_topic, ...) are pushed down",
    "splitbytes": "about how much one partition reads, in bytes or like 32MiB",
    "storage.name": "an option of the object store, like storage.AWS_REGION",
    "ranges": "which rows of which segments, as ringmain.spark.read passes it",
}  # fmt: skip
_IN_INCIDENTS = {INCIDENTS_COLUMN.name, decoded_name(INCIDENTS_COLUMN.name)}


@dataclass(frozen=True)
class Options:
    """The options of one query."""

    path: str = ""
    mode: Literal["recording", "live"] = "recording"
    topics: tuple[str, ...] | None = None
    decode: bool = False
    columns: tuple[str, ...] | None = None
    positions: bool = False
    host: bool = False
    incident: str | None = None
    incidents: bool = False
    starting: str = "earliest"
    max_bytes: int | None = None
    max_rows: int | None = None
    fail_on_loss: bool = True
    max_payload: int | None = None
    consumer: str | None = None
    pushdown: bool = False
    split_bytes: int = SPLIT_BYTES
    ranges: str | None = None
    storage: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        storage = {k[len(STORAGE) :]: v for k, v in given.items() if k.lower().startswith(STORAGE)}
        plain = {k: v for k, v in given.items() if not k.lower().startswith(STORAGE)}
        options = known_options(plain, _KNOWN, "reading with format('ringmain')")
        mode = options.get("mode", "recording").lower()
        if mode not in ("recording", "live"):
            raise ValueError(f"mode={mode!r}: choose 'recording' or 'live'")
        topics = _listed(options.get("topic"))
        columns = _listed(options.get("columns"))
        path = options.get("path", "")
        if mode == "recording" and not path:
            raise ValueError("which recording? Give its directory to load(), or mode=live and a topic to read a ring")
        if mode == "live" and (not topics or path or _flag(options, "decode", False)):
            raise ValueError("mode=live reads rings: it takes topic=NAME,..., and neither a path nor decode")
        if mode == "live" and ("incident" in options or _flag(options, "incidents", False)):
            raise ValueError("mode=live reads rings, and incidents are in recordings: leave out incident and incidents")
        if columns is not None and not _flag(options, "decode", False):
            more = (*POSITION_COLUMNS, HOST.name, INCIDENTS_COLUMN.name, LATCHED_COLUMN.name)
            unknown = [name for name in columns if name not in (*COLUMNS, *more)]
            if unknown:
                raise ValueError(f"columns: there is no {', '.join(unknown)}; there are {', '.join(COLUMNS)}")
        return cls(
            path=path,
            mode="live" if mode == "live" else "recording",
            topics=topics,
            decode=_flag(options, "decode", False),
            columns=columns,
            positions=_flag(options, "positions", False),
            host=_flag(options, "host", False),
            incident=options.get("incident"),
            incidents=_flag(options, "incidents", False) or bool(_IN_INCIDENTS & {*(columns or ())}),
            starting=options.get("startingposition", "earliest"),
            max_bytes=_size(options, "maxbytespertrigger"),
            max_rows=_count(options, "maxrowspertrigger"),
            fail_on_loss=_flag(options, "failondataloss", True),
            max_payload=_size(options, "maxpayload"),
            consumer=options.get("consumer"),
            pushdown=_flag(options, "pushdown", os.environ.get(PUSHDOWN_VARIABLE) == "1"),
            split_bytes=_size(options, "splitbytes") or cls.split_bytes,
            ranges=options.get("ranges"),
            storage=tuple(sorted(storage.items())),
        )

    def find_recordings(self, *, must_exist: bool = True) -> dict[str, Store]:
        """{key: store} of every recording at the path now."""
        return find_recordings(self.path, must_exist=must_exist, storage=dict(self.storage), incident=self.incident)


def known_options(given: Mapping[str, str], known: Mapping[str, str], what: str) -> dict[str, str]:
    """The options with names in lower case. An unknown one is an error that lists the known ones."""
    options = {key.lower(): value for key, value in given.items()}
    for key in options:
        if key not in known:
            listed = "".join(f"\n  {name}: {meaning}" for name, meaning in known.items() if name != "ranges")
            raise ValueError(f"{what} has no option {key!r}. It has{listed}")
    return options


def _listed(text: str | None) -> tuple[str, ...] | None:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip()) or None


def _flag(options: Mapping[str, str], key: str, default: bool) -> bool:
    text = options.get(key)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{key}={text!r}: say true or false")
    return text.lower() == "true"


def _size(options: Mapping[str, str], key: str) -> int | None:
    if key not in options:
        return None
    try:
        return _names.parse_capacity(int(options[key]) if options[key].isdigit() else options[key])
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


def _count(options: Mapping[str, str], key: str) -> int | None:
    text = options.get(key)
    if text is None:
        return None
    if not text.isdigit() or int(text) == 0:
        raise ValueError(f"{key}={text!r}: say a whole number above zero")
    return int(text)
