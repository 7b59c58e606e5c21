"""What a library costs besides its speed: publishing to more readers, waiting, and memory.

*Publish*: one process with the readers in it, none of which reads; a peer that drops at a reader that does not keep up
takes part, since nothing has to arrive here. *Waiting*: the processor time of a process that waits a second for one
message. *Memory*: what a sender and a receiver take beyond the library itself, after a thousand messages of 32 bytes,
as the growth of their proportional set sizes, less that of two processes that do the same with no bus at all.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path
from typing import Any

import ringmain as rm
from bench import pair
from bench.harness import Cell, burst_ns
from bench.peers import Peer
from bench.versus import in_directory

SMALL = 32
BURST = 1000
READERS = (1, 4, 15, 60)
WAIT_S = 1.0


# ------------------------------------------------------------------------------------- publishing to more readers


@contextmanager
def _ring(readers: int, directory: str) -> Iterator[pair.Send]:
    """On `bus`: its writers check every reader's hold, and never wait here."""
    with ExitStack() as stack:
        pub = stack.enter_context(rm.Publisher("crowd", contract="bus"))
        for _ in range(readers):
            stack.enter_context(rm.Subscriber("crowd"))
        yield pub.send


@contextmanager
def _zmq(readers: int, directory: str) -> Iterator[pair.Send]:
    import zmq

    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        pub = stack.enter_context(context.socket(zmq.XPUB))
        pub.setsockopt(zmq.XPUB_VERBOSE, 1)
        pub.bind(f"ipc://{directory}/zmq")
        for _ in range(readers):
            sub = stack.enter_context(context.socket(zmq.SUB))
            sub.setsockopt(zmq.SUBSCRIBE, b"")
            sub.connect(f"ipc://{directory}/zmq")
            if not pub.poll(int(pair.PATIENCE_S * 1000)):
                raise TimeoutError("no subscription came")
            pub.recv()
        yield pub.send


@contextmanager
def _iceoryx(readers: int, directory: str) -> Iterator[pair.Send]:
    import ctypes

    import iceoryx2 as iox2

    iox2.set_log_level(iox2.LogLevel.Error)
    node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
    builder = node.service_builder(iox2.ServiceName.new(f"{directory}/crowd"))
    builder = builder.publish_subscribe(iox2.Slice[ctypes.c_uint8]).max_subscribers(readers)
    service = builder.open_or_create()
    publisher = service.publisher_builder().initial_max_slice_len(SMALL).create()
    crowd = [service.subscriber_builder().create() for _ in range(readers)]
    loan, memmove = publisher.loan_slice_uninit, ctypes.memmove

    def send(data: bytes) -> None:
        sample = loan(SMALL)
        memmove(sample.payload_ptr, data, SMALL)
        sample.assume_init().send()

    yield send
    del crowd, publisher, service, node


@contextmanager
def _kickmsg(readers: int, directory: str) -> Iterator[pair.Send]:
    import kickmsg

    config = kickmsg.Config()
    config.max_payload_size, config.max_subscribers, config.pool_size = SMALL, readers, 64 * readers + 256
    name = directory.rpartition("/")[2]
    node = kickmsg.Node(f"{name}-crowd", name)
    publisher = node.advertise_or_join("crowd", config)
    crowd = [node.subscribe_or_create("crowd", config) for _ in range(readers)]
    yield publisher.send
    del crowd
    node.unlink_topic("crowd")
    kickmsg.unlink_shm(f"/{node.namespace}_registry")


Crowd = Callable[[int, str], Any]
CROWDS: dict[str, tuple[str, Crowd]] = {
    "ringmain": ("ringmain", _ring),
    "pyzmq PUB/SUB": ("zmq", _zmq),
    "iceoryx2": ("iceoryx2", _iceoryx),
    "kickmsg": ("kickmsg", _kickmsg),
}


