"""`aligned`: for each message of a leading topic, the newest value of each other topic at or before it: the table that
people train on.

An as-of join, which Spark does not have. All topics are laid on one time line and the newest value is carried forward
by a window function. To spread the work, time is cut into slices that are sorted apart; a value that may still be
wanted in the next slice (it is within the tolerance of its start) is copied there. So no sort is larger than a slice,
and the result does not depend on how time was cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from ringmain.recording._decode import ERROR
from ringmain.recording._format import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ENVELOPE = frozenset({*COLUMNS, ERROR, "host", "date", "segment", "row"})


@dataclass(frozen=True)
class Align:
    """An `aligned` table: each message of `lead` with the newest of `others`, none older than `tolerance_s`."""

    lead: str
    others: tuple[str, ...]
    tolerance_s: float = 1.0
    table: str = ""

    @classmethod
    def parse(cls, text: str) -> Align:
        """From `camera/front:imu,gps@0.5`."""
        match = re.fullmatch(r"([^:@]+):([^@]+?)(?:@([0-9.]+)s?)?", text)
        if match is None:
            raise ValueError(f"{text!r} is not understood: say LEAD:TOPIC,...@SECONDS, as in camera:imu,gps@0.5")
        return cls(match[1], tuple(part.strip() for part in match[2].split(",")), float(match[3] or 1.0))

    @property
    def name(self) -> str:
        return self.table or "aligned_" + self.lead.replace("/", "_")


def aligned(lead: DataFrame, others: Mapping[str, DataFrame], tolerance_s: float = 1.0) -> DataFrame:
    """Columns: those of `lead`; for each other topic a struct with its fields, null when there is no value at most
    `tolerance_s` old, and its age. All frames need `publish_time`, `epoch` and `seq`, as silver has them."""
    if tolerance_s <= 0:
        raise ValueError(f"the tolerance must be more than 0 seconds, not {tolerance_s}")
    tolerance_us = int(tolerance_s * 1e6)
    slice_us = max(tolerance_us, 1_000_000)
    time_line = _on_line(lead.select(F.struct(*lead.columns).alias("_lead"), "publish_time", "epoch", "seq"), slice_us)
    for index, frame in enumerate(others.values()):
        fields = [name for name in frame.columns if name not in _ENVELOPE] or ["payload"]
        value = frame.select(
            F.struct(*fields).alias(f"_{index}"),
            F.unix_micros("publish_time").alias(f"_at{index}"),
            "publish_time", "epoch", "seq",
        )  # fmt: skip
        here = _on_line(value, slice_us)
        there = here.withColumn("_slice", F.col("_slice") + 1).where(
            F.col("_slice") * slice_us - F.col("_us") <= tolerance_us
        )
        time_line = time_line.unionByName(here.unionByName(there), allowMissingColumns=True)
    # At the same microsecond a value comes before the message it belongs to.
    order = [F.col("_us"), F.col("_lead").isNotNull(), F.col("epoch"), F.col("seq")]
    so_far = Window.partitionBy("_slice").orderBy(*order).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    joined = time_line
    for index in range(len(others)):
        joined = joined.withColumn(f"_{index}", F.last(f"_{index}", ignorenulls=True).over(so_far))
        joined = joined.withColumn(f"_at{index}", F.last(f"_at{index}", ignorenulls=True).over(so_far))
    columns = [F.col("_lead.*")]
    for index, name in enumerate(others):
        age = F.col("_us") - F.col(f"_at{index}")
        fresh = age <= tolerance_us
        columns.append(F.when(fresh, F.col(f"_{index}")).alias(_label(name)))
        columns.append(F.when(fresh, age / 1000).alias(f"{_label(name)}_age_ms"))
    return joined.where("_lead is not null").select(*columns)


def _on_line(frame: DataFrame, slice_us: int) -> DataFrame:
    at = F.unix_micros("publish_time")
    placed = frame.withColumn("_us", at).withColumn("_slice", F.floor(at / slice_us))
    return placed.drop("publish_time")


def _label(topic: str) -> str:
    return topic.replace("/", "_").replace("-", "_").replace(".", "_")
