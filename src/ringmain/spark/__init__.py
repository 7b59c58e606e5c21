"""Spark: recordings and topics as DataFrames, DataFrames as messages. Needs the extra `spark`.

    import ringmain.spark

    spark = ringmain.spark.session()
    ringmain.spark.read(spark, "recordings/")                             # the fastest batch DataFrame
    ringmain.spark.read_lake(spark, "lake/", "silver/imu")                # a table that the pipeline made
    ringmain.spark.aligned(frames, {"imu": imus})                         # the newest value of each at every message
    spark.readStream.format("ringmain").load("recordings/")               # while it is being recorded
    frame.writeStream.format("ringmain").option("topic", "plan")          # publish

Spark finds the source and sink behind `format("ringmain")` (_source.py) through the top-level package
`pyspark_ringmain`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ringmain.spark._session import session

if TYPE_CHECKING:
    from ringmain.recording._scan import gaps
    from ringmain.spark._aligned import aligned
    from ringmain.spark._read import read
    from ringmain.spark._read_lake import read_lake
    from ringmain.spark._sink import RepeatFilter

__all__ = ["RepeatFilter", "aligned", "gaps", "read", "read_lake", "session"]

_WHERE = {
    "aligned": "ringmain.spark._aligned",
    "read": "ringmain.spark._read",
    "read_lake": "ringmain.spark._read_lake",
    "gaps": "ringmain.recording._scan",
    "RepeatFilter": "ringmain.spark._sink",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: without pyspark, `session` must still be importable, so that it can say what is missing.
    if name not in _WHERE:
        raise AttributeError(f"module 'ringmain.spark' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
