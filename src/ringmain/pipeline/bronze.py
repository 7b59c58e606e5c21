"""Bronze: every message as it was recorded, and nothing else. Partitioned by date of publication and topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITION_BY = ("date", "topic")
COLUMNS = (
    "recorder string, epoch bigint, seq bigint, publish_time timestamp, publish_ns smallint, record_time timestamp, "
    "sender string, kind string, lost bigint, size int, payload binary, segment bigint, row bigint, "
    "date date, topic string"
)


def bronze(messages: DataFrame) -> DataFrame:
    """What the source gives, with the day (UTC) it was published."""
    return messages.withColumn("date", F.to_date("publish_time"))


def count_topics(bronzed: DataFrame) -> DataFrame:
    """One row for each life of each topic and recorder: how many rows, and whether sequence numbers add up.

    A recorder that saw every number once has as many rows as numbers, less those it says it lost (`is_intact`): then
    there is nothing to deduplicate within the batch, and no need to look.
    """
    grouped = bronzed.groupBy("topic", "epoch", "recorder").agg(
        F.count("*").alias("rows"),
        F.sum("size").alias("bytes"),
        F.sum("lost").alias("lost"),
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.min_by("lost", "seq").alias("lost_before"),
    )
    numbers = F.col("last_seq") - F.col("first_seq") + 1
    return grouped.withColumn("is_intact", F.col("rows") + F.col("lost") - F.col("lost_before") == numbers)
