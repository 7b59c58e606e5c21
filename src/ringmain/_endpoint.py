"""What publishers and subscribers of all backends share: they are closed properly.

Owns this invariant: an open endpoint is closed when the interpreter ends at the latest, so a program that forgets to
close leaves no topic behind. One that is garbage collected while open warns about it.
"""

from __future__ import annotations

import atexit
import warnings
import weakref
from contextlib import suppress
from typing import Any, ClassVar, Protocol, TypeVar

from ringmain import _names
from ringmain._closing import Closing
from ringmain.errors import Closed

T_co = TypeVar("T_co", covariant=True)

_open: weakref.WeakSet[Any] = weakref.WeakSet()


def close_at_exit(what: Any) -> None:
    """Close it when the interpreter ends, if it is still there: `__del__` would come when nothing can be imported."""
    _open.add(what)


class _Receives(Protocol[T_co]):
    @property
    def closed(self) -> bool: ...
    async def arecv(self) -> T_co: ...


class AsyncIteration:
    """Mixed into subscribers: `async for` gives what `arecv` does, until they are closed."""

    __slots__ = ()

    async def __anext__(self: _Receives[T_co]) -> T_co:
        if self.closed:
            raise StopAsyncIteration
        try:
            return await self.arecv()
        except Closed:
            raise StopAsyncIteration from None


class Endpoint(Closing):
    """Mixed into the native types, and the base of the endpoints in Python. They have `closed` and `_close()`."""

    _backend: ClassVar[str]
    _role: ClassVar[str]
    topic: str
    _options: dict[str, Any]

    def _opened(self) -> None:
        close_at_exit(self)

    def _participant_name(self) -> str:
        """The given name, or that of the process it is used in: asked again wherever it joins."""
        return _names.participant_name(self._options["name"], self._options.get("sender", ""))

    def close(self) -> None:
        """Leave the topic. The last participant to leave removes it, unless it persists. Closing twice is harmless."""
        self._close()  # type: ignore[attr-defined]

    def _abandon(self) -> None:
        """The program ends before it has closed this. A subscriber of `work` gives back what it has not finished."""

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
            self._abandon()
            self._close()  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        state = " closed" if getattr(self, "closed", True) else ""
        return f"<ringmain.{type(self).__name__} '{getattr(self, 'topic', '?')}'{state}>"


@atexit.register
def _close_all() -> None:
    for endpoint in list(_open):
        with suppress(Exception):  # a view is still alive, or a library is shut down already: the kernel frees the rest
            if isinstance(endpoint, Endpoint):
                endpoint._abandon()
            endpoint.close()
