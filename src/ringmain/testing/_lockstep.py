"""`Lockstep`: real processes, each paused when it waits for a message, until the test lets it continue.

Owns this invariant: a paused subscriber looks at its topic only after `go()`. So the test decides what is there when it
looks, and a program of several processes takes the same steps every time.

How: an environment variable, which children inherit, names the topics. A subscriber of one of them is made with
`PausingMixin`, whose waiting calls first connect to the test's socket, say what they are about to do, and continue when
the test answers. One connection is one step: if either side dies, the kernel tells the other. Without the variable, no
subscriber does any of this.
"""

from __future__ import annotations

import os
import selectors
import shutil
import socket
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from ringmain import _names
from ringmain._publisher import Publisher
from ringmain.backends.shm import LOCKSTEP_VARIABLE
from ringmain.backends.shm._lockstep_client import LockstepPlan, Step
from ringmain.errors import RingmainError, Timeout

PATIENCE_S = 30.0


class NotPaused(RingmainError, RuntimeError):
    """The step was continued already, or its process has ended."""


@dataclass(eq=False)
class Paused:
    """A call that waits for a message, and is paused before it looks."""

    step: Step
    _connection: socket.socket = field(repr=False)
    _lockstep: Lockstep = field(repr=False)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topic it waits for, or those of a `wait`."""
        return self.step.topics

    @property
    def call(self) -> str:
        """Which method it is in: "recv", "arecv", "wait", ..."""
        return self.step.call

    @property
    def name(self) -> str:
        """The subscriber's name."""
        return self.step.name

    @property
    def pid(self) -> int:
        return self.step.pid

    def go(self) -> None:
        """Let it look at its topic now, and wait for as long as its own timeout says."""
        self._answer(b"go")

    def expire(self) -> None:
        """Let it look at its topic now, and time out at once if nothing is there."""
        self._answer(b"expire")

    def _answer(self, word: Literal[b"go", b"expire"]) -> None:
        self._lockstep._continue(self)
        try:
            self._connection.send(word)
        except OSError as error:
            raise NotPaused(f"{self.name!r} (pid {self.pid}) ended while it was paused at {self.call}") from error
        finally:
            self._connection.close()


class Lockstep:
    """Pauses the subscribers of these topics, in this process and in those started while it is open.

    topics: whose subscribers pause.   polls: pause calls that would not wait (`try_recv`, `timeout=0`) as well.
    """

    def __init__(self, topics: Iterable[str], *, polls: bool = False) -> None:
        if isinstance(topics, str):
            raise TypeError(f"Lockstep takes the names of several topics, not the single str {topics!r}")
        self.topics = tuple(_names.check_topic(topic) for topic in topics)
        self.paused: list[Paused] = []
        """The calls that are paused, as of the last `wait_for`."""
        self.journal: list[Step] = []
        """Every step that was continued, in order: two runs of a test can be compared by it."""
        self._directory = tempfile.mkdtemp(prefix="ringmain-lockstep-")
        path = os.path.join(self._directory, "socket")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(path)
        self._listener.listen(128)
        self._plan = msgspec.json.encode(LockstepPlan(path, self.topics, polls)).decode()
        self._before: str | None = None
        self._is_open = False

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to be paused; children inherit it while the block is open."""
        return {LOCKSTEP_VARIABLE: self._plan}

    def __enter__(self) -> Self:
        self._before = os.environ.get(LOCKSTEP_VARIABLE)
        os.environ[LOCKSTEP_VARIABLE] = self._plan
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let all paused calls continue, and pause no more."""
        if self._is_open:
            self._is_open = False
            if self._before is None:
                os.environ.pop(LOCKSTEP_VARIABLE, None)
            else:
                os.environ[LOCKSTEP_VARIABLE] = self._before
        for paused in self.paused:
            paused._connection.close()
        self.paused.clear()
        self._listener.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    # ------------------------------------------------------------------------------------------- waiting

    def wait_for(
        self, topic: str | None = None, *, name: str | None = None, pid: int | None = None, timeout: float = PATIENCE_S
    ) -> Paused:
        """Wait for a paused call: on this topic, by this name, in this process. `Timeout` if there is none in time."""
        return self.wait_for_all(1, topic, name=name, pid=pid, timeout=timeout)[0]

    def wait_for_all(
        self,
        count: int,
        topic: str | None = None,
        *,
        name: str | None = None,
        pid: int | None = None,
        timeout: float = PATIENCE_S,
    ) -> list[Paused]:
        """Wait until so many calls are paused. They are sorted by name, so the order does not depend on their speed."""
        deadline = time.monotonic() + timeout
        while True:
            found = [
                one
                for one in self.paused
                if (topic is None or topic in one.topics) and name in (None, one.name) and pid in (None, one.pid)
            ]
            if len(found) >= count:
                return sorted(found, key=lambda one: (one.name, one.topics, one.call, one.pid))[:count]
            left = deadline - time.monotonic()
            if left <= 0:
                raise Timeout(self._describe(count, topic, timeout))
            self._look(left)

    def _describe(self, count: int, topic: str | None, timeout: float) -> str:
        where = f"on topic '{topic}'" if topic else f"on any of {', '.join(self.topics)}"
        lines = "".join(f"\n  - {p.name!r} (pid {p.pid}) at {p.call} of {', '.join(p.topics)}" for p in self.paused)
        return f"{count} paused calls were expected {where} within {timeout:g} s; paused are{lines or ' none'}"

    def _look(self, timeout: float) -> None:
        """Accept new calls, and drop those whose process has ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            for paused in self.paused:
                selector.register(paused._connection, selectors.EVENT_READ, paused)
            for key, _ in selector.select(timeout):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self.paused.remove(key.data)  # a paused call sends nothing more, so its process has ended
                    key.data._connection.close()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(PATIENCE_S)
        request = connection.recv(65536)
        if not request:
            connection.close()
            return
        self.paused.append(Paused(msgspec.json.decode(request, type=Step), connection, self))

    def _continue(self, paused: Paused) -> None:
        if paused not in self.paused:
            raise NotPaused(f"{paused.name!r} (pid {paused.pid}) is not paused at {paused.call} any more")
        self.paused.remove(paused)
        self.journal.append(paused.step)

    # ------------------------------------------------------------------------------------------- feeding

    def feed(
        self, publisher: Publisher, data: Any, kind: str = "", *, readers: int = 1, timeout: float = PATIENCE_S
    ) -> int:
        """One message, one step: wait until the topic's readers are paused, publish, let them continue. The next
        `feed` waits until they pause again, so they have processed the message by then."""
        paused = self.wait_for_all(readers, publisher.topic, timeout=timeout)
        number = publisher.send(data, kind, timeout)
        for one in paused:
            one.go()
        return number
