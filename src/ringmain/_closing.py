"""`with` for all that has a `close()`: it is closed at the end of the block, also on an exception."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

__all__ = ["Closing"]


class _Closes(Protocol):
    def close(self) -> None: ...


class Closing:
    """Mixed into classes that have a `close()`."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self: _Closes, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
