"""Figures of topics, participants, recordings and lakes, read from outside: no participant notices.

`metrics()` gives them as a dict, `ringmain metrics` serves them to Prometheus. The text is made here and not by
prometheus-client, which needs ten times as long for it.

The invariant owned here: FAMILIES names every metric, and no other is given out. docs/monitoring uses these names.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ringmain import _names, _native
from ringmain.errors import RingmainError

if TYPE_CHECKING:
    from ringmain.lake._figures import LakeFigures
    from ringmain.recording._figures import RecordingFigures


class Family(NamedTuple):
    kind: Literal["counter", "gauge"]
    help: str


FAMILIES = {
    "ringmain_topic_messages_total": Family("counter", "Messages sent since the topic was created."),
    "ringmain_topic_capacity_bytes": Family("gauge", "Size of the ring."),
    "ringmain_topic_used_bytes": Family("gauge", "Bytes of the ring that hold messages."),
    "ringmain_topic_writers": Family("gauge", "Writers in the roster."),
    "ringmain_topic_readers": Family("gauge", "Readers and observers in the roster."),
    "ringmain_topic_unreadable": Family("gauge", "1 for a topic file that cannot be read."),
    "ringmain_participant_messages_total": Family("counter", "Messages sent or received since it joined."),
    "ringmain_participant_bytes_total": Family("counter", "Bytes sent or received since it joined."),
    "ringmain_participant_alive": Family("gauge", "0 for a process that died and is still in the roster."),
    "ringmain_participant_lost_total": Family("counter", "Messages that the reader did not get."),
    "ringmain_participant_lag_messages": Family("gauge", "Messages that the reader has not read."),
    "ringmain_participant_lag_bytes": Family("gauge", "Bytes that the reader has not read."),
    "ringmain_participant_blocked": Family("gauge", "1 while the writer waits; the label `by` names the reader."),
    "ringmain_participant_blocked_seconds_total": Family("counter", "How long the writer's sends have waited."),
    "ringmain_recording_rows_total": Family("counter", "Messages recorded, also those that retention deleted."),
    "ringmain_recording_bytes": Family("gauge", "Size of the segments on disk."),
    "ringmain_recording_segments": Family("gauge", "Segments, sealed or not."),
    "ringmain_recording_unsealed_segments": Family("gauge", "Segments that are being written or wait to be sealed."),
    "ringmain_recording_waiting_uploads": Family("gauge", "Sealed segments that are not at `sealed_uri` yet."),
    "ringmain_recording_last_seal_timestamp_seconds": Family("gauge", "When the newest segment was sealed."),
    "ringmain_recording_incidents": Family("gauge", "Incidents that a flight recorder keeps."),
    "ringmain_recording_incidents_open": Family("gauge", "Incidents whose window is not over."),
    "ringmain_recording_recorder_running": Family("gauge", "1 while a recorder has the directory."),
    "ringmain_recording_lag_messages": Family("gauge", "Messages that the recorder's process has not taken yet."),
    "ringmain_recording_disk_free_bytes": Family("gauge", "Free space on the recording's disk."),
    "ringmain_consumer_lag_rows": Family("gauge", "Rows that a registered consumer, such as a pipeline, has not read."),
    "ringmain_pipeline_rows_in_total": Family("counter", "Rows that the pipeline read."),
    "ringmain_pipeline_rows_out_total": Family("counter", "Rows that are in the tables of topics."),
    "ringmain_pipeline_quarantined_total": Family("counter", "Rows that did not decode, and are in quarantine."),
    "ringmain_pipeline_duplicates_total": Family("counter", "Copies of rows that were dropped."),
    "ringmain_pipeline_lost_total": Family("counter", "Messages that the recorders did not get."),
    "ringmain_pipeline_damaged_total": Family("counter", "Rows of recordings that are damaged and were skipped."),
    "ringmain_pipeline_batches_total": Family("counter", "Batches that are done."),
    "ringmain_pipeline_batch_seconds_total": Family("counter", "How long all batches took."),
    "ringmain_pipeline_last_batch_seconds": Family("gauge", "How long the last batch took."),
    "ringmain_scrape_seconds": Family("gauge", "How long it took to read all of this."),
}
"""Every metric. A counter starts again at 0 when its topic is created anew or its participant joins again."""


class Row(NamedTuple):
    """Values that share their labels."""

    labels: dict[str, str]
    values: dict[str, float]


def metrics(recordings: Iterable[str | Path] = (), lakes: Iterable[str | Path] = ()) -> dict[str, list[dict[str, Any]]]:
    """The figures of all topics of the runtime directory, of these recordings and of these lakes: for each metric that
    has any, its samples, each with its labels and its `value`. The names are those that `ringmain metrics` serves."""
    found: dict[str, list[dict[str, Any]]] = {}
    for labels, values in Collector(recordings, lakes).collect():
        for name, value in values.items():
            found.setdefault(name, []).append({**labels, "value": value})
    return found


class Collector:
    """Reads all figures. What never changes (the rows of sealed segments) is kept from one call to the next."""

    def __init__(self, recordings: Iterable[str | Path] = (), lakes: Iterable[str | Path] = ()) -> None:
        self._recordings = [_recording_figures(path) for path in recordings]
        self._lakes = [_lake_figures(path) for path in lakes]

    def collect(self) -> list[Row]:
        began_s = time.perf_counter()
        rows = list(_topic_rows())
        lags = _lag_by_process(rows) if self._recordings else {}
        for recording in self._recordings:
            with suppress(RingmainError, OSError):  # not there yet, or gone
                rows += [Row(*figures) for figures in recording.read(lags)]
        for lake in self._lakes:
            with suppress(RingmainError, OSError):
                rows += [Row(*figures) for figures in lake.read()]
        return [*rows, Row({}, {"ringmain_scrape_seconds": time.perf_counter() - began_s})]

    def text(self) -> str:
        """Prometheus' text format."""
        samples: dict[str, list[str]] = {name: [] for name in FAMILIES}
        for labels, values in self.collect():
            shown = "{" + ",".join([f'{name}="{_escaped(value)}"' for name, value in labels.items()]) + "} "
            for name, value in values.items():
                samples[name].append(f"{name}{shown if labels else ' '}{value}")
        lines: list[str] = []
        for name, (kind, meaning) in FAMILIES.items():
            if samples[name]:
                lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *samples[name]]
        return "\n".join(lines) + "\n"


