"""Telling the demo's story: a line for what was shown, and on a terminal a line of progress that is written over."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ringmain._cli.text_format import dim

_WIDTH = 24


class Narrator:
    """Says what is shown, with the seconds since the beginning."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._terminal = sys.stdout.isatty()

    def say(self, text: str) -> None:
        self._over("")
        print(f"{dim(f'{time.monotonic() - self._start:6.1f} s')}  {text}", flush=True)

    def progress(self, what: str, share: float) -> None:
        """How far something has come, from 0 to 1."""
        done = round(min(max(share, 0.0), 1.0) * _WIDTH)
        self._over(f"          {'━' * done}{dim('━' * (_WIDTH - done))}  {what}")

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Counts the seconds while something runs that does not say how far it has come."""
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
