"""What publishers and subscribers share: being closed properly, and being passed to other processes."""

from __future__ import annotations

import atexit
import warnings
import weakref
from contextlib import suppress
from typing import Any, Protocol

from ringmain._closing import Closing

_open: weakref.WeakSet[Endpoint] = weakref.WeakSet()


class _Native(Protocol):
    def _close(self) -> None: ...
    @property
    def closed(self) -> bool: ...


class Endpoint(Closing):
    """Mixed into the native types. An open endpoint is closed at the latest when the interpreter ends, so that a
    program that forgets to close leaves no topic behind; one that is collected while open says so."""

    topic: str
    _options: dict[str, Any]

    def _opened(self) -> None:
        _open.add(self)

    def close(self: _Native) -> None:
        """Leave the topic. The last to leave takes it away, unless it persists. Closing twice is harmless."""
        self._close()

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
            self._close()  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        state = " closed" if getattr(self, "closed", True) else ""
        return f"<ringmain.{type(self).__name__} '{getattr(self, 'topic', '?')}'{state}>"


@atexit.register
def _close_all() -> None:
    for endpoint in list(_open):
        with suppress(BufferError):  # a view is still alive: the kernel gives back the rest
            endpoint.close()  # type: ignore[misc]
