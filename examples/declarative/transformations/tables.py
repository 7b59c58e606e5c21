"""Messages as a streaming table, and each topic's totals as a view that is kept up to date."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


@dp.table
def messages() -> DataFrame:
    spark = SparkSession.active()
    return spark.readStream.format("ringmain").load(os.environ["RECORDINGS"])


@dp.materialized_view
def topics() -> DataFrame:
    spark = SparkSession.active()
    return (
        spark.read.table("messages").groupBy("topic").agg(F.count("*").alias("messages"), F.sum("lost").alias("lost"))
    )
