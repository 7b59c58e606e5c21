"""Spark: recordings and topics as DataFrames, DataFrames as messages. Needs the extra `spark`.

    import ringmain.spark

    spark = ringmain.spark.session()
    spark.read.format("ringmain").load("recordings/")

The public names and where each lives: `session` (session.py). The source and sink behind `format("ringmain")` are in
source.py, which Spark finds by itself through the top-level package `pyspark_ringmain`.
"""

from __future__ import annotations

from ringmain.spark.session import session

__all__ = ["session"]
