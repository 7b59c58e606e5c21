"""Who is in the way of others: it has the turn, holds a message, has the roster locked, has a request, or has sent and
not rung. survivors.py kills or stops it, and measures how soon the others go on.

An obstacle says a number when it is there; another one when what it waited for has come; then it waits to be told
(SIGUSR1), and goes on: gives back what it has, or does that in the middle of which it stops, or dies.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

import ringmain as rm
from ringmain.testing import die_at, stop_at

MESSAGE = b"whole"
FRAME = bytes(16)
BUFFERS = 2
NOT_RUNG, ROSTER, NOT_ANNOUNCED = (
    "publish: turn given back, bell not rung",
    "join: roster locked",
    "join: complete, not announced",
)
Say = Callable[[float], None]


@dataclass(frozen=True)
class Case:
    by: str
    contract: str
    way: str
    spin: float | None = None
    thread: bool = False
    cause: str = "killed"

    def __str__(self) -> str:
        spin = "" if self.spin is None else f", spin={self.spin:g}"
        thread = ", in a second thread" if self.thread else ""
        return f"{self.by}, {self.contract}, {self.way}{spin}{thread}, {self.cause}"


def when_told() -> None:
    """Until SIGUSR1, also one that came while this process was stopped."""
    signal.sigwait([signal.SIGUSR1])


def has_the_turn(case: Case, say: Say) -> None:
    with rm.Publisher("t", contract=case.contract) as pub, pub.reserve(8):  # type: ignore[arg-type]
        say(0)
        when_told()
    signal.pause()


def holds(case: Case, say: Say) -> None:
    """A reader of `reliable` that does not read, and one of `bus` that has borrowed."""
    with (
        rm.Publisher("t", contract=case.contract, capacity=4096) as pub,  # type: ignore[arg-type]
        rm.Subscriber("t") as sub,
    ):
        sub.try_recv()
        pub.send(bytes(2000))
        lease = sub.borrow() if case.contract == "bus" else None
        say(0)
        when_told()
        if lease is not None:
            lease.release()
        while True:
            sub.recv()


def has_buffers(_: Case, say: Say) -> None:
    """A reader of frames that holds all of them."""
    with rm.FrameSubscriber("t") as sub:
        say(0)
        held = [sub.recv() for _ in range(BUFFERS)]
        when_told()
        for frame in held:
            frame.release()
        while True:
            sub.recv().release()


def has_locked_the_roster(case: Case, say: Say) -> None:
    os.environ.update(stop_at(ROSTER, 2))
    with rm.Publisher("t", contract=case.contract), rm.Subscriber("t") as sub:  # type: ignore[arg-type]
        sub.try_recv()
        signal.pause()


def has_not_rung(case: Case, say: Say) -> None:
    arm(NOT_RUNG, case)
    with rm.Publisher("t", contract=case.contract) as pub:  # type: ignore[arg-type]
        say(0)
        when_told()
        pub.send(MESSAGE)
        signal.pause()


def has_not_rung_for_a_frame(case: Case, say: Say) -> None:
    arm(NOT_RUNG, case)
    with rm.FramePublisher("t", size=len(FRAME)) as pub:
        say(0)
        when_told()
        pub.send(FRAME)
        signal.pause()


def has_a_request(_: Case, say: Say) -> None:
    with rm.Server("t") as server:
        say(0)
        (request,) = server.take()
        say(1)
        when_told()
        request.reply(MESSAGE)
        signal.pause()


def has_not_rung_for_a_reply(case: Case, say: Say) -> None:
    arm(NOT_RUNG, case, 2)  # it says first that it has the request
    has_a_request(case, say)


def has_not_rung_for_a_request(case: Case, say: Say) -> None:
    arm(NOT_RUNG, case)
    with rm.Client("t") as client:
        say(0)
        when_told()
        client.submit(MESSAGE)
        signal.pause()


def has_the_turn_to_request(_: Case, say: Say) -> None:
    with rm.Client("t") as client:
        with client.reserve(8):
            say(0)
            when_told()
        signal.pause()


def takes_no_request(_: Case, say: Say) -> None:
    with rm.Server("t", capacity=4096) as server:
        say(0)
        when_told()
        server.serve(bytes)


def joins(case: Case, say: Say) -> None:
    """Killed, it has the roster locked, and another one wants to join; stopped, it has joined, and not said so."""
    os.environ.update(stop_at(ROSTER if case.cause == "killed" else NOT_ANNOUNCED))
    say(0)
    when_told()
    joined = join(case)
    signal.pause()
    joined.close()


def join(case: Case) -> rm.Subscriber[bytes] | rm.FrameSubscriber | rm.Server[bytes, bytes]:
    if case.way == "Client.wait_for_servers":
        return rm.Server("t")
    joined = rm.FrameSubscriber("t") if case.way.startswith("FramePublisher") else rm.Subscriber("t")
    joined.try_recv()
    return joined


def joins_too(case: Case, say: Say) -> None:
    say(0)
    joined = join(case)
    signal.pause()
    joined.close()


def serves(_: Case, say: Say) -> None:
    with rm.Server("t") as server:
        say(0)
        server.serve(bytes)


def arm(point: str, case: Case, nth: int = 1) -> None:
    os.environ.update((die_at if case.cause == "killed" else stop_at)(point, nth))


OBSTACLES: dict[str, Callable[[Case, Say], None]] = {
    "turn": has_the_turn,
    "hold": holds,
    "roster": has_locked_the_roster,
    "message": has_not_rung,
    "buffers": has_buffers,
    "frame": has_not_rung_for_a_frame,
    "server": has_a_request,
    "reply": has_not_rung_for_a_reply,
    "request": has_not_rung_for_a_request,
    "request turn": has_the_turn_to_request,
    "request room": takes_no_request,
    "reader": joins,
}
STOPS_ITSELF = ("message", "frame", "reply", "request")
"""Where it dies or stops in the middle of what it does when it is told."""
