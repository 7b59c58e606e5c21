"""The tables of users' own, which Spark makes after those of ours: of the rows of one topic (`steps/`), of the messages
of the minutes that have changed (`gold/`), and of topics aligned in time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringmain.errors import InvalidArgument
from ringmain.lake._fields import PUBLISH_TIME
from ringmain.lake._files import Written
from ringmain.lake._gold import MINUTE_US
from ringmain.lake._ledger import Batch, Source
from ringmain.lake._names import silver_table
from ringmain.lake._tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Step = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True)
class Align:
    """An `aligned` table: each message of `lead` with the newest of `others` of its host, none older than
    `tolerance_s`."""

    lead: str
    others: tuple[str, ...]
    tolerance_s: float = 1.0
    table: str = ""

    @classmethod
    def parse(cls, text: str) -> Align:
        """From `camera/front:imu,gps@0.5`."""
        match = re.fullmatch(r"([^:@]+):([^@]+?)(?:@(\d+\.?\d*|\.\d+)s?)?", text)
        others = tuple(part.strip() for part in match[2].split(",")) if match is not None else ()
        if match is None or not all(others):
            raise InvalidArgument(f"{text!r} is not understood: say LEAD:TOPIC,...@SECONDS, as in camera:imu,gps@0.5")
        return cls(match[1], others, float(match[3] or 1.0))

    def __post_init__(self) -> None:
        if not 0 < self.tolerance_s < 1e9:
            raise InvalidArgument(f"the tolerance of {self.name} must be more than 0 seconds, not {self.tolerance_s:g}")

    @property
    def name(self) -> str:
        return self.table or "aligned_" + self.lead.replace("/", "_")


@dataclass
class OwnTables:
    """What they are. Making them imports pyspark, saying what they are does not."""

    aligns: list[Align] = field(default_factory=list)
    steps: dict[str, tuple[Step, str]] = field(default_factory=dict)  # table -> (function, its column of times)
    topic_steps: list[tuple[str, str, Step]] = field(default_factory=list)  # (topic, table, function)

    def __bool__(self) -> bool:
        return bool(self.aligns or self.steps or self.topic_steps)

    def names(self) -> list[str]:
        gold = [*self.steps, *(align.name for align in self.aligns)]
        return [*(f"gold/{name}" for name in gold), *(f"steps/{table}" for _, table, _ in self.topic_steps)]

    def make(
        self, spark: SparkSession, lake: Tables, batch: Batch, sources: list[Source],
        files: dict[str, list[Written]], minutes: list[int], fail_on_loss: bool,
    ) -> None:  # fmt: skip
        """All of them, for a batch that wrote these files, with messages of these minutes, of these recordings."""
        from ringmain.spark import _write_lake as write
        from ringmain.spark._read_lake import bronze_frame, frame_of

        number = batch.batch
        for topic, table, function in self.topic_steps:
            new = files.get(silver_table(topic))
            if new:
                schema = lake.schema(silver_table(topic))
                assert schema is not None
                rows = frame_of(spark, lake, silver_table(topic), [one.name for one in new], schema)
                write.append(function(rows), lake, f"steps/{table}", number)
        if minutes and self.steps:
            messages = bronze_frame(spark, lake, sources, _span(minutes), fail_on_loss)
            messages = messages.where(_within("publish_time", minutes))
            for table, (function, column) in self.steps.items():
                write.replace(function(messages), lake, f"gold/{table}", number, column, minutes)
        topics = {count.topic for count in batch.topics}
        for align in self.aligns:
            if minutes and topics & {align.lead, *align.others}:
                _align(spark, lake, align, number, minutes)


def _align(spark: SparkSession, lake: Tables, align: Align, batch: int, touched: list[int]) -> None:
    from ringmain.spark._aligned import aligned
    from ringmain.spark._read_lake import frame_between
    from ringmain.spark._write_lake import replace

    # A value reaches `tolerance_s` ahead, so minutes after the touched ones may change as well.
    ahead = int(align.tolerance_s // 60) + 1
    minutes = sorted({minute + n for minute in touched for n in range(ahead + 1)})
    first_us, last_us = _span(minutes)

    def silver(topic: str, since_us: int) -> DataFrame | None:
        return frame_between(spark, lake, silver_table(topic), PUBLISH_TIME, since_us, last_us)

    lead = silver(align.lead, first_us)
    if lead is None:
        return
    found = {name: silver(name, first_us - int(align.tolerance_s * 1e6)) for name in align.others}
    others = {name: frame for name, frame in found.items() if frame is not None}
    table = aligned(lead.where(_within(PUBLISH_TIME, minutes)), others, align.tolerance_s)
    replace(table, lake, f"gold/{align.name}", batch, PUBLISH_TIME, minutes)


def _span(minutes: list[int]) -> tuple[int, int]:
    return minutes[0] * MINUTE_US, (minutes[-1] + 1) * MINUTE_US - 1


def _within(time: str, minutes: list[int]) -> Any:
    from pyspark.sql import functions as F

    minute = F.floor(F.unix_micros(time) / MINUTE_US)
    return minute.isin(minutes) if len(minutes) <= 1000 else minute.between(minutes[0], minutes[-1])
