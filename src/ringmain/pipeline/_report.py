"""`report()`: a lake as one HTML page that needs nothing else: no network, no server, no Spark.

This file makes the numbers of gold, _report_data.py those of silver, page.html draws them. The invariant owned here:
the page's size does not grow with the recording. Time is cut into at most BINS bins, and lists of readers and senders
keep the worst.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ringmain.errors import LakeError
from ringmain.pipeline._check import gold_frame
from ringmain.pipeline._lake import Lake
from ringmain.pipeline._ledger import Ledger
from ringmain.pipeline._report_data import Span, data_of

if TYPE_CHECKING:
    import pandas as pd

BINS = 240
WORST = 30
_PAGE = Path(__file__).with_name("page.html")
_DATA = "/*DATA*/null"
_HEALTH = [
    "window_start", "window_end", "topic", "epoch", "recorder", "host", "messages", "bytes", "lost", "gaps", "late",
    "out_of_order", "latency_p50_ms", "latency_p99_ms", "latency_p999_ms", "latency_max_ms", "latency_min_ms",
    "jitter_ms",
]  # fmt: skip
_SENDERS = ["sender", "topic", "recorder", "host", "messages", "bytes", "longest_silence_ms", "last_time"]
_REASONS = ["window_start", "topic", "reason", "messages"]


def report(lake: str | Path | Lake, out: str | Path, *, title: str | None = None) -> Path:
    """Write the page for a lake and return its path."""
    tables, out = lake if isinstance(lake, Lake) else Lake(str(lake)), Path(out)
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
    topics.sort(key=lambda t: (-t["loss"], -t["lost"], -t["late"], -t["p99"], t["name"]))
    silent = {} if senders is None else _behind(senders, "topic")
    for topic in topics:
        topic["silent_s"] = silent.get(topic["name"], 0.0)
    return {
        "start_ms": _ms(start),
        "bin_ms": per_bin * window_s * 1000,
        "bins": bins,
        "topics": topics,
        "hosts": _hosts(health, senders),
        "readers": _readers(health),
        "senders": _senders(senders) if senders is not None else [],
    }


def _topic(name: Any, rows: pd.DataFrame, bins: int, bin_s: float) -> dict[str, Any]:
    """Recorders of one life of a topic see the same messages: how many there were is what the best of them saw, how
    many were lost is what the worst of them lost. Lives add up: those on other hosts are other messages."""
    lives = rows.groupby(["window_start", "bin", "epoch"]).agg(
        messages=("messages", "max"), bytes=("bytes", "max"), lost=("lost", "max"), p50=("latency_p50_ms", "max"),
        p99=("latency_p99_ms", "max"), late=("late", "max"), out_of_order=("out_of_order", "max"),
        jitter=("jitter_ms", "max"), gaps=("gaps", "max"),
    )  # fmt: skip
    sums = dict.fromkeys(("messages", "bytes", "lost", "late", "out_of_order", "gaps"), "sum")
    seen = lives.groupby(["window_start", "bin"]).agg({**sums, "p50": "max", "p99": "max", "jitter": "max"})
    weighted = seen.assign(p50w=seen["p50"] * seen["messages"], jitterw=seen["jitter"] * seen["messages"])
    binned = weighted.groupby("bin").agg(
        messages=("messages", "sum"), lost=("lost", "sum"), p50w=("p50w", "sum"), p99=("p99", "max")
    )
    messages, lost = int(seen["messages"].sum()), int(seen["lost"].sum())
    return {
        "name": str(name),
        "messages": messages,
        "bytes": int(seen["bytes"].sum()),
        "lost": lost,
        "gaps": int(seen["gaps"].sum()),
        "loss": lost / max(1, messages + lost),
        "late": int(seen["late"].sum()),
        "out_of_order": int(seen["out_of_order"].sum()),
        "p50": _round(weighted["p50w"].sum() / max(1, messages)),
        "p99": _round(seen["p99"].max()),
        "p999": _round(rows["latency_p999_ms"].max()),
        "jitter": _round(weighted["jitterw"].sum() / max(1, messages)),
        "hz": _series(binned["messages"] / bin_s, bins, 0.0),
        "p50s": _series(binned["p50w"] / binned["messages"], bins, None),
        "p99s": _series(binned["p99"], bins, None),
        "losts": _series(binned["lost"], bins, 0.0),
    }


def _hosts(health: pd.DataFrame, senders: pd.DataFrame | None) -> list[dict[str, Any]]:
    """What each recorder saw. `behind_s`: how long before the newest message of the lake its last one was. `early_ms`:
    how long before its publishing a message was recorded, which is how far the clocks of two hosts are apart."""
    grouped = health.groupby(["host", "recorder"]).agg(
        topics=("topic", "nunique"), messages=("messages", "sum"), bytes=("bytes", "sum"), lost=("lost", "sum"),
        late=("late", "sum"), least=("latency_min_ms", "min"),
    )  # fmt: skip
    behind = {} if senders is None else _behind(senders, ["host", "recorder"])
    worst = grouped.sort_values(["lost", "late", "messages"], ascending=False).head(WORST).reset_index()
    return [
        {
            "host": str(r.host), "recorder": str(r.recorder),
            **{name: int(getattr(r, name)) for name in ("topics", "messages", "bytes", "lost", "late")},
            "behind_s": behind.get((r.host, r.recorder), 0.0), "early_ms": _round(max(0.0, -r.least)),
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
    grouped = health.groupby(["recorder", "topic"]).agg(
        messages=("messages", "sum"), lost=("lost", "sum"), gaps=("gaps", "sum"), late=("late", "sum"),
        p99=("latency_p99_ms", "max"), worst=("latency_max_ms", "max"),
    )  # fmt: skip
    worst = grouped.sort_values(["lost", "late", "p99"], ascending=False).head(WORST).reset_index()
    return [
        {
            "reader": str(r.recorder), "topic": str(r.topic), "messages": int(r.messages), "lost": int(r.lost),
            "gaps": int(r.gaps), "late": int(r.late), "p99": _round(r.p99), "worst": _round(r.worst),
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
    return {"books": total}


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
