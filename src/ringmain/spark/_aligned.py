"""`aligned`: for each message of a leading topic, the newest value of each other topic of the same host at or before
it: the table that people train on.

An as-of join, which Spark does not have. All topics are laid on one time line and the newest value is carried forward
by a window function, for each host apart. To spread the work, time is cut into slices that are sorted apart; a value
that may still be wanted in the next slice (it is within the tolerance of its start) is copied there. So no sort is
larger than a slice, and the result does not depend on how time was cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from ringmain.lake._fields import EPOCH, HOST, PUBLISH_TIME, SEQ
from ringmain.recording._decode import PAYLOAD
from ringmain.recording._format import decoded_name, is_ours

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEEDED = (PUBLISH_TIME, EPOCH, SEQ, HOST)


def aligned(lead: DataFrame, others: Mapping[str, DataFrame], tolerance_s: float = 1.0) -> DataFrame:
    """Columns: those of `lead`; for each other topic a struct with its fields, null when there is no value at most
    `tolerance_s` old, and its age, `rm_TOPIC_age_ms`. A value is of the same `rm_host`. All frames need
    `rm_publish_time`, `rm_epoch`, `rm_seq` and `rm_host`, as silver has them. Raises ValueError if one is missing, or
    if `lead` has a field with another topic's name."""
    _check_labels(lead.columns, others)
    for name, frame in {"the leading topic": lead, **others}.items():
        missing = [column for column in _NEEDED if column not in frame.columns]
        if missing:
            raise ValueError(f"the frame of {name} has no column {', '.join(missing)}, by which messages are aligned")
    if tolerance_s <= 0:
        raise ValueError(f"the tolerance must be more than 0 seconds, not {tolerance_s}")
    tolerance_us = int(tolerance_s * 1e6)
    slice_us = max(tolerance_us, 1_000_000)
    time_line = _on_line(lead.select(F.struct(*lead.columns).alias("_lead"), *_NEEDED), slice_us)
    for index, frame in enumerate(others.values()):
        fields = [name for name in frame.columns if not is_ours(name)] or [PAYLOAD.name]
        value = frame.select(
            F.struct(*fields).alias(f"_{index}"),
            F.unix_micros(PUBLISH_TIME).alias(f"_at{index}"),
            *_NEEDED,
        )  # fmt: skip
        here = _on_line(value, slice_us)
        there = here.withColumn("_slice", F.col("_slice") + 1).where(
            F.col("_slice") * slice_us - F.col("_us") <= tolerance_us
        )
        time_line = time_line.unionByName(here.unionByName(there), allowMissingColumns=True)
    # At the same microsecond a value comes before the message it belongs to.
    order = [F.col("_us"), F.col("_lead").isNotNull(), F.col(EPOCH), F.col(SEQ)]
    so_far = (
        Window.partitionBy(HOST, "_slice").orderBy(*order).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    joined = time_line
    for index in range(len(others)):
        joined = joined.withColumn(f"_{index}", F.last(f"_{index}", ignorenulls=True).over(so_far))
        joined = joined.withColumn(f"_at{index}", F.last(f"_at{index}", ignorenulls=True).over(so_far))
    columns = [F.col("_lead.*")]
    for index, name in enumerate(others):
        age = F.col("_us") - F.col(f"_at{index}")
        fresh = age <= tolerance_us
        columns.append(F.when(fresh, F.col(f"_{index}")).alias(_label(name)))
        columns.append(F.when(fresh, age / 1000).alias(_age(name)))
    return joined.where("_lead is not null").select(*columns)


def _on_line(frame: DataFrame, slice_us: int) -> DataFrame:
    at = F.unix_micros(PUBLISH_TIME)
    placed = frame.withColumn("_us", at).withColumn("_slice", F.floor(at / slice_us))
    return placed.drop(PUBLISH_TIME)


def _label(topic: str) -> str:
    return topic.replace("/", "_").replace("-", "_").replace(".", "_")


def _age(topic: str) -> str:
    return decoded_name(f"{_label(topic)}_age_ms")


def _check_labels(lead: Sequence[str], others: Iterable[str]) -> None:
    """Raises if two columns had one name. Spark ignores case in names."""
    taken = {name.lower(): f"a field of the leading topic, {name}" for name in lead}
    for topic in others:
        for label in (_label(topic), _age(topic)):
            other = taken.setdefault(label.lower(), f"topic {topic}")
            if other != f"topic {topic}":
                raise ValueError(f"the column {label}, of topic {topic}, would have the name of {other}: rename one")
