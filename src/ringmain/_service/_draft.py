"""`Draft`: a request that is written where it will lie in the ring."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from ringmain._native import Reservation
    from ringmain._service._client import Client
    from ringmain.backends._requests import CallProtocol

R = TypeVar("R")


class Draft(Generic[R]):
    """`with client.reserve(size) as buffer: ...` sends when the block is left; `result()` of the draft waits for the
    reply. An exception in the block drops the request. Other clients wait to send until the block is left."""

    def __init__(self, client: Client[Any, R], reservation: Reservation, call: CallProtocol) -> None:
        self._client, self._reservation, self._call = client, reservation, call

    @property
    def buffer(self) -> Reservation:
        """What to write into, as that of `Publisher.reserve`."""
        return self._reservation

    def __enter__(self) -> Self:
        self._reservation.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._reservation.discard()
            return
        self._client._end.commit(self._reservation, self._call)

    def result(self) -> R:
        """The reply. Raises what `call` would."""
        if not self._call.sent:
            raise ValueError("the request was not sent: leave its block first")
        return self._client._outcome(self._call)
