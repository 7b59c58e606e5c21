"""`read()`: the fastest DataFrame of a recording. Sealed segments are Parquet, which Spark reads natively, in parallel,
with column pruning and filters pushed down; only what is not sealed yet goes through our Arrow source, and what is too
wide: Spark's reader wants twice a payload in one piece, and one of 1 GiB ends the whole JVM.

The invariant owned here: both halves come from one look at the directory, so a segment that is sealed meanwhile is in
exactly one of them.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ringmain.recording import SegmentRef, Store, list_segments
from ringmain.recording._filters import Filter, is_pattern
from ringmain.recording._format import SCHEMA, sealed_name
from ringmain.spark._locations import absolute, find_recordings
from ringmain.spark._plan import SPLIT_BYTES, Range, SegmentPlan, cut, plan_segment
from ringmain.spark._source import format_ranges, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WIDE_BYTES = 256 << 20  # of a row group's payloads; sealing makes them far smaller unless one message is that large
_OBJECT_STORE_SCHEMES = {"s3": "s3a", "gcs": "gs"}  # what pyarrow calls them -> what Hadoop does


def read(
    spark: SparkSession,
    path: str,
    *,
    topic: str | None = None,
    split_bytes: int = SPLIT_BYTES,
    verify: bool = True,
) -> DataFrame:
    """All messages of a recording (or of all below a directory, or that match a pattern) as they are now.

    topic: a name or pattern, or several separated by commas.   verify: check Parquet's page checksums while reading;
    `Recording.verify()` checks more.
    """
    patterns = [part.strip() for part in topic.split(",")] if topic else None
    wanted = Filter(patterns)
    path = absolute(str(path))
    sealed: list[str] = []
    growing: list[Range] = []
    for key, store in find_recordings(path).items():
        for ref in list_segments(store):
            if ref.sealed and not _is_wide(ref):
                sealed.append(_address(store, ref.number))
                continue
            segment = ref.open()
            plan = plan_segment(ref, segment)
            segment.close()
            growing += _cut(key, plan, split_bytes)
    parts = []
    schema = spark_schema(SCHEMA)
    if sealed:
        reader = spark.read.schema(schema).option("parquet.page.verify-checksum.enabled", str(verify).lower())
        parts.append(reader.parquet(*sealed))
    if growing or not sealed:
        reader = spark.read.format("ringmain").option("ranges", format_ranges(growing))
        parts.append(reader.load(path))
    frame = reduce(lambda one, other: one.unionByName(other), parts)
    return frame if patterns is None else frame.where(_matches(wanted))


def _is_wide(ref: SegmentRef) -> bool:
    """Does it hold payloads that are too large for Spark's own reader? (Looked up for local files only: in an object
    store that would be a request for each.)"""
    if ref.store.directory is None or ref.store.sealed_uri:
        return False
    try:
        found = pq.read_metadata(ref.store.directory / sealed_name(ref.number))
    except (OSError, pa.ArrowException):
        return False  # Spark will say what is wrong with it
    payload = found.schema.names.index("payload")
    groups = (found.row_group(index) for index in range(found.num_row_groups))
    return any(group.column(payload).total_uncompressed_size > WIDE_BYTES for group in groups)


def _cut(key: str, plan: SegmentPlan, split_bytes: int) -> list[Range]:
    return list(cut(key, plan, 0, plan.end_row, split_bytes))


def _address(store: Store, number: int) -> str:
    if not store.sealed_uri:
        return f"file://{store.directory.absolute() if store.directory else ''}/{sealed_name(number)}"
    scheme, _, rest = store.sealed_uri.partition("://")
    return f"{_OBJECT_STORE_SCHEMES.get(scheme, scheme)}://{rest.rstrip('/')}/{sealed_name(number)}"


def _matches(wanted: Filter):  # type: ignore[no-untyped-def]
    """The patterns as a condition that Parquet's statistics understand where it names topics, and as LIKE where not."""
    import fnmatch

    from pyspark.sql import functions as F

    conditions = []
    for pattern in wanted.patterns or []:
        conditions.append(
            F.col("topic").rlike(f"^{fnmatch.translate(pattern)}") if is_pattern(pattern) else F.col("topic") == pattern
        )
    return reduce(lambda one, other: one | other, conditions)
