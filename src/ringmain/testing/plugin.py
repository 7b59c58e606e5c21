"""The pytest plugin: the fixture `ringmain_world`, a fake world for one test. `--ringmain-seed` chooses its seed.

Asked for with `pytest_plugins = ["ringmain.testing.plugin"]` in conftest.py. Not loaded by itself: a plugin that every
pytest run imports would load the native module in programs that never use it.
"""

from __future__ import annotations

from collections.abc import Iterator
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
