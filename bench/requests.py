"""Request and reply between two processes, and a server that takes the requests of 64 clients in batches.

ringmain's `Client.call`, beside two messages of its own (the same contracts, no service), multiprocessing.Pipe, pyzmq's
REQ/REP and multiprocessing.managers. All answer with the request's own bytes, which the client compares.

The batching server: each client waits for its reply before it sends again. With multiprocessing.Pipe the server waits
on all 64 connections, takes what is there, and replies to each.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.managers import BaseManager
from typing import Any

import ringmain as rm
from bench import pair
from bench.harness import Cell
from bench.versus import WAYS, in_directory

MESSAGE = pair.pool(32)[0]
CLIENTS = 64
LAST = b"last"
Call = Callable[[bytes], Any]


def spin_s(spinning: bool | None) -> float | None:
    """As for other round trips: long spinning on a busy machine would keep the other process from running."""
    return None if spinning is None else 0.01 if spinning else 0.0


class Way:
    """One way to ask another process: `serve` until the last request, `calling` in the client."""

    name = ""
    can_spin = False

    def __init__(self, directory: str, spinning: bool | None) -> None:
        self.directory, self.spin = directory, spin_s(spinning)

    def serve(self, ready: pair.Ready) -> None:
        raise NotImplementedError

    def calling(self) -> Any:
        """A block with a function that sends a request and returns the reply."""
        raise NotImplementedError


class Service(Way):
    name = "ringmain"
    can_spin = True

    def serve(self, ready: pair.Ready) -> None:
        with rm.Server("echo", spin=self.spin) as server:
            ready()
            for request in server:
                data = request.data
                request.reply(data)
                if data == LAST:
                    break
            ready()

    @contextmanager
    def calling(self) -> Iterator[Call]:
        with rm.Client("echo", spin=self.spin) as client:
            yield client.call


class TwoTopics(Way):
    """What a service is made of, and nothing else."""

    name = "ringmain, two topics"
    can_spin = True

    def serve(self, ready: pair.Ready) -> None:
        with (
            rm.Publisher("there", contract="work"),
            rm.Subscriber("there", spin=self.spin) as there,
            rm.Publisher("back", contract="reliable", spin=self.spin) as back,
        ):
            ready()
            back.wait_for_readers(1, pair.PATIENCE_S)
            for data in there:
                back.send(data)
                if data == LAST:
                    break
            ready()

    @contextmanager
    def calling(self) -> Iterator[Call]:
        with (
            rm.Publisher("there", contract="work", spin=self.spin) as there,
            rm.Subscriber("back", spin=self.spin) as back,
        ):
            send, recv = there.send, back.recv

            def call(data: bytes) -> Any:
                send(data)
                return recv()

            yield call


class Pipe(Way):
    name = "multiprocessing.Pipe"

    def __init__(self, directory: str, spinning: bool | None) -> None:
        super().__init__(directory, spinning)
        self.ours, self.theirs = multiprocessing.get_context("fork").Pipe()

    def serve(self, ready: pair.Ready) -> None:
        ready()
        data = b""
        while data != LAST:
            data = self.theirs.recv_bytes()
            self.theirs.send_bytes(data)
        ready()

    @contextmanager
    def calling(self) -> Iterator[Call]:
        def call(data: bytes) -> bytes:
            self.ours.send_bytes(data)
            return self.ours.recv_bytes()

        yield call


class ReqRep(Way):
    name = "pyzmq REQ/REP"

    def serve(self, ready: pair.Ready) -> None:
        import zmq

        with zmq.Context() as context, context.socket(zmq.REP) as socket:
            socket.bind(f"ipc://{self.directory}/rep")
            ready()
            data = b""
            while data != LAST:
                data = socket.recv()
                socket.send(data)
            ready()

    @contextmanager
    def calling(self) -> Iterator[Call]:
        import zmq

        with zmq.Context() as context, context.socket(zmq.REQ) as socket:
            socket.connect(f"ipc://{self.directory}/rep")

            def call(data: bytes) -> bytes:
                socket.send(data)
                return socket.recv()

            yield call


class Echo:
    """The object that a manager's server has."""

    def echo(self, data: bytes) -> bytes:
        return data


