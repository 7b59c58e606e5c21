"""`Lockstep`: real processes, each held when it waits for a message, until the test lets it go.

Owns this invariant: a held subscriber looks at its topic only after `go()`. So the test decides what is there when it
looks, and a program of several processes takes the same steps every time.

How: the topics to hold are named in the environment, which children inherit. A subscriber of one of them is made with
`HeldMixin`, whose waiting calls first connect to the test's socket, say what they are about to do, and go on when they
are told. One connection is one step: if either side dies, the kernel tells the other. All else, the hot path first of
all, is untouched; without the variable nobody pays.
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
from ringmain.backends.shm._lockstep_client import VARIABLE, Orders, Step
from ringmain.errors import RingmainError, Timeout

PATIENCE_S = 30.0


class NotHeld(RingmainError, RuntimeError):
    """The step was let go already, or its process has ended."""


@dataclass(eq=False)
class Held:
    """Somebody who waits for a message, and is held there."""

    step: Step
    _connection: socket.socket = field(repr=False)
    _lockstep: Lockstep = field(repr=False)

    @property
    def topics(self) -> tuple[str, ...]:
        """What it waits for: one topic, or those of a `wait`."""
        return self.step.topics

    @property
    def call(self) -> str:
        """What it is about to do: "recv", "arecv", "wait", ..."""
        return self.step.call

    @property
    def name(self) -> str:
        """What the subscriber is called."""
        return self.step.name

    @property
    def pid(self) -> int:
        return self.step.pid

    def go(self) -> None:
        """Let it look at its topic now, and wait there as long as it meant to."""
        self._answer(b"go")

    def expire(self) -> None:
        """Let it look at its topic now, and time out at once if nothing is there."""
        self._answer(b"expire")

    def _answer(self, word: Literal[b"go", b"expire"]) -> None:
        self._lockstep._let_go(self)
        try:
            self._connection.send(word)
        except OSError as error:
            raise NotHeld(f"{self.name!r} (pid {self.pid}) has ended while it was held at {self.call}") from error
        finally:
            self._connection.close()


class Lockstep:
    """Holds the subscribers of these topics, in this process and in those started while it is open.

    topics: whose subscribers are held.   polls: hold calls that would not wait (`try_recv`, `timeout=0`) as well.
    """

    def __init__(self, topics: Iterable[str], *, polls: bool = False) -> None:
        if isinstance(topics, str):
            raise TypeError(f"Lockstep takes the names of several topics, not the single str {topics!r}")
        self.topics = tuple(_names.check_topic(topic) for topic in topics)
        self.held: list[Held] = []
        """Who is held now, as far as was looked."""
        self.journal: list[Step] = []
        """Every step that was let go, in order: two runs of a test can be compared by it."""
        self._directory = tempfile.mkdtemp(prefix="ringmain-lockstep-")
        path = os.path.join(self._directory, "socket")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(path)
        self._listener.listen(128)
        self._orders = msgspec.json.encode(Orders(path, self.topics, polls)).decode()
        self._before: str | None = None
        self._is_open = False

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to be held; children inherit it while the block is open."""
        return {VARIABLE: self._orders}

    def __enter__(self) -> Self:
        self._before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = self._orders
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let everybody go, and hold nobody from now on."""
        if self._is_open:
            self._is_open = False
            if self._before is None:
                os.environ.pop(VARIABLE, None)
            else:
                os.environ[VARIABLE] = self._before
        for held in self.held:
            held._connection.close()
        self.held.clear()
        self._listener.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    # ------------------------------------------------------------------------------------------- waiting

    def wait_for(
        self, topic: str | None = None, *, name: str | None = None, pid: int | None = None, timeout: float = PATIENCE_S
    ) -> Held:
        """Wait until somebody is held: at this topic, by this name, in this process. `Timeout` if nobody comes."""
        return self.wait_for_all(1, topic, name=name, pid=pid, timeout=timeout)[0]

    def wait_for_all(
        self,
        count: int,
        topic: str | None = None,
        *,
        name: str | None = None,
        pid: int | None = None,
        timeout: float = PATIENCE_S,
    ) -> list[Held]:
        """Wait until so many are held; by name, so that the order does not depend on who was faster."""
        deadline = time.monotonic() + timeout
        while True:
            found = [
                held
                for held in self.held
                if (topic is None or topic in held.topics) and name in (None, held.name) and pid in (None, held.pid)
            ]
            if len(found) >= count:
                return sorted(found, key=lambda held: (held.name, held.topics, held.call, held.pid))[:count]
            left = deadline - time.monotonic()
            if left <= 0:
                raise Timeout(self._who_came(count, topic, timeout))
            self._look(left)

    def _who_came(self, count: int, topic: str | None, timeout: float) -> str:
        whom = f"at topic '{topic}'" if topic else f"at any of {', '.join(self.topics)}"
        held = "".join(f"\n  - {h.name!r} (pid {h.pid}) at {h.call} of {', '.join(h.topics)}" for h in self.held)
        return f"{count} were to be held {whom} within {timeout:g} s; held are{held or ' none'}"

    def _look(self, timeout: float) -> None:
        """See who has come, and who has ended while it was held."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            for held in self.held:
                selector.register(held._connection, selectors.EVENT_READ, held)
            for key, _ in selector.select(timeout):
                if key.fileobj is self._listener:
                    self._welcome()
                else:
                    self.held.remove(key.data)  # held ones say nothing more: it has ended
                    key.data._connection.close()

    def _welcome(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(PATIENCE_S)
        request = connection.recv(65536)
        if not request:
            connection.close()
            return
        self.held.append(Held(msgspec.json.decode(request, type=Step), connection, self))

    def _let_go(self, held: Held) -> None:
        if held not in self.held:
            raise NotHeld(f"{held.name!r} (pid {held.pid}) is not held at {held.call} any more")
        self.held.remove(held)
        self.journal.append(held.step)

    # ------------------------------------------------------------------------------------------- feeding

    def feed(
        self, publisher: Publisher, data: Any, kind: str = "", *, readers: int = 1, timeout: float = PATIENCE_S
    ) -> int:
        """One message, one step: wait until the topic's readers are held, publish, let them go. The next `feed` waits
        until they are back, so that they have done with it what they do."""
        held = self.wait_for_all(readers, publisher.topic, timeout=timeout)
        number = publisher.send(data, kind, timeout)
        for one in held:
            one.go()
        return number
