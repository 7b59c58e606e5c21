"""The seam between requests and a backend: what `Server` and `Client` need beside publishers and subscribers.

Each backend that has requests implements it, and `Row.requests` of the table says where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ringmain._ring import MessageState, Reservation

Done = Callable[[Any, BaseException | None], None]
"""Is told that a call has an answer; or what ended all that would have received it."""


class CallProtocol(Protocol):
    """A request of a client, until its outcome is known."""

    @property
    def number(self) -> int:
        """Its sequence number in the topic of requests, once it was sent."""

    @property
    def timeout(self) -> float | None: ...
    @property
    def deadline_ns(self) -> int | None:
        """When it is late, by the backend's monotonic clock."""

    @property
    def retry(self) -> bool: ...
    @property
    def done(self) -> Done | None: ...
    @property
    def answer(self) -> str:
        """Empty while it is in flight; then "result", "failed", "gone", "lost", "late" or "closed"."""

    @property
    def payload(self) -> bytes | None: ...
    @property
    def sent(self) -> bool: ...


class ClientEndProtocol(Protocol):
    """A client's calls in flight, and the turn to receive their replies. `_native.ClientEnd` is one."""

    @property
    def in_flight(self) -> int: ...
    def new_call(
        self, timeout: float | None, retry: bool, done: Done | None = None, waiter: Any = None, /
    ) -> CallProtocol: ...
    def send(self, request: Any, call: Any, room_s: float | None, /) -> int: ...
    def commit(self, reservation: Reservation, call: Any, /) -> int:
        """Send what was written in place."""

    def wait(self, call: Any, /) -> None:
        """Until it has an answer, or is late."""

    def drop(self, call: Any, /) -> None:
        """No one waits for it any more."""

    def request_state(self, number: int, /) -> MessageState: ...
    def withdraw(self, number: int, /) -> None:
        """Take a request back that no server has taken."""

    def new_waiter(self) -> Any:
        """For calls of tasks and futures: is told of their outcomes."""

    def receive_now(self, waiter: Any, looks: bool, /) -> list[Any]:
        """Those of its calls that have an answer, without waiting; `looks`: also for servers that died."""

    def forget(self, waiter: Any, /) -> list[Any]: ...
    def close(self) -> None:
        """All calls have an answer: the client is closed."""


class FuturesProtocol(Protocol):
    """The futures of one client."""

    def submit(self, start: Callable[[Any, Done], CallProtocol], result: Callable[[Any], Any]) -> Future[Any]:
        """`start` sends the request of a call with this waiter and `done`; `result` gives what the call has come to, or
        raises it."""

    def join(self) -> None:
        """The client is closed."""


class RequestsProtocol(Protocol):
    """What a backend provides."""

    def client_end(self, publisher: Any, replies: Any) -> ClientEndProtocol: ...
    def futures(self, service: str, end: Any) -> FuturesProtocol: ...
    def wall_ns(self, endpoint: Any) -> int:
        """By the clock that its messages' times are of: for people."""

    def monotonic_ns(self, endpoint: Any) -> int:
        """For intervals and deadlines: a clock that runs as its waits do, and that no one sets."""

    def borrow_many(self, subscriber: Any, max_messages: int, timeout: float | None) -> list[Any]:
        """Leases of the messages that are there. Waits, if at all, only for the first."""

    def topic_names(self) -> list[str]: ...
    def changes(self, subscriber: Any) -> int | None:
        """Another number, if topics may have come or gone; None: not known."""

    def unlink_if_dead(self, topic: str) -> None: ...
    async def wait_for_tasks(self, end: Any, replies: Any, waiter: Any, timeout: float) -> None:
        """Until `receive_now` may find something."""

    async def wait_for_requests(self, subscribers: list[Any], timeout: float) -> None: ...
    async def wait_for_room(self, publisher: Any) -> None: ...
