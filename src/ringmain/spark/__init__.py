"""Spark: recordings and topics as DataFrames, DataFrames as messages. Needs the extra `spark`.

    import ringmain.spark

    spark = ringmain.spark.session()
    ringmain.spark.read(spark, "recordings/")                             # the fastest batch DataFrame
    spark.readStream.format("ringmain").load("recordings/")               # while it is being recorded
    frame.writeStream.format("ringmain").option("topic", "plan")          # publish

The public names and where each lives: `session` (session.py), `read` (fastest.py), `gaps` (scan.py), `RepeatFilter`
(sink.py). The source and sink behind `format("ringmain")` are in source.py, which Spark finds by itself through the
top-level package `pyspark_ringmain`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringmain.spark._session import session

if TYPE_CHECKING:
    from ringmain.spark._read import read
    from ringmain.spark._scan import gaps
    from ringmain.spark._sink import RepeatFilter

__all__ = ["RepeatFilter", "gaps", "read", "session"]

_WHERE = {"read": "ringmain.spark._read", "gaps": "ringmain.spark._scan", "RepeatFilter": "ringmain.spark._sink"}


def __getattr__(name: str) -> Any:
    # Later than session(): what it says when pyspark is missing would otherwise never be said.
    if name not in _WHERE:
        raise AttributeError(f"module 'ringmain.spark' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)
