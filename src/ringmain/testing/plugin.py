"""The pytest plugin: the fixtures `ringmain_world`, a fake world for one test (`--ringmain-seed` chooses its seed), and
`ringmain_dir`, a runtime directory of real shared memory for one test.

Asked for with `pytest_plugins = ["ringmain.testing.plugin"]` in conftest.py. Not loaded by itself: a plugin that every
pytest run imports would load the native module in programs that never use it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ringmain.testing import World


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ringmain-seed", type=int, default=0, help="the seed of the fixture ringmain_world (0)")


@pytest.fixture
def ringmain_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A fake world: every publisher and subscriber that the test makes lives in it."""
    from ringmain.testing import fake

    with fake(seed=request.config.getoption("--ringmain-seed")) as world:
        yield world


@pytest.fixture
def ringmain_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty runtime directory, for this test and the processes that it starts. Test runs that use it do not meet."""
    shared_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="ringmain-test-", dir=shared_memory))
    monkeypatch.setenv("RINGMAIN_DIR", str(path))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
