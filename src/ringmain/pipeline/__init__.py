"""The pipeline: recordings in, a lake of Delta tables out. Needs the extra `spark`; with `engine="local"` only `lake`.

    from ringmain.pipeline import run
    print(run("recordings/", "lake/"))

How a batch goes through, and what each module owns: _run.py (which batch comes next), _recordings.py (the recordings),
_batch.py (one batch on the driver), _work.py (its tasks), _engine.py (what runs them), _own_tables.py (users' own).
What is in the tables, and how they are read, is in ringmain.lake.
"""

from __future__ import annotations

from ringmain.pipeline._own_tables import Align
from ringmain.pipeline._run import Pipeline, Summary, run

__all__ = ["Align", "Pipeline", "Summary", "run"]
