"""How Spark finds `format("ringmain")` without anybody registering it: it looks for top-level `pyspark_*` packages that
have a `DefaultSource`. Nothing else belongs here."""

from ringmain.spark._source import RingmainSource as DefaultSource

__all__ = ["DefaultSource"]