@functools.lru_cache(1 << 16)
def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _topic_rows() -> Iterator[Row]:
    for topic, seen in _native.inspect_all(_names.runtime_directory()).items():
        if seen is None:
            yield Row({"topic": topic}, {"ringmain_topic_unreadable": 1})
            continue
        participants = seen["participants"]
        writers = sum(each["role"] == "writer" for each in participants)
        yield Row(
            {"topic": topic, "contract": seen["contract"]},
            {
                "ringmain_topic_messages_total": seen["next_sequence"],
                "ringmain_topic_capacity_bytes": seen["capacity_bytes"],
                "ringmain_topic_used_bytes": seen["used_bytes"],
                "ringmain_topic_writers": writers,
                "ringmain_topic_readers": len(participants) - writers,
            },
        )
        for each in participants:
            yield from _participant_rows(topic, each)


def _participant_rows(topic: str, each: Any) -> Iterator[Row]:
    labels = {
        "topic": topic, "participant": each["name"], "role": each["role"],
        "pid": str(each["pid"]), "slot": str(each["slot"]),
    }  # fmt: skip
    values = {
        "ringmain_participant_messages_total": each["messages"],
        "ringmain_participant_bytes_total": each["bytes"],
        "ringmain_participant_alive": int(each["alive"]),
    }
    if each["role"] == "writer":
        values["ringmain_participant_blocked_seconds_total"] = each["blocked_ns"] / 1e9
    else:
        values["ringmain_participant_lost_total"] = each["lost"]
        values["ringmain_participant_lag_messages"] = each["lag_messages"]
        values["ringmain_participant_lag_bytes"] = each["lag_bytes"]
    yield Row(labels, values)
    if each["waits_for"] is not None:
        yield Row({**labels, "by": each["waits_for"]}, {"ringmain_participant_blocked": 1})


def _lag_by_process(rows: Iterable[Row]) -> dict[str, float]:
    """The messages that all readers of a process have not read, by its pid."""
    lags: dict[str, float] = {}
    for labels, values in rows:
        if "ringmain_participant_lag_messages" in values:
            lags[labels["pid"]] = lags.get(labels["pid"], 0) + values["ringmain_participant_lag_messages"]
    return lags


def _recording_figures(path: str | Path) -> RecordingFigures:
    from ringmain.recording._figures import RecordingFigures

    return RecordingFigures(path)


def _lake_figures(path: str | Path) -> LakeFigures:
    from ringmain.lake._figures import LakeFigures

    return LakeFigures(path)