def publish_to(readers: int, crowd: Crowd) -> Callable[[float], float]:
    message = bytes(SMALL)

    def sample(budget_s: float) -> float:
        def measured(directory: str) -> float:
            with crowd(readers, directory) as send:

                def run() -> None:
                    for _ in repeat(None, BURST):
                        send(message)

                return burst_ns(run, BURST, budget_s)

        return in_directory(measured)

    return sample


# ------------------------------------------------------------------------------------------------------- waiting


def waiting_ms(kind: type[Peer]) -> Callable[[float], float]:
    """Processor time, in milliseconds, for waiting one second with the library's default settings."""
    message = pair.pool(SMALL)[0]

    def waiting(peer: Peer) -> pair.Job:
        def job(ready: pair.Ready) -> float:
            with peer.receiver(0) as receive:
                ready()
                pair.check(receive(), [message], 0)  # what it does only the first time
                ready()
                before = _cpu_s()
                pair.check(receive(), [message], 0)
                used = _cpu_s() - before
                ready()
                return used * 1e3

        return job

    def sending(peer: Peer) -> pair.Job:
        def job(ready: pair.Ready) -> None:
            with peer.sender(0) as send:
                ready()
                send(message)
                ready()
                time.sleep(WAIT_S)
                send(message)
                ready()

        return job

    def run(directory: str) -> float:
        peer = kind(directory, SMALL)
        used, _ = pair.run_all([waiting(peer), sending(peer)])
        return float(used)

    return lambda budget_s: in_directory(run)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# -------------------------------------------------------------------------------------------------------- memory


def _pss_bytes() -> int:
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


def _grown(work: Callable[[], None]) -> int:
    gc.collect()
    gc.freeze()  # or the collector would write to every page it shares with the parent
    before = _pss_bytes()
    work()
    return _pss_bytes() - before


def memory_kb(kind: type[Peer]) -> Callable[[float], float]:
    messages = pair.pool(SMALL)

    def run(directory: str) -> float:
        peer = kind(directory, SMALL)

        def sending(ready: pair.Ready) -> int:
            with ExitStack() as stack:

                def work() -> None:
                    send = stack.enter_context(peer.sender(0))
                    ready()
                    pair.produce(send, messages, 1024)
                    ready()

                grown = _grown(work)
                ready()  # while both ends are open
                return grown

        def receiving(ready: pair.Ready) -> int:
            with ExitStack() as stack:

                def work() -> None:
                    receive = stack.enter_context(peer.receiver(0))
                    ready()
                    pair.consume(receive, messages, 1024)
                    ready()

                grown = _grown(work)
                ready()
                return grown

        def nothing(ready: pair.Ready) -> int:
            def work() -> None:
                ready()
                pair.produce(lambda data: None, messages, 1024)
                ready()

            grown = _grown(work)
            ready()
            return grown

        with_bus = sum(pair.run_all([sending, receiving]))
        return float(with_bus - sum(pair.run_all([nothing, nothing]))) / 1024

    return lambda budget_s: in_directory(run)


def topic_file_kb(budget_s: float) -> float:
    """What a topic of the default capacity, 1 MiB, takes in /dev/shm."""

    def run(directory: str) -> float:
        with rm.Publisher("sized"):
            return sum(path.stat().st_blocks * 512 for path in Path(os.environ["RINGMAIN_DIR"]).iterdir()) / 1024

    return in_directory(run)


def cost_cells(kinds: Sequence[type[Peer]]) -> list[Cell]:
    made = []
    for readers in READERS:
        for name, (package, crowd) in CROWDS.items():
            if find_spec(package):
                made.append(Cell(f"publish to {readers} readers | {name}", "ns", publish_to(readers, crowd)))
    single = [kind for kind in kinds if not kind.batches]
    made += [Cell(f"CPU of a second's wait | {kind.name}", "ms", waiting_ms(kind)) for kind in single]
    whole = [kind for kind in single if not kind.drops]  # those that can send a thousand without loss
    made += [Cell(f"memory of a pair | {kind.name}", "KB", memory_kb(kind)) for kind in whole]
    made.append(Cell("topic file of a 1 MiB ring", "KB", topic_file_kb))
    return made