class EchoManager(BaseManager):
    pass


EchoManager.register("Echo", Echo)


class Manager(Way):
    name = "multiprocessing.managers"

    def serve(self, ready: pair.Ready) -> None:
        """The manager starts its own process, in the client's."""
        ready()
        ready()

    @contextmanager
    def calling(self) -> Iterator[Call]:
        # A process that the bench starts is daemonic, and may not start another: unless it says that it is not.
        multiprocessing.process.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
        with EchoManager(ctx=multiprocessing.get_context("fork")) as manager:
            yield manager.Echo().echo  # type: ignore[attr-defined]


WAYS_TO_ASK: tuple[type[Way], ...] = (Service, TwoTopics, Pipe, ReqRep, Manager)


def round_trip(kind: type[Way], spinning: bool | None) -> Callable[[float], float]:
    """The median of round trips, in µs."""

    def sample(budget_s: float) -> float:
        count = max(400, int((60_000 if spinning or kind.can_spin else 8_000) * budget_s))

        def run(directory: str) -> float:
            way = kind(directory, spinning)

            def client(ready: pair.Ready) -> float:
                ready()
                with way.calling() as call:
                    taken = []
                    clock = time.perf_counter_ns
                    for _ in range(count):
                        start = clock()
                        reply = call(MESSAGE)
                        taken.append(clock() - start)
                        if reply != MESSAGE:
                            raise pair.Wrong("a reply is not what was sent")
                    call(LAST)
                    ready()
                return sorted(taken)[count // 2] / 1e3

            return float(pair.run_all([way.serve, client])[1])

        return in_directory(run)

    return sample


def batching(kind: type[Way]) -> Callable[[float], float]:
    """Requests a second of 64 clients that a server takes in batches."""

    def sample(budget_s: float) -> float:
        each = max(100, int(800 * budget_s))
        total = CLIENTS * (each + 1)  # the first, before the clock runs, opens what is kept open

        def run(directory: str) -> float:
            ends = [multiprocessing.get_context("fork").Pipe() for _ in range(CLIENTS)]

            def serve(ready: pair.Ready) -> None:
                done = 0
                with rm.Server("echo") as server:
                    ready()
                    if kind is Service:
                        for batch in server.batches(max_requests=CLIENTS):
                            for request in batch:
                                request.reply(request.data)
                            done += len(batch)
                            if done == CLIENTS:
                                ready()
                            if done == total:
                                break
                    while done < total:
                        batch_of_pipes: Any = wait([theirs for _, theirs in ends])
                        for end, data in [(end, end.recv_bytes()) for end in batch_of_pipes]:
                            end.send_bytes(data)
                        done += len(batch_of_pipes)
                        if done == CLIENTS:
                            ready()
                    ready()

            def client(number: int) -> pair.Job:
                def job(ready: pair.Ready) -> tuple[float, float]:
                    ours = ends[number][0]
                    with rm.Client("echo") as service:

                        def over_pipe(data: bytes) -> bytes:
                            ours.send_bytes(data)
                            return ours.recv_bytes()

                        call: Call = service.call if kind is Service else over_pipe
                        ready()
                        call(MESSAGE)
                        ready()
                        start = time.perf_counter()
                        for _ in range(each):
                            if call(MESSAGE) != MESSAGE:
                                raise pair.Wrong("a reply is not what was sent")
                        end = time.perf_counter()
                        ready()
                    return start, end

                return job

            times = pair.run_all([serve, *(client(number) for number in range(CLIENTS))])[1:]
            return CLIENTS * each / (max(end for _, end in times) - min(start for start, _ in times))

        return in_directory(run)

    return sample


def request_cells() -> list[Cell]:
    made = []
    for way, spinning in WAYS.items():
        for kind in WAYS_TO_ASK:
            if spinning is not True or kind.can_spin:
                made.append(Cell(f"request p50, {way} | {kind.name}", "µs", round_trip(kind, spinning), True))
    for kind in (Service, Pipe):
        name = f"{CLIENTS} clients of a batching server | {kind.name}"
        made.append(Cell(name, "requests/s", batching(kind), True, False, processes=1 + CLIENTS))
    return made
