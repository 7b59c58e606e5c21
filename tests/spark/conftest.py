"""For all tests that start Spark: the runtime directory is the session's. See plugin.py and recordings.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")


@pytest.fixture(autouse=True)
def runtime_dir(runtime_dir_of_session: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """In place of a directory for each test: the workers of a running JVM would not know of it."""
    monkeypatch.setenv("RINGMAIN_DIR", str(runtime_dir_of_session))
    yield runtime_dir_of_session
    left = sorted(file.name for file in runtime_dir_of_session.glob("*.ring"))
    assert not left, f"topics left over: {left}"
