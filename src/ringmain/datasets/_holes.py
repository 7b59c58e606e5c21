"""What an episode lacks, and whether that refuses it: a row of the table of episodes.

The invariant owned here: *no episode with a hole is trained on unnoticed*. It is refused, or it is marked, and in both
cases the reason is in its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.datasets._cells import TIME, Messages
from ringmain.datasets._episodes import Episodes, Hole, Span

State = Literal["kept", "marked", "refused"]
EPISODES = pa.schema(
    [
        ("episode", pa.string()), ("host", pa.string()), ("begin", TIME), ("end", TIME), ("state", pa.string()),
        ("reason", pa.string()), ("holes", pa.list_(pa.string())), ("lost", pa.int64()), ("silent_s", pa.float64()),
        ("quarantined", pa.int64()), ("null_cells", pa.int64()), ("steps", pa.int64()), ("trimmed", pa.int64()),
        ("labels", pa.string()),
    ]
)  # fmt: skip


class Verdict(msgspec.Struct):
    """A row of the table of episodes."""

    episode: str
    host: str
    begin: int
    end: int
    state: State = "kept"
    reason: str = ""
    """Empty if there is no hole."""
    holes: list[str] = []
    """The kind of each, once."""
    lost: int = 0
    silent_s: float = 0.0
    """The longest silence of any topic, also before its first message and after its last."""
    quarantined: int = 0
    null_cells: int = 0
    """Of those between the first and the last step."""
    steps: int = 0
    trimmed: int = 0
    """Ticks before all topics had a value, and after one of them had its last."""
    labels: str = "{}"

    @classmethod
    def of(cls, span: Span) -> Verdict:
        labels = msgspec.json.encode(span.labels, enc_hook=str, order="sorted").decode()
        return cls(span.id, span.host, span.begin_us, span.end_us, labels=labels)

    @property
    def refused(self) -> bool:
        return self.state == "refused"


def as_rows(verdicts: Sequence[Verdict]) -> pa.Table:
    return pa.Table.from_pylist([msgspec.to_builtins(one) for one in verdicts], schema=EPISODES)


def verdict_of(row: Mapping[str, Any]) -> Verdict:
    """A row of the table of episodes as it was before."""
    times = {name: int(pa.scalar(row[name], TIME).value) for name in ("begin", "end")}
    return Verdict(**{name: row[name] for name in Verdict.__struct_fields__} | times)


def judge(
    episodes: Episodes, verdict: Verdict, span: Span, messages: Mapping[str, Messages], lost_after: Mapping[str, int]
) -> None:
    """Write into a verdict what its messages lack. `lost_after`: what was lost just before the first message after
    the end, which may have been in the episode."""
    holes = list(span.holes)
    for topic, found in messages.items():
        lost = found.lost + lost_after.get(topic, 0)
        if not len(found.times_ns):
            holes.append(Hole("no message", f"{topic}: no message"))
        if lost:
            verdict.lost += lost
            holes.append(Hole("lost", f"{topic}: {lost} lost"))
        if found.quarantined:
            verdict.quarantined += found.quarantined
            holes.append(Hole("quarantined", f"{topic}: {found.quarantined} quarantined"))
        edges = np.concatenate([[span.begin_us * 1000], found.times_ns, [span.end_us * 1000]])
        silent_s = float(np.diff(edges).max()) / 1e9
        verdict.silent_s = max(verdict.silent_s, silent_s)
        if episodes.silence_s is not None and silent_s > episodes.silence_s:
            holes.append(Hole("silent", f"{topic}: silent for {silent_s:.3g} s"))
    add_holes(episodes, verdict, holes)


def add_holes(episodes: Episodes, verdict: Verdict, holes: Sequence[Hole]) -> None:
    """State and reason follow from the holes."""
    if not holes:
        return
    verdict.reason = "; ".join([verdict.reason] * bool(verdict.reason) + [hole.text for hole in holes])
    verdict.holes = list(dict.fromkeys([*verdict.holes, *(hole.kind for hole in holes)]))
    if episodes.on_hole == "refuse" or any(hole.leaves_nothing for hole in holes):
        verdict.state = "refused"
    elif verdict.state == "kept":
        verdict.state = "marked"


def count_holes(episodes: pa.Table) -> pa.Table:
    """Of a table of episodes, of how many each kind of hole is one reason that they are refused or marked."""
    kinds = pc.list_flatten(episodes.column("holes"))
    states = episodes.column("state").take(pc.list_parent_indices(episodes.column("holes")))
    found = pa.table({"state": states, "hole": kinds}).group_by(["state", "hole"]).aggregate([([], "count_all")])
    found = found.rename_columns(["state", "hole", "episodes"])
    return found.sort_by([("state", "descending"), ("episodes", "descending"), ("hole", "ascending")])
