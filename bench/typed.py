"""Objects with six fields, as a wheel encoder would send: five floats and a time. Sent and received as objects, by each
as its documentation advises, within one process and from one process to another.

pyzmq and os.pipe carry bytes: they are given msgspec, which is the fastest encoder here and what ringmain uses itself.
multiprocessing.Queue pickles, iceoryx2 has ctypes structures, horus-robotics its own messages.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import repeat
from typing import Any

import msgspec

import ringmain as rm
from bench import pair
from bench.harness import Cell, burst_ns
from bench.peers import standard
from bench.versus import in_directory

BURST = 1000


class Odometry(msgspec.Struct):
    x: float
    y: float
    theta: float
    linear_velocity: float
    angular_velocity: float
    timestamp_ns: int


class COdometry(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_double) for name in ("x", "y", "theta", "linear_velocity", "angular_velocity")),
        ("timestamp_ns", ctypes.c_uint64),
    ]


FIELDS = Odometry.__struct_fields__
Values = tuple[float, float, float, float, float, int]
POOL: list[Values] = [(i + 0.5, i + 0.25, 0.125, -float(i), 2.0 * i, 10**18 + i) for i in range(64)]


def fields_of(one: Any) -> tuple[Any, ...]:
    return tuple(getattr(one, name) for name in FIELDS)


class Way:
    """Both ends of one way; `make` turns values into what is sent."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def make(self, values: Values) -> Any:
        return Odometry(*values)

    def sender(self) -> Any:
        raise NotImplementedError

    def receiver(self) -> Any:
        raise NotImplementedError


class Ring(Way):
    @contextmanager
    def sender(self) -> Iterator[pair.Send]:
        with rm.Publisher("typed", contract="pipe", type=Odometry) as pub:
            yield pub.send

    @contextmanager
    def receiver(self) -> Iterator[pair.Receive]:
        with rm.Subscriber("typed", type=Odometry) as sub:
            yield sub.recv


class Queue(Way):
    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._queue = standard.Queue(directory, 1024)

    def sender(self) -> Any:
        return self._queue.sender(0)

    def receiver(self) -> Any:
        return self._queue.receiver(0)


class Encoded(Way):
    """Libraries that carry bytes, with msgspec on both sides."""

    def __init__(self, directory: str, peer: Any) -> None:
        super().__init__(directory)
        self._peer = peer

    @contextmanager
    def sender(self) -> Iterator[pair.Send]:
        encode = msgspec.msgpack.Encoder().encode
        with self._peer.sender(0) as send:
            yield lambda one: send(encode(one))

    @contextmanager
    def receiver(self) -> Iterator[pair.Receive]:
        decode = msgspec.msgpack.Decoder(Odometry).decode
        with self._peer.receiver(0) as receive:
            yield lambda: decode(receive())


def zmq_way(directory: str) -> Way:
    from bench.peers.zeromq import PushPull

    return Encoded(directory, PushPull(directory, 64))


def pipe_way(directory: str) -> Way:
    size = len(msgspec.msgpack.encode(Odometry(*POOL[0])))  # all of the pool encode to as many bytes
    return Encoded(directory, standard.OsPipe(directory, size))


class Iceoryx(Way):
    def make(self, values: Values) -> Any:
        return COdometry(*values)

    def _service(self) -> tuple[Any, Any]:
        import iceoryx2 as iox2

        iox2.set_log_level(iox2.LogLevel.Error)
        node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
        builder = node.service_builder(iox2.ServiceName.new(f"{self.directory}/typed")).publish_subscribe(COdometry)
        return node, builder.enable_safe_overflow(False).subscriber_max_buffer_size(64).open_or_create()

    @contextmanager
    def sender(self) -> Iterator[pair.Send]:
        import iceoryx2 as iox2

        node, service = self._service()
        strategy = iox2.BackpressureStrategy.RetryUntilDelivered
        publisher = service.publisher_builder().backpressure_strategy(strategy).create()
        loan = publisher.loan_uninit

        def send(one: Any) -> None:
            while not loan().write_payload(one).send():  # the queue was full
                pass

        yield send
        del node

    @contextmanager
    def receiver(self) -> Iterator[pair.Receive]:
        node, service = self._service()
        subscriber = service.subscriber_builder().create()
        take = subscriber.receive
        kept: list[Any] = []

        def receive() -> Any:
            deadline = time.monotonic() + pair.PATIENCE_S
            while (sample := take()) is None:
                if time.monotonic() > deadline:
                    raise TimeoutError("nothing came")
            kept[:] = [sample]
            return sample.payload().contents

        yield receive
        kept.clear()
        del node


