"""The demo's output: a line for each step, and on a terminal a progress line that is redrawn."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ringmain._cli.text_format import dim

_WIDTH = 24


class Narrator:
    """Prints each step, with the seconds since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._terminal = sys.stdout.isatty()

    def say(self, text: str) -> None:
        self._over("")
        print(f"{dim(f'{time.monotonic() - self._start:6.1f} s')}  {text}", flush=True)

    def progress(self, what: str, share: float) -> None:
        """Redraws the progress bar. `share` is from 0 to 1."""
        done = round(min(max(share, 0.0), 1.0) * _WIDTH)
        self._over(f"          {'━' * done}{dim('━' * (_WIDTH - done))}  {what}")

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Counts the seconds of a step whose progress is not known."""
        over, start = threading.Event(), time.monotonic()

        def count() -> None:
            while not over.wait(0.2):
                self._over(f"          {what}  {time.monotonic() - start:.0f} s")

        counting = threading.Thread(target=count, daemon=True)
        if self._terminal:
            counting.start()
        try:
            yield
        finally:
            over.set()
            if self._terminal:
                counting.join()
                self._over("")

    def _over(self, text: str) -> None:
        if self._terminal:
            print(f"\r\033[K{text}", end="", flush=True)
