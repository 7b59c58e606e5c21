"""`check()`: does a lake keep the rules that operators set? For alerts: `ringmain report LAKE --check rules.toml`.

A rule names topics, hosts or a field, and limits. What breaks a limit is a problem, with the value, the limit, and a
sentence. Gold's tables are read, no message is.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow.compute as pc

from ringmain.errors import LakeError
from ringmain.lake._gold import totals
from ringmain.lake._health import HEALTH
from ringmain.lake._lake import Lake
from ringmain.lake._ledger import Ledger
from ringmain.recording._filters import is_pattern

if TYPE_CHECKING:
    import pandas as pd

_DAY = timedelta(days=1)
_EPOCH = datetime.fromtimestamp(0, UTC)
_LIMITED = [c for c in HEALTH.columns if c.limit]
_HEALTH = ["window_start", "window_end", "topic", "epoch", "recorder", "host", "messages", "lost", "latency_min_ms",
           *(c.name for c in _LIMITED)]  # fmt: skip


class Rule(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Limits of some topics on some hosts, for each topic and host apart. Limits that are not set are not checked."""

    name: str = ""
    topic: str = "*"
    """A name or a pattern. A topic that is named in full and has no message is a problem: it is absent."""
    host: str = "*"
    """A name or a pattern: only what was recorded there."""
    per: Literal["host", "fleet"] = "host"
    """What a limit is about: a topic on each host, or what all chosen hosts have of it together."""
    field: str = ""
    """With it, the rule is about the numbers of this field: min, max, max_nulls, max_nans, stuck."""
    min_rate_hz: float | None = None
    max_rate_hz: float | None = None
    rate_of_day_before: float | None = None
    """At least this share of the messages of the same time a day before; needs `last_s`."""
    max_silence_s: float | None = None
    """How long before the newest message of the lake, of all hosts, the topic's last one may be."""
    max_lag_s: float | None = None
    """How long ago the newest message of each recorder may be, by the clock of this machine."""
    max_loss: float | None = None
    """Of messages, as a share: 0.001."""
    max_late: int | None = None
    max_latency_p99_ms: float | None = None
    max_clock_skew_ms: float | None = None
    """How long before its publishing a message may have been recorded: that is another host's clock."""
    max_quarantined: int | None = None
    max_damaged: int | None = None
    """Rows of recordings that were skipped, of all topics and hosts."""
    min: float | None = None
    max: float | None = None
    max_nulls: int | None = None
    max_nans: int | None = None
    stuck: bool | None = None
    """false: a window in which the field never changed is a problem."""


class Rules(msgspec.Struct, forbid_unknown_fields=True):
    """A file of rules: `[[rule]]` tables, and `last_s`, how much of the lake's end they are about (all of it), in
    whole windows."""

    rule: list[Rule]
    last_s: float | None = None

    @classmethod
    def read(cls, path: str | Path) -> Rules:
        try:
            found = msgspec.convert(tomllib.loads(Path(path).read_text(encoding="utf-8")), cls)
        except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise ValueError(f"{path}: {error}") from error
        for rule in found.rule:
            if rule.rate_of_day_before is not None and found.last_s is None:
                raise ValueError(f"{path}: rate_of_day_before compares times of day, so it needs last_s")
        return found


class Problem(msgspec.Struct):
    """A limit that is not kept."""

    rule: str
    check: str
    text: str
    topic: str = ""
    host: str = ""
    field: str = ""
    value: float | None = None
    limit: float | None = None
    since: str | None = None
    """The last time that a topic or recorder was heard of."""


def check(lake: str | Path | Lake, rules: Rules, *, now: datetime | None = None) -> list[Problem]:
    """Every problem that the rules find."""
    gold = _Gold(lake if isinstance(lake, Lake) else Lake(str(lake)), rules.last_s, now or datetime.now(UTC))
    return [problem for rule in rules.rule for problem in _check_rule(gold, rule)]


def gold_frame(lake: Lake, table: str, columns: list[str], wanted: pc.Expression | None = None) -> pd.DataFrame:
    """The rows of a table of gold; none where there is no such table."""
    if lake.snapshot(table) is None:
        import pandas as pd

        return pd.DataFrame(columns=columns)
    frame: pd.DataFrame = lake.dataset(table).to_table(columns=columns, filter=wanted).to_pandas()
    return frame


