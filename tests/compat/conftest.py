"""What the tests of the drop-in modules share: in programs of old, sockets are not closed, they go."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _collect(runtime_dir: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("CEREAL_FAKE", "CEREAL_FAKE_PREFIX", "OPENPILOT_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    yield
    gc.collect()
