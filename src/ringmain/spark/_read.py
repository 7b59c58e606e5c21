"""`read()`: the fastest DataFrame of a recording. Sealed segments are Parquet, which Spark reads natively, in parallel,
with column pruning and filters pushed down. Our Arrow source reads only segments that are not sealed yet, those in a
store for which the session has no file system, and those with very large payloads: Spark's Parquet reader needs twice a
payload in one piece, and 1 GiB ends the whole JVM.

The invariant owned here: both parts come from one listing of the directory, so a segment that is sealed meanwhile is in
exactly one of them.
"""

from __future__ import annotations

import fnmatch
import operator
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ringmain.recording import SegmentRef, Store, list_segments
from ringmain.recording._filters import Filter, is_pattern
from ringmain.recording._format import FIRST, HOST, SCHEMA, sealed_name
from ringmain.recording._locations import absolute, find_recordings
from ringmain.recording._meta import host_of, read_meta
from ringmain.recording._plan import SPLIT_BYTES, Range, between, open_plan
from ringmain.recording._scan import Scan
from ringmain.spark._options import STORAGE
from ringmain.spark._source import format_ranges, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WIDE_BYTES = 256 << 20  # of a row group's payloads; sealed ones are far smaller, unless one message is that large
_FILE = "_ringmain_file"
HADOOP_SCHEMES = {"s3": "s3a", "gcs": "gs"}  # what pyarrow calls them -> what Hadoop does


def read(
    spark: SparkSession,
    path: str,
    *,
    topic: str | None = None,
    split_bytes: int = SPLIT_BYTES,
    verify: bool = True,
    storage_options: Mapping[str, str] | None = None,
    incident: str | None = None,
) -> DataFrame:
    """All messages of a recording (or of all below a directory, or that match a pattern) as they are now, with `host`:
    where they were recorded.

    topic: a name or pattern, or several separated by commas.   verify: check Parquet's page checksums while reading;
    `Recording.verify()` checks more.   storage_options: of an object store, which pyarrow then reads; the session's own
    file system has its settings in the session.   incident: of flight recordings, the incident of this id, or part of
    an id: only what it has, with the column `latched`, which pyarrow reads, too.
    """
    patterns = [part.strip() for part in topic.split(",")] if topic else None
    wanted = Filter(patterns)
    path = absolute(str(path))
    sealed: dict[str, str] = {}  # address -> host
    growing: list[Range] = []
    native: dict[str, bool] = {}
    for key, store in find_recordings(path, storage=storage_options, incident=incident).items():
        scheme = _scheme(store)
        if scheme not in native:
            native[scheme] = scheme == "file" or (not storage_options and has_file_system(spark, scheme))
        meta = read_meta(store)
        for ref in list_segments(store):
            if incident is None and ref.sealed and not ref.waiting and native[scheme] and not _is_wide(ref):
                sealed[_address(ref)] = host_of(meta, ref.number)
                continue
            window = Scan(SCHEMA).filter(store.kept)
            growing += between(key, [open_plan(ref)], FIRST, None, split_bytes, window)
    parts = []
    schema = spark_schema(SCHEMA)
    if sealed:
        reader = spark.read.schema(schema).option("parquet.page.verify-checksum.enabled", str(verify).lower())
        parts.append(_with_host(spark, reader.parquet(*sealed), sealed))
    if growing or not sealed:
        reader = spark.read.format("ringmain").option("host", "true").option("ranges", format_ranges(growing))
        if incident is not None:
            reader = reader.option("incident", incident)
        reader = reader.options(**{f"{STORAGE}{name}": value for name, value in (storage_options or {}).items()})
        parts.append(reader.load(path))
    frame = reduce(lambda one, other: one.unionByName(other), parts)
    return frame if patterns is None else frame.where(_matches(wanted))


def _with_host(spark: SparkSession, frame: DataFrame, hosts: Mapping[str, str]) -> DataFrame:
    """The host of each file as a column. Spark gives a file's address as a URI, with any number of slashes."""
    from pyspark.sql import functions as F

    if len(set(hosts.values())) == 1:
        return frame.withColumn(HOST.name, F.lit(next(iter(hosts.values()))))
    known = spark.createDataFrame([(_plain(file), host) for file, host in hosts.items()], [_FILE, HOST.name])
    escaped = F.regexp_replace("_metadata.file_path", r"\+", "%2B")  # url_decode takes a plus for a space
    file = F.regexp_replace(F.url_decode(escaped), "^(\\w+):/+", "$1:/")
    return frame.withColumn(_FILE, file).join(F.broadcast(known), _FILE, "left").drop(_FILE)


def _plain(address: str) -> str:
    scheme, _, path = address.partition(":")
    return f"{scheme}:/{path.lstrip('/')}"


def _is_wide(ref: SegmentRef) -> bool:
    """Does it hold payloads that are too large for Spark's own reader? Checked for local files only: in an object store
    it would cost a request for each."""
    if ref.store.directory is None or ref.store.sealed_uri:
        return False
    try:
        found = pq.read_metadata(ref.store.directory / sealed_name(ref.number))
    except (OSError, pa.ArrowException):
        return False  # Spark will report what is wrong with it
    payload = found.schema.names.index("payload")
    groups = (found.row_group(index) for index in range(found.num_row_groups))
    return any(group.column(payload).total_uncompressed_size > WIDE_BYTES for group in groups)


def _scheme(store: Store) -> str:
    """Of the sealed segments' address, as Hadoop calls it."""
    scheme = store.sealed_uri.partition("://")[0] if store.sealed_uri else "file"
    return HADOOP_SCHEMES.get(scheme, scheme)


def has_file_system(spark: SparkSession, scheme: str) -> bool:
    """Can the session's JVM read such addresses? Otherwise pyarrow does, in Spark's Python workers. A client of Spark
    Connect cannot ask."""
    try:
        jvm: Any = spark._jvm
        settings = spark.sparkContext._jsc.hadoopConfiguration()
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, settings)
    except Exception:  # of Java, or of PySpark where there is no JVM
        return False
    return True


def _address(ref: SegmentRef) -> str:
    store = ref.store
    if not store.sealed_uri:
        return f"file://{store.directory.absolute() if store.directory else ''}/{ref.stored_name}"
    rest = store.sealed_uri.partition("://")[2].partition("?")[0]
    return f"{_scheme(store)}://{rest.rstrip('/')}/{ref.stored_name}"


def _matches(wanted: Filter):  # type: ignore[no-untyped-def]
    """The patterns as a condition. Plain names are compared, so that Parquet's statistics apply to them."""
    from pyspark.sql import functions as F

    topic = F.col("topic")
    return reduce(
        operator.or_,
        (topic.rlike(f"^{fnmatch.translate(p)}") if is_pattern(p) else topic == p for p in wanted.patterns or ()),
    )
