"""Bronze: every message as it was recorded, and nothing else. Partitioned by date of publication and topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ringmain.recording._format import TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITION_BY = ("date", "topic")
_DATA_COLUMNS = [f"{column.name} {column.spark}" for column in TABLE if column.name not in PARTITION_BY]
COLUMNS = ", ".join([*_DATA_COLUMNS, "segment bigint", "row bigint", "date date", "topic string"])


def bronze(messages: DataFrame) -> DataFrame:
    """What the source gives, with the day (UTC) it was published."""
    return messages.withColumn("date", F.to_date("publish_time"))


def count_topics(bronzed: DataFrame, bucket_s: int) -> DataFrame:
    """One row for each life of each topic: how many rows, which sequence numbers, and in which stretches of time."""
    bucket = F.floor(F.unix_micros("publish_time") / (bucket_s * 1_000_000)).cast("long")
    return bronzed.groupBy("topic", "epoch").agg(
        F.count("*").alias("rows"),
        F.sum("size").alias("bytes"),
        F.sum("lost").alias("lost"),
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.collect_set(bucket).alias("buckets"),
    )
