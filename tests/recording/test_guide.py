"""The guide's programs run, one after the other in one directory, and do what the text says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "recording.md"


def test_the_programs_of_the_guide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(programs) == 6
    for program in programs:
        exec(compile(program, str(GUIDE), "exec"), {})
    said = capsys.readouterr().out.splitlines()
    assert said[:4] == ["recording", "1000", "(480, 640, 3) 0 {'gain': 2} True", "imu 1000 0"]
    assert said[-4:] == ["True", "False b'0'", "[101.5, 102.0] ['X', 'Y']", "1001 b'0'"]
