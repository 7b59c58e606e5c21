"""The lake: Delta tables of what was recorded, and the ways to read, check and maintain them. Needs the extra `lake`,
and no Spark.

    from ringmain.lake import Lake, Rules, check, report
    Lake("lake/").to_arrow("gold/topic_health")
    report("lake/", "report.html")
    check("lake/", Rules.read("rules.toml"))

`ringmain.pipeline` makes it. Each module owns one thing: _tables.py (how a table is committed), _log.py (a table's
versions), _objects.py (bytes in a store), _comments.py (what columns are about), _files.py (Parquet files), _rewrite.py
(files written again), _ledger.py and _positions.py (how far the lake has come), _lake.py (what users call), _bronze.py
(messages as recorded), _gold.py (tables of columns), _health.py and _fields.py (those of gold), _incidents.py (what
flight recordings kept), _report.py (a page), _check.py (alerts), _figures.py (metrics).
"""

from __future__ import annotations

from ringmain.lake._check import Problem, Rule, Rules, check
from ringmain.lake._lake import Lake
from ringmain.lake._report import report

__all__ = ["Lake", "Problem", "Rule", "Rules", "check", "report"]
