"""For all tests of frames."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_pool_left(runtime_dir: Path) -> Iterator[None]:
    """Whatever a test does, closing everything leaves no file of buffers."""
    yield
    gc.collect()
    assert not list(runtime_dir.glob("*.frames"))
