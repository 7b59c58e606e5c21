"""Every Python snippet of the Spark guides runs, in order, in a directory with a recording in it.

Spark's own processes have the directory they were started in, which the other tests share, so relative paths in the
snippets are made absolute here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from .conftest import Imu, imu, rows, schema_of, writer

GUIDES = Path(__file__).parents[2] / "docs" / "guide"
PATHS = re.compile(r"""(["'])(recordings/|lake/|lake-with-steps/|checkpoint/|report\.html)""")
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("guide", ["spark.md", "pipeline.md"])
def test_snippets_run(spark: Any, tmp_path: Path, guide: str) -> None:
    made = writer(tmp_path / "recordings")
    made.declare("imu", epoch=1, schema=schema_of(Imu))
    made.declare("camera/front", epoch=1)
    made.append("imu", 1, rows(0, 50, encode=imu))
    made.append("camera/front", 1, rows(0, 5, step_ns=10_000_000))
    made.close()
    names: dict[str, Any] = {"msgspec": msgspec}
    snippets = SNIPPET.findall((GUIDES / guide).read_text())
    assert len(snippets) >= 5
    for number, snippet in enumerate(snippets):
        snippet = PATHS.sub(rf"\1{tmp_path}/\2", snippet)
        exec(compile(snippet, f"{guide}, snippet {number}", "exec"), names)
    assert names["spark"] is spark if guide == "spark.md" else (tmp_path / "report.html").exists()
