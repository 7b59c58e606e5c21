"""The paused side of `Lockstep`: subscribers that ask the test before they look at their topic.

Owns this invariant: a call that is made inside another one (`recv` inside `__next__`) does not pause a second time.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ringmain import _native
from ringmain.backends.shm import LOCKSTEP_VARIABLE

T = TypeVar("T")


class LockstepPlan(msgspec.Struct, frozen=True):
    """What the variable says: the test's socket, and the topics whose subscribers pause."""

    socket: str
    topics: tuple[str, ...]
    polls: bool = False


class Step(msgspec.Struct, frozen=True):
    """What a paused subscriber is about to do."""

    topics: tuple[str, ...]
    call: str
    name: str
    pid: int
    timeout: float | None = None


@functools.cache
def _plan(text: str) -> LockstepPlan:
    return msgspec.json.decode(text, type=LockstepPlan)


def pausing_class(cls: Any, topic: str) -> Any:
    """The class to make a subscriber of: one that pauses if the variable names its topic, otherwise `cls` itself."""
    text = os.environ.get(LOCKSTEP_VARIABLE)
    if not text or topic not in _plan(text).topics or issubclass(cls, PausingMixin):
        return cls
    return _mix(cls, _plan(text))


@functools.cache
def _mix(cls: Any, plan: LockstepPlan) -> Any:
    # Under the same name: a subscriber that pauses looks like any other.
    attributes = {"_lockstep_plan": plan, "_lockstep_base": cls, "__module__": cls.__module__}
    return type(cls)(cls.__name__, (PausingMixin, cls), attributes)


def ask(plan: LockstepPlan, step: Step) -> bool:
    """Wait until the test says to continue. True: time out at once. If the test has ended, continue."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(plan.socket)
            connection.send(msgspec.json.encode(step))
            return connection.recv(16) == b"expire"
        except OSError:
            return False


async def ask_async(plan: LockstepPlan, step: Step) -> bool:
    """As `ask`, without blocking the event loop."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, plan.socket)
            await loop.sock_sendall(connection, msgspec.json.encode(step))
            return await loop.sock_recv(connection, 16) == b"expire"
        except OSError:
            return False


class PausingMixin:
    """Mixed into the subscriber's class."""

    _lockstep_plan: LockstepPlan
    _lockstep_base: type
    _waits_natively = False
    _calls_inside = 0
    topic: str
    _participant_name: Callable[[], str]

    def _step(self, call: str, timeout: float | None) -> Step:
        return Step((self.topic,), call, self._participant_name(), os.getpid(), timeout)

    def _pauses(self, timeout: float | None) -> bool:
        return self._calls_inside == 0 and (timeout != 0 or self._lockstep_plan.polls)

    def _paused(self, call: str, timeout: float | None, proceed: Callable[[float | None], T]) -> T:
        """Pause, then proceed with the timeout that the test leaves it."""
        expired = self._pauses(timeout) and ask(self._lockstep_plan, self._step(call, timeout))
        self._calls_inside += 1
        try:
            return proceed(0 if expired else timeout)
        finally:
            self._calls_inside -= 1

    def __reduce__(self) -> tuple[Any, ...]:
        # In the process that unpickles it, the environment decides anew whether it pauses.
        reduced: Any = super().__reduce__()
        rebuild, (_, *rest) = reduced
        return rebuild, (self._lockstep_base, *rest)

    def recv(self, timeout: float | None = None) -> Any:
        return self._paused("recv", timeout, super().recv)  # type: ignore[misc]

    def try_recv(self) -> Any:
        receive = super().try_recv  # type: ignore[misc]
        return self._paused("try_recv", 0, lambda _: receive())

    def recv_message(self, timeout: float | None = None) -> Any:
        return self._paused("recv_message", timeout, super().recv_message)  # type: ignore[misc]

    def try_recv_message(self) -> Any:
        receive = super().try_recv_message  # type: ignore[misc]
        return self._paused("try_recv_message", 0, lambda _: receive())

    def recv_many(self, max_messages: int, timeout: float | None = 0) -> Any:
        receive = super().recv_many  # type: ignore[misc]
        return self._paused("recv_many", timeout, lambda left: receive(max_messages, left))

    def recv_messages(self, max_messages: int, timeout: float | None = 0) -> Any:
        receive = super().recv_messages  # type: ignore[misc]
        return self._paused("recv_messages", timeout, lambda left: receive(max_messages, left))

    def recv_into(self, buffer: Any, timeout: float | None = None) -> Any:
        receive = super().recv_into  # type: ignore[misc]
        return self._paused("recv_into", timeout, lambda left: receive(buffer, left))

    def recv_batch(self, max_messages: int = 65536, *, timeout: float | None = 0, **options: Any) -> Any:
        receive = super().recv_batch  # type: ignore[misc]
        return self._paused("recv_batch", timeout, lambda left: receive(max_messages, timeout=left, **options))

    def borrow(self, timeout: float | None = None) -> Any:
        return self._paused("borrow", timeout, super().borrow)  # type: ignore[misc]

    def __next__(self) -> Any:
        receive = super().__next__  # type: ignore[misc]
        return self._paused("recv", None, lambda _: receive())

    async def arecv(self, timeout: float | None = None) -> Any:
        return (await self.arecv_message(timeout)).data

    async def arecv_message(self, timeout: float | None = None) -> Any:
        expired = self._pauses(timeout) and await ask_async(self._lockstep_plan, self._step("arecv", timeout))
        self._calls_inside += 1
        try:
            return await super().arecv_message(0 if expired else timeout)  # type: ignore[misc]
        finally:
            self._calls_inside -= 1


def wait(subscribers: list[Any], timeout: float | None) -> list[Any]:
    """One step for all of them: a single pause, with the topics of all that pause."""
    pausing = [subscriber for subscriber in subscribers if isinstance(subscriber, PausingMixin)]
    first = pausing[0]
    if timeout != 0 or first._lockstep_plan.polls:
        topics = tuple(subscriber.topic for subscriber in pausing)
        step = Step(topics, "wait", first._participant_name(), os.getpid(), timeout)
        if ask(first._lockstep_plan, step):
            timeout = 0
    return _native.wait(subscribers, timeout)
