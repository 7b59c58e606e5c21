"""A thousand subscribers that wait and get nothing: the processor time they take, in milliseconds a second.

All in one process, or ten in each of a hundred. Fifty share a topic, whose publisher is another process and sends
nothing. ringmain's wait in one call for all of a process's; a library without such a call waits in a thread for each.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import ringmain as rm
from bench import pair
from bench.harness import Cell
from bench.versus import in_directory

SUBSCRIBERS = 1000
ON_A_TOPIC = 50
MANY = 100
SETTLE_S, WAIT_S = 0.5, 2.0
SIZE = 32

Wait = Callable[[float], object]
"""Waits with all subscribers of a process, for so many seconds."""


class Ring:
    name = "ringmain"

    @contextmanager
    def publishers(self, directory: str) -> Iterator[None]:
        with ExitStack() as stack:
            for number in range(SUBSCRIBERS // ON_A_TOPIC):
                stack.enter_context(rm.Publisher(f"idle/{number}", contract="bus", capacity="64KiB"))
            yield

    @contextmanager
    def subscribers(self, directory: str, first: int, count: int) -> Iterator[Wait]:
        with ExitStack() as stack:
            numbers = range(first, first + count)
            subs = [stack.enter_context(rm.Subscriber(f"idle/{number // ON_A_TOPIC}")) for number in numbers]
            yield lambda seconds: rm.wait(subs, timeout=seconds)


class Kick:
    name = "kickmsg"

    def _topic(self, directory: str, number: int) -> tuple[Any, str, Any]:
        import kickmsg

        config = kickmsg.Config()
        config.max_payload_size, config.max_subscribers, config.pool_size = SIZE, ON_A_TOPIC, 64 * ON_A_TOPIC + 256
        name = directory.rpartition("/")[2]
        return kickmsg.Node(f"{name}-{number}", name), f"idle{number}", config

    @contextmanager
    def publishers(self, directory: str) -> Iterator[None]:
        import kickmsg

        topics = [self._topic(directory, number) for number in range(SUBSCRIBERS // ON_A_TOPIC)]
        open_ones = [node.advertise_or_join(topic, config) for node, topic, config in topics]
        yield
        del open_ones
        for node, topic, _ in topics:
            node.unlink_topic(topic)
        kickmsg.unlink_shm(f"/{topics[0][0].namespace}_registry")

    @contextmanager
    def subscribers(self, directory: str, first: int, count: int) -> Iterator[Wait]:
        topics = [self._topic(directory, number // ON_A_TOPIC) for number in range(first, first + count)]
        subs = [node.subscribe_or_create(topic, config) for node, topic, config in topics]

        def wait(seconds: float) -> None:
            threads = [threading.Thread(target=sub.receive, args=(timedelta(seconds=seconds),)) for sub in subs]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        yield wait


def idle_ms(library: Any, processes: int) -> Callable[[float], float]:
    each = SUBSCRIBERS // processes

    def run(directory: str) -> float:
        def publishing(ready: pair.Ready) -> float:
            with library.publishers(directory):
                for _ in range(3):
                    ready()
            return 0.0

        def waiting(first: int) -> pair.Job:
            def job(ready: pair.Ready) -> float:
                files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
                ready()
                with library.subscribers(directory, first, each) as wait:
                    ready()
                    waiter = threading.Thread(target=wait, args=(SETTLE_S + WAIT_S + SETTLE_S,))
                    waiter.start()
                    time.sleep(SETTLE_S)  # what it does only in the beginning
                    before, began = time.process_time(), time.perf_counter()
                    time.sleep(WAIT_S)
                    used = (time.process_time() - before) / (time.perf_counter() - began)
                    waiter.join()
                    ready()
                return used * 1e3

            return job

        jobs = [waiting(number * each) for number in range(processes)]
        return float(sum(pair.run_all([publishing, *jobs])))

    return lambda budget_s: in_directory(run)


def idle_cells() -> list[Cell]:
    made = []
    for where, processes in (("one process", 1), (f"{MANY} processes", MANY)):
        for library in (Ring(), Kick()):
            if find_spec(library.name):
                name = f"CPU of 1,000 idle subscribers, {where} | {library.name}"
                made.append(Cell(name, "ms/s", idle_ms(library, processes)))
    return made
