"""Single keys from the terminal, while something else runs. The invariant owned here: when the block is left, in any
way, the terminal has its old settings."""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable
from typing import Any, Self

_ARROWS = {"\033[A": "up", "\033[B": "down", "\033[C": "right", "\033[D": "left"}


class Keyboard:
    """Calls `pressed` with each key, in a thread of its own. An arrow is "right" etc. If stdin is not a terminal, or we
    run in the background, it does nothing (`active` is False). Ctrl-C and Ctrl-Z keep their meaning."""

    def __init__(self, pressed: Callable[[str], None]) -> None:
        self._pressed = pressed
        self._before: list[Any] | None = None
        self._thread: threading.Thread | None = None
        self.active = False

    def __enter__(self) -> Self:
        try:
            self._fd = sys.stdin.fileno()
            self.active = os.isatty(self._fd) and os.tcgetpgrp(self._fd) == os.getpgrp()
        except (OSError, ValueError, AttributeError):
            self.active = False
        if self.active:
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd, termios.TCSANOW)
            self._wake_out, self._wake_in = os.pipe()
            self._thread = threading.Thread(target=self._listen, name="ringmain-keyboard", daemon=True)
            self._thread.start()
        return self

    def _listen(self) -> None:
        while True:
            ready, _, _ = select.select([self._fd, self._wake_out], [], [])
            if self._wake_out in ready:
                return
            try:
                text = os.read(self._fd, 64).decode(errors="ignore")
            except OSError:  # the terminal is gone
                return
            if not text:
                return
            for key in [_ARROWS[text]] if text in _ARROWS else list(text):
                self._pressed(key)

    def __exit__(self, *error: object) -> None:
        if self._thread is not None and self._before is not None:
            os.write(self._wake_in, b"x")
            self._thread.join()
            os.close(self._wake_in)
            os.close(self._wake_out)
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)
            self._thread = None