class Horus(Way):
    """Its sender is told to wait for room; its receiver looks, having nothing to wait with."""

    def make(self, values: Values) -> Any:
        import horus

        x, y, theta, linear, angular, ns = values
        return horus.Odometry(x=x, y=y, theta=theta, linear_velocity=linear, angular_velocity=angular, timestamp_ns=ns)

    @contextmanager
    def sender(self) -> Iterator[pair.Send]:
        import horus

        topic = horus.Topic(horus.Odometry)
        send_blocking = topic.send_blocking
        yield lambda one: send_blocking(one, pair.PATIENCE_S)

    @contextmanager
    def receiver(self) -> Iterator[pair.Receive]:
        import horus

        topic = horus.Topic(horus.Odometry)
        take = topic.try_recv
        while take() is not None:  # its topics outlive their processes: what an earlier run left
            pass

        def receive() -> Any:
            deadline = 0.0
            while (one := take()) is None:
                now = time.monotonic()
                deadline = deadline or now + pair.PATIENCE_S
                if now > deadline:
                    raise TimeoutError("nothing came")
            return one

        yield receive


WAYS: dict[str, tuple[str, Callable[[str], Way]]] = {
    "ringmain": ("ringmain", Ring),
    "multiprocessing.Queue": ("multiprocessing", Queue),
    "os.pipe and msgspec": ("msgspec", pipe_way),
    "pyzmq and msgspec": ("zmq", zmq_way),
    "iceoryx2": ("iceoryx2", Iceoryx),
    "horus-robotics": ("horus", Horus),
}


def check(one: Any, index: int) -> None:
    if fields_of(one) != POOL[index % len(POOL)]:
        raise pair.Wrong(f"object {index} is not what was sent")


def _throughput(way: Way, count: int) -> float:
    def sending(ready: pair.Ready) -> float:
        objects = [way.make(values) for values in POOL]
        with way.sender() as send:
            ready()
            start = time.perf_counter()
            for _ in repeat(None, count // len(objects)):
                for one in objects:
                    send(one)
            ready()
            return start

    def receiving(ready: pair.Ready) -> float:
        with way.receiver() as receive:
            ready()
            index = 0
            while index < count:
                few = min(pair.STEP, count - index)
                for _ in repeat(None, few - 1):
                    receive()
                index += few
                check(receive(), index - 1)
            end = time.perf_counter()
            ready()
            return end

    start, end = pair.run_all([sending, receiving])
    return count / float(end - start)


def throughput(make: Callable[[str], Way]) -> Callable[[float], float]:
    counts: list[int] = []

    def sample(budget_s: float) -> float:
        def once(count: int) -> float:
            return in_directory(lambda directory: _throughput(make(directory), count))

        if not counts:
            few = 8 * len(POOL)
            counts.append(max(few, int(once(few) * budget_s) // len(POOL) * len(POOL)))
        return once(counts[0])

    return sample


def one_process(make: Callable[[str], Way]) -> Callable[[float], float]:
    """ns for one object sent and received."""

    def sample(budget_s: float) -> float:
        def measured(directory: str) -> float:
            way = make(directory)
            message = way.make(POOL[3])
            # The receiver first where the sender waits for one; both orders are fine for the others.
            with way.receiver() as receive, way.sender() as send:

                def run() -> None:
                    for _ in repeat(None, BURST):
                        send(message)
                        receive()

                found = burst_ns(run, BURST, budget_s)
                send(message)
                check(receive(), 3)
                return found

        return in_directory(measured)

    return sample


def msgspec_alone(budget_s: float) -> float:
    """Encoding and decoding the same struct, without sending it."""
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Odometry)
    encode, decode, message = encoder.encode, decoder.decode, Odometry(*POOL[3])

    def run() -> None:
        for _ in repeat(None, BURST):
            decode(encode(message))

    return burst_ns(run, BURST, budget_s)


def typed_cells() -> list[Cell]:
    there = {name: make for name, (package, make) in WAYS.items() if find_spec(package)}
    return [
        Cell("msgspec alone, the typed struct", "ns", msgspec_alone),
        *(Cell(f"typed, one process | {name}", "ns", one_process(make)) for name, make in there.items()),
        *(Cell(f"typed | {name}", "messages/s", throughput(make), True, False) for name, make in there.items()),
    ]