class _Gold:
    """Gold's tables, of the time that is looked at."""

    def __init__(self, lake: Lake, last_s: float | None, now: datetime) -> None:
        self.lake, self.now, self.last_s = lake, now, last_s
        lake.check_version()
        senders = gold_frame(lake, "gold/senders", ["window_start", "topic", "recorder", "host", "last_time"])
        if senders.empty:
            raise LakeError(f"{lake.uri} has no messages to check: run the pipeline first (ringmain pipeline run)")
        self.heard = senders.groupby(["topic", "host", "recorder"], as_index=False)["last_time"].max()
        self.end: datetime = senders["last_time"].max().to_pydatetime()
        self.begin: datetime = senders["window_start"].min().to_pydatetime()
        if last_s is not None:
            since = self.end - timedelta(seconds=last_s)
            since -= (since - _EPOCH) % timedelta(seconds=_window_s(lake))  # a part of a window would count for less
            self.begin = max(self.begin, since)
        self.health = self.read("gold/topic_health", _HEALTH)

    def read(self, table: str, columns: list[str], back: timedelta = timedelta(0)) -> pd.DataFrame:
        at = pc.field("window_start")
        return gold_frame(self.lake, table, columns, (at >= self.begin - back) & (at <= self.end - back))


def _window_s(lake: Lake) -> float:
    last = Ledger(lake).last()
    assert last is not None  # there are rows
    return last.window_s


def _check_rule(gold: _Gold, rule: Rule) -> Iterator[Problem]:
    name = rule.name or rule.topic
    heard = _chosen(gold.heard, rule)
    if heard.empty and not is_pattern(rule.topic):
        where = "" if rule.host == "*" else f" on {rule.host}"
        yield Problem(name, "absent", f"topic {rule.topic} has no message{where}", rule.topic, rule.host)
    if rule.max_damaged is not None:
        damaged = sum(one.damaged for batch in Ledger(gold.lake).batches() for one in batch.recordings)
        yield from _over(name, "max_damaged", damaged, rule.max_damaged, f"{damaged} rows were damaged and skipped")
    yield from _topics(gold, rule, name)
    for (topic, host), rows in _grouped(heard, rule):
        last = rows["last_time"].max().to_pydatetime()
        silent = (gold.end - last).total_seconds()
        text = f"{_called(topic, host)} is silent since {_iso(last)}, for {silent:,.1f} s"
        about = {"topic": topic, "host": host, "since": _iso(last)}
        yield from _over(name, "max_silence_s", silent, rule.max_silence_s, text, **about)
    for (host, recorder), rows in heard.groupby(["host", "recorder"]):
        last = rows["last_time"].max().to_pydatetime()
        lag = (gold.now - last).total_seconds()
        text = f"the newest message of recorder {recorder} on {host} is {lag:,.1f} s old"
        yield from _over(name, "max_lag_s", lag, rule.max_lag_s, text, host=host, since=_iso(last))
    if rule.field:
        yield from _fields(gold, rule, name)


def _topics(gold: _Gold, rule: Rule, name: str) -> Iterator[Problem]:
    """The limits of what was heard of a topic; one that was heard of before, and is not now, has the rate 0."""
    health = dict(_grouped(_chosen(gold.health, rule), rule))
    quarantine = gold.read("gold/quarantine", ["window_start", "topic", "host", "messages"])
    quarantined = {key: int(rows["messages"].sum()) for key, rows in _grouped(_chosen(quarantine, rule), rule)}
    before = gold.read("gold/topic_health", _HEALTH, _DAY) if rule.rate_of_day_before is not None else gold.health[:0]
    earlier = {key: _messages(rows) for key, rows in _grouped(_chosen(before, rule), rule)}
    span = max((gold.end - gold.begin).total_seconds(), 1e-9)
    for topic, host in sorted({key for key, _ in _grouped(_chosen(gold.heard, rule), rule)}):
        about, called = {"topic": topic, "host": host}, _called(topic, host)
        rows = health.get((topic, host), gold.health[:0])
        count = _messages(rows)
        if (topic, host) in earlier:
            share = count / earlier[topic, host]
            text = f"{called} has {share:.3g} of the messages of the day before"
            yield from _under(name, "rate_of_day_before", share, rule.rate_of_day_before, text, **about)
        rate = count / span
        yield from _under(name, "min_rate_hz", rate, rule.min_rate_hz, f"{called} has {rate:.4g} Hz", **about)
        if not rows.empty:
            yield from _over(name, "max_rate_hz", rate, rule.max_rate_hz, f"{called} has {rate:.4g} Hz", **about)
            yield from _quality(rule, name, rows, called, about)
        bad = quarantined.get((topic, host), 0)
        text = f"{called}: {bad:,} messages did not decode"
        yield from _over(name, "max_quarantined", bad, rule.max_quarantined, text, **about)


