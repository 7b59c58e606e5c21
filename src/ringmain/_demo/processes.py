"""Starts, kills and ends the robot's processes. The invariant owned here: none is left running."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Self

PARTS = ("camera", "vision", "imu", "gps", "control", "dashboard")
PATIENCE_S = 30.0


class DemoFailed(Exception):
    """The demo did not reach an expected state. The text says which."""


class Stage:
    """The robot's processes, by the name of their part."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *parts: str) -> None:
        for part in parts:
            self._running[part] = subprocess.Popen([sys.executable, "-m", f"ringmain._demo.{part}"])

    def pid(self, part: str) -> int:
        return self._running[part].pid

    def kill(self, part: str) -> int:
        """Sends SIGKILL. Returns its pid."""
        process = self._running.pop(part)
        process.kill()
        process.wait(PATIENCE_S)
        return process.pid

    def until(self, what: str, condition: Callable[[], object]) -> None:
        """Waits until the condition holds. Fails if a part ends, or after PATIENCE_S seconds."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            for part, process in self._running.items():
                if (code := process.poll()) is not None:
                    raise DemoFailed(f"{part} ended with {code} while waiting for {what}")
            if time.monotonic() > end:
                raise DemoFailed(f"waited {PATIENCE_S:g} s for {what}, without success")
            time.sleep(0.05)

    def end(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
