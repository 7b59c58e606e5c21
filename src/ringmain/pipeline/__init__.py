"""The pipeline: recordings in, a lake of Parquet tables out. Needs the extra `spark`.

    from ringmain.pipeline import run
    print(run("recordings/", "lake/"))

The public names and where each lives: `run`, `Pipeline`, `Summary` (run.py), `Align` (batch.py), `Lake` (lake.py),
`bronze` (bronze.py), `topic_health`, `gaps`, `senders` (gold.py), `aligned` (aligned.py),
`report` (report.py, which needs no Spark).
"""

from __future__ import annotations

from ringmain.pipeline._aligned import aligned
from ringmain.pipeline._batch import Align
from ringmain.pipeline._bronze import bronze
from ringmain.pipeline._gold import gaps, senders, topic_health
from ringmain.pipeline._lake import Lake
from ringmain.pipeline._report import report
from ringmain.pipeline._run import Pipeline, Summary, run

__all__ = [
    "Align",
    "Lake",
    "Pipeline",
    "Summary",
    "aligned",
    "bronze",
    "gaps",
    "report",
    "run",
    "senders",
    "topic_health",
]
