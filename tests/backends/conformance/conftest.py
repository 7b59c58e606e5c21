"""One suite for every backend and every contract it supports.

A test takes `setting`, which stands for one backend and one contract, and says with marks what it needs: features (rows
of `ringmain.backends._features`) and contracts. It runs wherever the table says yes, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import ringmain as rm
from ringmain.backends import BACKENDS, _features
from ringmain.testing import fake
from tests import contracts
from tests.conftest import PATIENCE_S as PATIENCE_S


class Setting:
    """A backend, a contract, and endpoints that are closed when the test ends."""

    def __init__(self, backend: Any, contract: Any, stack: ExitStack) -> None:
        self.backend, self.contract = backend, contract
        self._stack = stack

    def publisher(self, topic: str = "t", **options: Any) -> Any:
        options.setdefault("contract", self.contract)
        return self._stack.enter_context(rm.Publisher(topic, backend=self.backend, **options))

    def subscriber(self, topic: str = "t", **options: Any) -> Any:
        return self._stack.enter_context(rm.Subscriber(topic, backend=self.backend, **options))

    def pair(self, topic: str = "t", *, pub: dict[str, Any] | None = None, **options: Any) -> tuple[Any, Any]:
        """A publisher and a subscriber who have met."""
        publisher = self.publisher(topic, **(pub or {}))
        subscriber = self.subscriber(topic, **options)
        publisher.wait_for_readers(1, timeout=PATIENCE_S)
        return publisher, subscriber


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*features): rows of ringmain.backends._features that the test is about")
    config.addinivalue_line("markers", "contracts(*names): the contracts it is about; all if it does not say")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "setting" not in metafunc.fixturenames:
        return
    features = [name for mark in metafunc.definition.iter_markers("needs") for name in mark.args]
    wanted = [name for mark in metafunc.definition.iter_markers("contracts") for name in mark.args] or contracts.ALL
    cases = [
        (backend, contract)
        for backend in BACKENDS
        for contract in wanted
        if all(_features.missing(backend, feature) is None for feature in [f"contract {contract}", *features])
    ]
    metafunc.parametrize("setting", cases, ids=["-".join(case) for case in cases], indirect=True)


@pytest.fixture(autouse=True)
def nothing_left_on_zmq(runtime_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No advertisement and no socket may be left over."""
    monkeypatch.delenv("RINGMAIN_BACKEND", raising=False)
    yield
    assert [path.name for path in runtime_dir.rglob("*") if "~" in path.name] == []


@pytest.fixture
def setting(request: pytest.FixtureRequest, nothing_left_on_zmq: None) -> Iterator[Setting]:
    backend, contract = request.param
    with ExitStack() as stack:
        if backend == "fake":
            stack.enter_context(fake(seed=7))
        yield Setting(backend, contract, stack)
