"""Silver: one table a topic, its payloads decoded to columns, each message once, in order.

The invariant owned here: *nothing disappears*. A row of bronze is in silver, or in quarantine with the reason, or was
counted as a duplicate of one that is. Deduplication comes first, over (topic, epoch, seq), which is what makes a
message itself: two recorders on one topic record the same numbers. The copy that was recorded first stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F

from ringmain.recording.format import ENVELOPE, SCHEMA
from ringmain.spark.decode import ERROR, Decoding
from ringmain.spark.source import arrow_of, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITION_BY = ("date",)
KEY = ("epoch", "seq")
KEY_COLUMNS = "epoch bigint, seq bigint, publish_time timestamp, date date"
ROWS_PER_FILE = 1 << 20


def deduplicate(messages: DataFrame) -> DataFrame:
    """Of each message the copy that was recorded first."""
    copies = Window.partitionBy(*KEY).orderBy("record_time", "recorder", "segment", "row")
    return messages.withColumn("_copy", F.row_number().over(copies)).where("_copy = 1").drop("_copy")


def without(messages: DataFrame, known: DataFrame) -> DataFrame:
    """Those messages that are not among the known ones."""
    return messages.join(known.select(*KEY).distinct(), list(KEY), "left_anti")


@dataclass(frozen=True)
class Decoder:
    """Decodes batches in the workers. The result has the envelope, the fields, the payload where it failed, and why."""

    decoding: Decoding
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = [f.name for f in self.decoding.columns()]
        for batch in batches:
            if not len(batch):
                continue
            columns, reasons = self.decoding.apply(batch)
            decoded = dict(zip(names, columns, strict=True))
            decoded[ERROR] = reasons
            decoded["payload"] = pc.if_else(reasons.is_valid(), batch.column("payload"), None)
            arrays = [decoded[f.name] if f.name in decoded else batch.column(f.name).cast(f.type) for f in self.schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def decode(messages: DataFrame, decoding: Decoding) -> DataFrame:
    """Rows in, as many rows out: with `decode_error` null and the fields set, or the other way round."""
    fields = [SCHEMA.field(name).with_nullable(True) for name in ENVELOPE]
    fields += [pa.field("payload", pa.binary()), *decoding.columns(), pa.field(ERROR, pa.string())]
    spark_type = spark_schema(pa.schema(fields))
    decoder = Decoder(decoding, arrow_of(spark_type))
    return messages.select(*ENVELOPE, "payload").mapInArrow(decoder, spark_type)


def untyped(messages: DataFrame) -> DataFrame:
    """A topic of plain bytes: the payload is the column."""
    return messages.select(*ENVELOPE, "payload")


def good(decoded: DataFrame) -> DataFrame:
    return decoded.where(F.col(ERROR).isNull()).drop(ERROR, "payload")


def failed(decoded: DataFrame) -> DataFrame:
    """What goes to quarantine: the envelope, the bytes, the reason."""
    wrong = decoded.where(F.col(ERROR).isNotNull())
    return wrong.select(*ENVELOPE, "payload", F.col(ERROR).alias("reason"))


def ordered(frame: DataFrame, rows: int) -> DataFrame:
    """In order of life and sequence, in files of a good size."""
    files = -(-rows // ROWS_PER_FILE)
    spread = frame.coalesce(1) if files <= 1 else frame.repartitionByRange(files, *KEY)
    return spread.withColumn("date", F.to_date("publish_time")).sortWithinPartitions("date", *KEY)
