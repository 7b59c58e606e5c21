"""Every Python snippet of the Spark guides runs, in order, in a directory with a recording in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from .conftest import Imu, imu, rows, schema_of, writer

GUIDES = Path(__file__).parents[2] / "docs" / "guide"
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("guide", ["spark.md", "pipeline.md"])
def test_snippets_run(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guide: str) -> None:
    made = writer(tmp_path / "recordings")
    made.declare("imu", epoch=1, schema=schema_of(Imu))
    made.declare("camera/front", epoch=1)
    made.append("imu", 1, rows(0, 50, encode=imu))
    made.append("camera/front", 1, rows(0, 5, step_ns=10_000_000))
    made.close()
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"msgspec": msgspec}
    snippets = SNIPPET.findall((GUIDES / guide).read_text())
    assert len(snippets) >= 5
    for number, snippet in enumerate(snippets):
        exec(compile(snippet, f"{guide}, snippet {number}", "exec"), names)
    assert names["spark"] is spark if guide == "spark.md" else (tmp_path / "report.html").exists()
