"""The pytest plugin: the fixture `ringmain_world`, a fake world for one test. `--ringmain-seed` chooses its seed."""

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
    from ringmain.testing import fake  # not before it is asked for: the plugin is loaded in every pytest run

    with fake(seed=request.config.getoption("--ringmain-seed")) as world:
        yield world
