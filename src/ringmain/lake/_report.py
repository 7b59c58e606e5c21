"""`report()`: a lake as one HTML page that needs nothing else: no network, no server, no Spark.

This file makes the numbers of messages, _report_data.py those of what they say, page.html draws them. The invariant
owned here: the page's size does not grow with the recording. Time is cut into at most BINS bins, and lists of readers
and senders keep the worst.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ringmain.errors import LakeError
from ringmain.lake._check import gold_frame
from ringmain.lake._gold import totals
from ringmain.lake._health import HEALTH
from ringmain.lake._lake import Lake
from ringmain.lake._ledger import Ledger
from ringmain.lake._report_data import Span, data_of

if TYPE_CHECKING:
    import pandas as pd

BINS = 240
WORST = 30
_PAGE = Path(__file__).with_name("page.html")
_DATA = "/*DATA*/null"
_HEALTH = [c.name for c in HEALTH.columns if not pa.types.is_list(c.type)]
_SHOWN = [c for c in HEALTH.columns if c.head]
_SENDERS = ["sender", "topic", "recorder", "host", "messages", "bytes", "longest_silence_ms", "last_time"]
_REASONS = ["window_start", "topic", "reason", "messages"]


def report(lake: str | Path | Lake, out: str | Path, *, title: str | None = None) -> Path:
    """Write the page for a lake and return its path."""
    tables, out = lake if isinstance(lake, Lake) else Lake(str(lake)), Path(out)
    tables.check_version()
    health = gold_frame(tables, "gold/topic_health", _HEALTH)
    if health.empty:
        raise LakeError(
            f"{tables.uri} has no gold/topic_health to report on: run the pipeline first (ringmain pipeline run)"
        )
    senders = gold_frame(tables, "gold/senders", _SENDERS)
    found = numbers(health, None if senders.empty else senders)
    span = Span.of(found["start_ms"], found["bin_ms"], found["bins"])
    name = title or tables.uri.rpartition("/")[2]
    refused = {"reasons": _reasons(gold_frame(tables, "gold/quarantine", _REASONS))}
    data = {"title": name, **found, **refused, **data_of(tables, span), **_row_counts(tables)}
    # A sender's name may be anything: nothing in the data may end the script it is in.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    out.write_text(_PAGE.read_text(encoding="utf-8").replace(_DATA, text), encoding="utf-8")
    return out


def numbers(health: pd.DataFrame, senders: pd.DataFrame | None) -> dict[str, Any]:
    """Everything the page shows of messages."""
    start, end = health["window_start"].min(), health["window_end"].max()
    window_s = (health["window_end"] - health["window_start"]).iloc[0].total_seconds()
    windows = max(1, round((end - start).total_seconds() / window_s))
    per_bin = -(-windows // BINS)
    bins = -(-windows // per_bin)
    at = ((health["window_start"] - start).dt.total_seconds() / window_s // per_bin).astype(int)
    health = health.assign(bin=at)
    topics = [_topic(name, rows, bins, per_bin * window_s) for name, rows in health.groupby("topic")]
    topics.sort(key=lambda t: (-t["loss"], -t["lost"], -t["late"], -t["latency_p99_ms"], t["name"]))
    silent = {} if senders is None else _behind(senders, "topic")
    for topic in topics:
        topic["silent_s"] = silent.get(topic["name"], 0.0)
    return {
        "start_ms": _ms(start),
        "bin_ms": per_bin * window_s * 1000,
        "bins": bins,
        "topics": topics,
        "topic_columns": [{"name": c.name, "head": c.head, "mark": c.mark} for c in _SHOWN],
        "hosts": _hosts(health, senders),
        "readers": _readers(health),
        "senders": _senders(senders) if senders is not None else [],
    }


def _topic(name: Any, rows: pd.DataFrame, bins: int, bin_s: float) -> dict[str, Any]:
    (whole,) = totals(HEALTH, rows, ["topic"]).to_dict("records")
    over_time = totals(HEALTH, rows, ["bin"])
    messages, lost = int(whole["messages"]), int(whole["lost"])
    return {
        "name": str(name),
        "messages": messages,
        "bytes": int(whole["bytes"]),
        "lost": lost,
        "loss": lost / max(1, messages + lost),
        **{c.name: _round(whole[c.name]) for c in _SHOWN},
        "hz": _series(over_time["messages"] / bin_s, bins, 0.0),
        "p50s": _series(over_time["latency_p50_ms"], bins, None),
        "p99s": _series(over_time["latency_p99_ms"], bins, None),
        "losts": _series(over_time["lost"], bins, 0.0),
    }


def _hosts(health: pd.DataFrame, senders: pd.DataFrame | None) -> list[dict[str, Any]]:
    """What each recorder saw. `behind_s`: how long before the newest message of the lake its last one was. `early_ms`:
    how long before its publishing a message was recorded, which is how far the clocks of two hosts are apart."""
    by = ["host", "recorder"]
    grouped = totals(HEALTH, health, by).assign(topics=health.groupby(by)["topic"].nunique())
    behind = {} if senders is None else _behind(senders, by)
    worst = grouped.sort_values(["lost", "late", "messages"], ascending=False).head(WORST).reset_index()
    return [
        {
            "host": str(r.host), "recorder": str(r.recorder),
            **{name: int(getattr(r, name)) for name in ("topics", "messages", "bytes", "lost", "late")},
            "behind_s": behind.get((r.host, r.recorder), 0.0), "early_ms": _round(max(0.0, -r.latency_min_ms)),
        }
        for r in worst.itertuples()
    ]  # fmt: skip


def _behind(senders: pd.DataFrame, by: str | list[str]) -> dict[Any, float]:
    """Seconds from the last message of each to the newest of all."""
    last = senders.groupby(by)["last_time"].max()
    return {key: _round(seconds) for key, seconds in (last.max() - last).dt.total_seconds().items()}


def _reasons(reasons: pd.DataFrame) -> list[dict[str, Any]]:
    """Why messages did not decode: the most frequent reasons, with the first and the last time."""
    grouped = reasons.groupby(["topic", "reason"]).agg(
        messages=("messages", "sum"), first=("window_start", "min"), last=("window_start", "max")
    )
    most = grouped.sort_values("messages", ascending=False).head(WORST).reset_index()
    return [
        {
            "topic": str(r.topic), "reason": str(r.reason), "messages": int(r.messages), "first_ms": _ms(r.first),
            "last_ms": _ms(r.last),
        }
        for r in most.itertuples()
    ]  # fmt: skip


def _readers(health: pd.DataFrame) -> list[dict[str, Any]]:
    grouped = totals(HEALTH, health, ["recorder", "topic"])
    worst = grouped.sort_values(["lost", "late", "latency_p99_ms"], ascending=False).head(WORST).reset_index()
    return [
        {
            "reader": str(r.recorder), "topic": str(r.topic), "messages": int(r.messages), "lost": int(r.lost),
            "gaps": int(r.gaps), "late": int(r.late), "p99": _round(r.latency_p99_ms),
            "worst": _round(r.latency_max_ms),
        }
        for r in worst.itertuples()
    ]  # fmt: skip


def _senders(senders: pd.DataFrame) -> list[dict[str, Any]]:
    grouped = senders.groupby(["sender", "topic"]).agg(
        messages=("messages", "sum"), bytes=("bytes", "sum"), silence=("longest_silence_ms", "max")
    )
    worst = grouped.sort_values("silence", ascending=False).head(WORST).reset_index()
    return [
        {
            "sender": str(r.sender) or "(unnamed)", "topic": str(r.topic), "messages": int(r.messages),
            "bytes": int(r.bytes), "silence": _round(r.silence),
        }
        for r in worst.itertuples()
    ]  # fmt: skip


def _row_counts(lake: Lake) -> dict[str, Any]:
    """The row counts, over all batches."""
    batches = Ledger(lake).batches()
    names = ("rows_in", "rows_out", "quarantined", "duplicates")
    total = {name: sum(getattr(topic, name) for batch in batches for topic in batch.topics) for name in names}
    total["damaged"] = sum(one.damaged for batch in batches for one in batch.recordings)
    engines = Counter(batch.made_by() or "an unknown engine" for batch in batches)
    return {"row_counts": total, "engines": [{"engine": name, "batches": count} for name, count in engines.items()]}


def _series(values: pd.Series, bins: int, empty: float | None) -> list[float | None]:
    found: list[float | None] = [empty] * bins
    for index, value in values.items():
        found[int(index)] = _round(value)
    return found


def _round(value: float) -> float:
    number = float(value)
    return float(f"{number:.4g}") if np.isfinite(number) else 0.0


def _ms(moment: pd.Timestamp) -> int:
    return int(moment.timestamp() * 1000)
