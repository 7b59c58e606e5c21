"""Warnings of the library, in commands that run for long: one line on stderr, at once."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable


def show_warnings(command: str, *, unless: Callable[[], object] = lambda: False) -> None:
    """From now on, as `ringmain COMMAND: text`. Not those that come when `unless` is true."""

    def show(message: Warning | str, *rest: object, **more: object) -> None:
        if not unless():
            print(f"ringmain {command}: {message}", file=sys.stderr, flush=True)

    warnings.showwarning = show
