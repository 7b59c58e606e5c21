"""The pipeline: recordings in, a lake of Delta tables out. Needs the extra `spark`.

    from ringmain.pipeline import Lake, run
    print(run("recordings/", "lake/"))
    Lake("lake/").to_arrow("gold/topic_health")

How a batch goes through, and what each module owns: _run.py (which batch comes next), _source.py (the recordings),
_batch.py (one batch on the driver), _work.py (its tasks), _partials.py and _fields.py (gold's numbers), _lake.py (the
tables), _ledger.py (how far the lake has come), _frames.py (Spark's DataFrames for users' functions). Of gold are made
_report.py (a page) and _check.py (alerts).
"""

from __future__ import annotations

from ringmain.pipeline._aligned import Align, aligned
from ringmain.pipeline._check import Problem, Rule, Rules, check
from ringmain.pipeline._lake import Lake
from ringmain.pipeline._report import report
from ringmain.pipeline._run import Pipeline, Summary, run

__all__ = [
    "Align",
    "Lake",
    "Pipeline",
    "Problem",
    "Rule",
    "Rules",
    "Summary",
    "aligned",
    "check",
    "report",
    "run",
]
