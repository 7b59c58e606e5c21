"""Running the command as a user does: in a process of its own, with its output, its errors and its exit code."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from ringmain.recording import RecordingWriter
from tests import forked
from tests.recording.conftest import ring_batch

PATIENCE_S = 60.0


class Imu(msgspec.Struct):
    """What the typed topics of these tests carry."""

    time: float
    acceleration: tuple[float, float, float]
    label: str = ""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture
def ringmain() -> Callable[..., Ended]:
    """Runs `python -m ringmain ...` to its end."""

    def run(*args: str, stdin: str | None = None, patience_s: float = PATIENCE_S) -> Ended:
        done = forked.run(
            [sys.executable, "-m", "ringmain", *args], capture_output=True, text=True, timeout=patience_s, input=stdin
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `python -m ringmain ...` and leaves it running; whatever still runs at the end is ended."""
    running: list[subprocess.Popen[str]] = []

    def start(*args: str) -> subprocess.Popen[str]:
        process = forked.Popen(
            [sys.executable, "-m", "ringmain", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.terminate()  # which lets it leave its topics
        process.communicate(timeout=PATIENCE_S)


class Terminal:
    """A program in a terminal of its own, typed into and looked at: tmux."""

    def __init__(self, command: str, columns: int, rows: int) -> None:
        self._socket = f"ringmain-{uuid.uuid4().hex[:8]}"
        self._tmux("-f", "/dev/null", "new-session", "-d", "-s", "it", "-x", str(columns), "-y", str(rows), command)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        return done.stdout

    def type(self, text: str, *keys: str) -> None:
        """Letters as they are, then keys by name: Enter, Tab, Escape, C-c."""
        if text:
            self._tmux("send-keys", "-t", "it", "-l", text)
        for key in keys:
            self._tmux("send-keys", "-t", "it", key)

    def text(self, *, colours: bool = False) -> str:
        """What is to be seen."""
        return self._tmux("capture-pane", "-p", *(["-e"] if colours else []), "-t", "it")

    def until(self, *words: str) -> None:
        """Waits until all of this is to be seen; if it never is, tells what was."""
        end, pause = time.monotonic() + PATIENCE_S, threading.Event()
        while not all(word in self.text() for word in words):
            assert time.monotonic() < end, f"never showed {words}, but:\n{self.text()}"
            pause.wait(0.02)

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def terminal() -> Iterator[Callable[[str, int, int], Terminal]]:
    """Opens terminals, and closes them at the end."""
    opened: list[Terminal] = []

    def open_terminal(command: str, columns: int = 170, rows: int = 40) -> Terminal:
        opened.append(Terminal(command, columns, rows))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """A recording of ten messages of one topic, a second apart."""
    with RecordingWriter(tmp_path / "steps") as writer:
        writer.append("t", 1, ring_batch(0, 10, step_ns=1_000_000_000))
    return tmp_path / "steps"
