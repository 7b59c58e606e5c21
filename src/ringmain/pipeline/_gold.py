"""Gold: how every topic was doing over time. Each table is a function of messages, and of nothing else.

The invariant owned here: *a bucket's rows are a function of that bucket's messages*. Windows never cross a bucket's
edge, so a bucket that gains messages is computed again from bronze and its file replaced. Late messages are therefore
never too late, no state is kept between batches, and batch and streaming give the same numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LATE_S = 1.0
ACCURACY = 10_000  # of percentile_approx: a rank is off by at most a 10,000th of the messages


def publish_us() -> Column:
    return F.unix_micros("publish_time")


def latency_ms() -> Column:
    """From publish to record; publish_time has dropped its nanoseconds, publish_ns has them."""
    return (F.unix_micros("record_time") - publish_us() - F.col("publish_ns") / 1000) / 1000


def window_start(window_s: float) -> Column:
    return F.timestamp_micros((F.floor(publish_us() / (window_s * 1e6)) * int(window_s * 1e6)).cast("long"))


def topic_health(messages: DataFrame, window_s: float = 10.0, late_s: float = LATE_S) -> DataFrame:
    """For each window, topic and recorder: how many, how fast, how late, how regular, how much was lost."""
    in_order = Window.partitionBy("recorder", "topic", "epoch", "window_start").orderBy("seq")
    rows = (
        messages.select(
            "recorder", "topic", "epoch", "seq", "size", "lost",
            publish_us().alias("at_us"), latency_ms().alias("latency_ms"), window_start(window_s).alias("window_start"),
        )
        .withColumn("interval_ms", (F.col("at_us") - F.lag("at_us").over(in_order)) / 1000)
    )  # fmt: skip
    quantiles = F.percentile_approx("latency_ms", F.array(F.lit(0.5), F.lit(0.99), F.lit(0.999)), F.lit(ACCURACY))
    grouped = rows.groupBy("window_start", "topic", "recorder").agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        quantiles.alias("_latency"),
        F.max("latency_ms").alias("latency_max_ms"),
        F.coalesce(F.stddev_samp("interval_ms"), F.lit(0.0)).alias("jitter_ms"),
        F.sum("lost").alias("lost"),
        F.count_if(F.col("lost") > 0).alias("gaps"),
        F.count_if(F.col("latency_ms") > late_s * 1000).alias("late"),
        F.count_if(F.col("interval_ms") < 0).alias("out_of_order"),
    )
    return grouped.select(
        "window_start",
        F.timestamp_micros(F.unix_micros("window_start") + int(window_s * 1e6)).alias("window_end"),
        "topic",
        "recorder",
        "messages",
        "bytes",
        (F.col("messages") / window_s).alias("rate_hz"),
        (F.col("bytes") / window_s).alias("bytes_per_s"),
        F.col("_latency")[0].alias("latency_p50_ms"),
        F.col("_latency")[1].alias("latency_p99_ms"),
        F.col("_latency")[2].alias("latency_p999_ms"),
        "latency_max_ms",
        "jitter_ms",
        "lost",
        "gaps",
        "late",
        "out_of_order",
    )


def gaps(messages: DataFrame) -> DataFrame:
    """Every gap where a recorder missed messages: when, how many, and which reader."""
    return messages.where("lost > 0").select(
        F.col("publish_time").alias("time"),
        "topic",
        F.col("recorder").alias("reader"),
        "epoch",
        F.col("seq").alias("before_seq"),
        "lost",
    )


def senders(messages: DataFrame, window_s: float = 10.0) -> DataFrame:
    """For each window, topic and sender: how much it sent, and its longest silence."""
    in_order = Window.partitionBy("recorder", "topic", "epoch", "sender", "window_start").orderBy("seq")
    rows = messages.select(
        "recorder",
        "topic",
        "epoch",
        "sender",
        "seq",
        "size",
        "publish_time",
        window_start(window_s).alias("window_start"),
    ).withColumn("silence_ms", (publish_us() - F.lag(publish_us()).over(in_order)) / 1000)
    return rows.groupBy("window_start", "topic", "sender", "recorder").agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.min("publish_time").alias("first_time"),
        F.max("publish_time").alias("last_time"),
        F.max("silence_ms").alias("longest_silence_ms"),
    )


def filed(frame: DataFrame, time: str, bucket_s: int) -> DataFrame:
    """With the columns that say in which bucket's file a row belongs."""
    start = F.timestamp_seconds(F.floor(F.unix_micros(time) / (bucket_s * 1e6)) * bucket_s)
    return frame.withColumn("date", F.to_date(start)).withColumn("bucket", F.date_format(start, "HHmmss"))
