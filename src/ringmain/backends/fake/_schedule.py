"""Threads that take turns, on a clock of their own.

Owns two invariants. One thread of the program runs at a time, and passes the turn on only inside a call to ringmain, so
the seed decides the order of all threads. And time passes only when no thread can run: then the clock jumps to the next
deadline or event. A wait of an hour takes no real time; a wait that can never end is an error that says which thread
waits for what.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from ringmain.errors import RingmainError

START_NS = 1_700_000_000_000_000_000
"""The time when a world begins. It is fixed, so that two runs show the same times."""


class Deadlock(RingmainError, RuntimeError):
    """Every thread of the program waits, and no event is due."""


class Stuck(RingmainError, RuntimeError):
    """A thread keeps the turn because it waits for something outside ringmain, which the fake cannot see."""


@dataclass(eq=False)
class Task:
    """A thread of the program. Without `ready` it can run as soon as it has the turn."""

    thread: threading.Thread
    ready: Callable[[], bool] | None = None
    deadline_ns: int | None = None
    waits_for: str = ""
    error: BaseException | None = None

    def can_run(self, now_ns: int) -> bool:
        if self.ready is None or self.error is not None:
            return True
        return self.ready() or (self.deadline_ns is not None and self.deadline_ns <= now_ns)


@dataclass(order=True)
class Event:
    at_ns: int
    number: int
    action: Callable[[], object] = field(compare=False)


class Schedule:
    """The turn, the clock and the events to come."""

    def __init__(self, seed: int, patience_s: float = 60.0) -> None:
        self.seed = seed
        self.now_ns = START_NS
        self._random = random.Random(seed)
        self._patience_s = patience_s
        self._turn = threading.Condition(threading.RLock())
        self._tasks: dict[threading.Thread, Task] = {}
        self._current: Task | None = None
        self._events: list[Event] = []
        self._numbers = itertools.count()
        self._switches = 0
        self._in_event = False
        self._ended = False

    # ------------------------------------------------------------------------------------------ threads

    def adopt(self, thread: threading.Thread) -> Task:
        """From now on this thread takes turns with the others."""
        with self._turn:
            if thread not in self._tasks:
                self._tasks[thread] = Task(thread)
                if self._current is None:
                    self._current = self._tasks[thread]
            return self._tasks[thread]

    def knows(self, thread: threading.Thread) -> bool:
        return thread in self._tasks

    def enter(self) -> Task:
        """At the beginning of every call: wait for the turn."""
        task = self.adopt(threading.current_thread())
        with self._turn:
            self._wait_for_turn(task)
        return task

    def leave(self) -> None:
        """The thread ends: another gets the turn."""
        with self._turn:
            task = self._tasks.pop(threading.current_thread(), None)
            if task is not None and self._current is task:
                self._pass_on()

    def end(self) -> list[threading.Thread]:
        """The world ends: waiting threads get an error. Returns the threads that still run."""
        with self._turn:
            self._ended = True
            mine = threading.current_thread()
            others = [task for thread, task in self._tasks.items() if thread is not mine]
            for task in others:
                task.error = RingmainError("the fake world has ended while this thread waited")
            self._tasks.clear()
            self._current = None
            self._turn.notify_all()
            return [task.thread for task in others]

    @property
    def monotonic_ns(self) -> int:
        """Since the world began: a float of seconds resolves nanoseconds in small numbers, but not in today's time."""
        return self.now_ns - START_NS

    # ------------------------------------------------------------------------------------------ waiting

    def pause(self) -> None:
        """A point where another thread may run first."""
        task = self.enter()
        with self._turn:
            if len(self._tasks) > 1 and not self._in_event and not self._ended:
                self._pass_on()
                self._wait_for_turn(task)

    def wait(self, ready: Callable[[], bool], timeout_ns: int | None, waits_for: str) -> bool:
        """Wait until `ready` says yes; False when the time is up, by the clock of this world."""
        task = self.enter()
        with self._turn:
            if ready() or timeout_ns == 0 or self._in_event:  # an event cannot wait: others wait for it
                return ready()
            task.ready, task.waits_for = ready, waits_for
            task.deadline_ns = None if timeout_ns is None else self.now_ns + timeout_ns
            try:
                self._pass_on()
                self._wait_for_turn(task)
            finally:
                task.ready = task.deadline_ns = None
        return ready()

    def at(self, delay_ns: int, action: Callable[[], object]) -> None:
        """Call `action` after this time."""
        with self._turn:
            heapq.heappush(self._events, Event(self.now_ns + delay_ns, next(self._numbers), action))

    # ------------------------------------------------------------------------------ inside, with the lock

    def _wait_for_turn(self, task: Task) -> None:
        seen = self._switches
        while self._current is not task and not self._ended:
            if self._turn.wait(self._patience_s) or self._switches != seen:
                seen = self._switches
                continue
            keeper = self._current.thread.name if self._current else "none"
            raise Stuck(
                f"thread {keeper!r} has had the turn for {self._patience_s:g} s without calling ringmain: it waits for "
                "something the fake cannot see (a lock, a queue, a socket). Let threads wait on topics, "
                "Thread.join or time.sleep only"
            )
        if task.error is not None:
            error, task.error = task.error, None
            raise error

    def _pass_on(self) -> None:
        """Choose the next thread; let time pass if none can run."""
        while self._tasks:
            able = [task for task in self._tasks.values() if task.can_run(self.now_ns)]
            if able:
                self._give(self._random.choice(able))
                return
            if not self._let_time_pass():
                self._give(self._break_deadlock())
                return
        self._current = None

    def _give(self, task: Task) -> None:
        self._current = task
        self._switches += 1
        self._turn.notify_all()

    def _let_time_pass(self) -> bool:
        moments = [task.deadline_ns for task in self._tasks.values() if task.deadline_ns is not None]
        if self._events:
            moments.append(self._events[0].at_ns)
        if not moments:
            return False
        self.now_ns = max(self.now_ns, min(moments))
        while self._events and self._events[0].at_ns <= self.now_ns:
            event = heapq.heappop(self._events)
            self._in_event = True
            # The action runs in the thread that has the turn, but does not belong to it.
            keeper, self._current = self._current, self._tasks.get(threading.current_thread())
            try:
                event.action()
            finally:
                self._in_event = False
                self._current = keeper
        return True

    def _break_deadlock(self) -> Task:
        waiting = list(self._tasks.values())
        lines = "".join(f"\n  - thread {task.thread.name!r} waits for {task.waits_for}" for task in waiting)
        victim = next((task for task in waiting if task.thread is threading.main_thread()), waiting[0])
        victim.error = Deadlock(
            f"every thread waits without a limit, and no event is due (seed {self.seed}):{lines}\n"
            "Give a wait a timeout, or publish what it waits for"
        )
        return victim