def _quality(rule: Rule, name: str, rows: pd.DataFrame, called: str, about: dict[str, Any]) -> Iterator[Problem]:
    """The limits of loss and time."""
    (whole,) = totals(HEALTH, rows.assign(all=0), ["all"]).to_dict("records")
    lost, count = int(whole["lost"]), int(whole["messages"])
    loss = lost / (count + lost)
    text = f"{called} lost {lost:,} messages, {100 * loss:.3g} %"
    yield from _over(name, "max_loss", loss, rule.max_loss, text, **about)
    for c in _LIMITED:
        value = whole[c.name]
        text = f"{called} {c.text.format(value=value)}"
        yield from _over(name, c.limit, value, getattr(rule, c.limit), text, **about)
    skew = -float(whole["latency_min_ms"])
    text = f"{called} was recorded {skew:.4g} ms before it was published: clocks differ"
    yield from _over(name, "max_clock_skew_ms", skew, rule.max_clock_skew_ms, text, **about)


def _fields(gold: _Gold, rule: Rule, name: str) -> Iterator[Problem]:
    columns = ["window_start", "topic", "host", "field", "count", "nulls", "nans", "min", "max", "stuck"]
    found = _chosen(gold.read("gold/fields", columns), rule)
    found = found[found["field"] == rule.field]
    if found.empty:
        yield Problem(name, "absent", f"no topic {rule.topic} has a field {rule.field}", rule.topic, field=rule.field)
    for (topic, host), rows in _grouped(found, rule):
        about, called = {"topic": topic, "host": host, "field": rule.field}, f"{_called(topic, host)}: {rule.field}"
        least, most = float(rows["min"].min()), float(rows["max"].max())
        yield from _under(name, "min", least, rule.min, f"{called} was {least:g}", **about)
        yield from _over(name, "max", most, rule.max, f"{called} was {most:g}", **about)
        for check_name, limit, word in (("max_nulls", rule.max_nulls, "null"), ("max_nans", rule.max_nans, "NaN")):
            count = int(rows[check_name.removeprefix("max_")].sum())
            yield from _over(name, check_name, count, limit, f"{called} was {word} {count:,} times", **about)
        stuck = rows[rows["stuck"].astype(bool)]
        if rule.stuck is False and not stuck.empty:
            since = _iso(stuck["window_start"].min().to_pydatetime())
            text = f"{called} did not change in {len(stuck)} windows, first at {since}"
            yield Problem(name, "stuck", text, value=float(len(stuck)), limit=0.0, since=since, **about)


def _chosen(rows: pd.DataFrame, rule: Rule) -> pd.DataFrame:
    topics, hosts = rows["topic"].map(lambda t: fnmatchcase(t, rule.topic)), rows["host"]
    return rows[topics.astype(bool) & hosts.map(lambda host: fnmatchcase(host, rule.host)).astype(bool)]


def _grouped(rows: pd.DataFrame, rule: Rule) -> Iterator[tuple[tuple[str, str], pd.DataFrame]]:
    """((topic, host), rows) of what the rule looks at one by one; for the fleet as a whole the host is empty."""
    by = rows["host"] if rule.per == "host" else rows["host"].map(lambda _: "")
    for (topic, host), part in rows.groupby([rows["topic"], by]):
        yield (str(topic), str(host)), part


def _called(topic: str, host: str) -> str:
    return f"topic {topic} on {host}" if host else f"topic {topic}"


def _messages(health: pd.DataFrame) -> int:
    """Recorders of one life saw the same messages: the best of them counts."""
    return int(health.groupby(["window_start", "epoch"])["messages"].max().sum())


def _over(rule: str, name: str, value: float, limit: float | None, text: str, **about: Any) -> list[Problem]:
    return [Problem(rule, name, text, value=value, limit=limit, **about)] if limit is not None and value > limit else []


def _under(rule: str, name: str, value: float, limit: float | None, text: str, **about: Any) -> list[Problem]:
    return [Problem(rule, name, text, value=value, limit=limit, **about)] if limit is not None and value < limit else []


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
