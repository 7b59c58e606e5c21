"""The guides on testing and on several machines are correct.

How: every Python block runs, in one process of its own; files and tables they show are compared with the real ones;
the tests of the example project run as a user would run them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ringmain.backends import _features
from tests.conftest import PATIENCE_S

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "docs" / "guide" / name for name in ("testing.md", "between-machines.md")]


def blocks(guide: Path) -> list[str]:
    """Its Python blocks, without those that are files of the example."""
    text = re.sub(r"<!-- file: \S+ -->\n```python\n.*?```\n", "", guide.read_text(), flags=re.DOTALL)
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_the_blocks_run(guide: Path) -> None:
    found = blocks(guide)
    assert len(found) >= 2
    for block in found:
        command = [sys.executable, "-W", "error", "-c", block]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
        assert done.returncode == 0, f"{guide.name}:\n{block}\n{done.stderr}"


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_what_they_show_is_what_is_there(guide: Path) -> None:
    text = guide.read_text()
    for name, shown in re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```\n", text, flags=re.DOTALL):
        assert shown == (ROOT / name).read_text(), f"{guide.name} shows another {name}"
    assert "<!-- file:" not in re.sub(r"<!-- file: \S+ -->\n```python", "", text)
    for shown in re.findall(r"<!-- table: ringmain.backends._features -->\n(.*)\Z", text, flags=re.DOTALL):
        assert shown.strip() == _features.as_markdown().strip()


def test_the_example_project_passes_its_tests() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/thermostat"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, cwd=ROOT, check=False)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
