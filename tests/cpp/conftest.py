"""A C++ participant for each test. Its program is compiled once for all processes of a run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cpp.compiling import CXX, Participant, compiled


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own  # of all workers of this run
    program = shared / "participant"
    with (shared / "participant.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            compiled(Path(__file__).parent / "participant.cpp", shared, CXX, "-std=c++20")
    return program


@pytest.fixture
def cpp(program: Path, runtime_dir: Path) -> Iterator[Participant]:
    participant = Participant(program)
    yield participant
    assert participant.end() == 0
