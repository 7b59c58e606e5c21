"""Latency at a fixed rate, from the time at which a message should have been sent: what is late at the sender counts.

    python -m bench.rates                     seven rounds, about seventy seconds; wants twelve CPUs with an L2 each
    python -m bench.rates --any --short       on any machine, some seconds: that decides nothing

A sender that waits for its receiver sends less while that is slow, and so measures it seldom just then. Here the
schedule is made beforehand: message n is due at start + n / rate, carries that time, and its latency is from then on.

A figure is the median of what the rounds found, which are short and in which all take part in turn: a hiccup of the
machine decides nothing.

*One pair*: one sender, one receiver, several rates; receivers that look all the time, and receivers that sleep. Beside
the libraries, what the machine and Python take without one: the *limit* (native/least.cpp). *200
topics × 2 readers × 100 Hz*: the scene that Agnocast's authors measure (arXiv 2506.16882): four processes write fifty
topics each, eight read fifty each. ringmain's readers wait for their fifty in one call, or look at one after another as
the peers' do, which have no such call.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import shlex
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import ringmain as rm
from bench import bars, measured, pair, runs
from bench.floors import build_floor
from bench.harness import Result, Sample
from bench.least import Least
from bench.limits import PREFIX
from bench.peers import Peer, load
from bench.placement import BAR_CPUS
from bench.real_cores import begun
from bench.runs import amount
from bench.versus import in_directory

SIZE = 32
CENTILES = (50.0, 99.0, 99.9)
LOOKING, SLEEPING = (10_000, 100_000), (1_000,)
"""Messages a second."""
TOPICS, GROUPS, READERS, HZ = 50, 4, 2, 100
"""Topics of each group, groups, readers of each topic."""
AHEAD_S = 0.02
Look = Callable[[], Iterator[Any]]
"""Gives what has come; may wait for it."""

_stamp, _due = struct.Struct("=dq16x").pack, struct.Struct("=dq").unpack_from


def send_by_schedule(sends: Sequence[pair.Send], count: int, interval_s: float) -> None:
    """Message n to each in turn, when it is due. The times are read by other processes: the clock is the machine's."""
    clock, start_s, turn = time.perf_counter, time.perf_counter() + AHEAD_S, len(sends)
    for number in range(count):
        due_s = start_s + number * interval_s
        while clock() < due_s:
            pass
        sends[number % turn](_stamp(due_s, number))


def centiles(latencies_s: list[float]) -> list[float]:
    """p50, p99 and p99.9 in microseconds, without the first tenth."""
    warm = sorted(latencies_s[len(latencies_s) // 10 :])
    return [1e6 * warm[math.ceil(len(warm) * centile / 100) - 1] for centile in CENTILES]


# ----------------------------------------------------------------------------------------------------- one pair


def one_pair(kind: type[Peer], spinning: bool, rate: int) -> Callable[[float], list[float]]:
    def sample(seconds: float) -> list[float]:
        count = max(400, int(rate * seconds))

        def run(directory: str) -> list[float]:
            peer = kind(directory, SIZE, spinning)

            def sending(ready: pair.Ready) -> None:
                with peer.sender(0) as send:
                    ready()
                    send_by_schedule([send], count, 1 / rate)
                    ready()

            def receiving(ready: pair.Ready) -> list[float]:
                latencies_s, clock = [float("inf")] * count, time.perf_counter
                with peer.receiver(0) as receive:
                    ready()
                    number = -1
                    while number < count - 1:
                        due_s, number = _due(receive())
                        latencies_s[number] = clock() - due_s
                    ready()
                return latencies_s

            found: list[float] = pair.run_all([sending, receiving])[1]
            return centiles(found)

        return in_directory(run)

    return sample


# -------------------------------------------------------------------------------------------------- many topics


class Waiting:
    """ringmain: one call waits for all topics of a process."""

    name = "ringmain"

    def __init__(self, directory: str) -> None:
        self.directory = directory

    @contextmanager
    def senders(self, names: Sequence[str]) -> Iterator[list[pair.Send]]:
        with ExitStack() as stack:
            pubs = [stack.enter_context(rm.Publisher(name, capacity="64KiB")) for name in names]
            yield [pub.send for pub in pubs]

    @contextmanager
    def readers(self, names: Sequence[str]) -> Iterator[Look]:
        with ExitStack() as stack:
            subs = [stack.enter_context(rm.Subscriber(name)) for name in names]
            for sub in subs:
                sub.try_recv()  # join
            yield self._look(subs)

    def _look(self, subs: list[rm.Subscriber[bytes]]) -> Look:
        def look() -> Iterator[Any]:
            for sub in rm.wait(subs, timeout=0.1):
                while (data := sub.try_recv()) is not None:
                    yield data

        return look


class Looking(Waiting):
    name = "ringmain, looking"

    def _look(self, subs: list[rm.Subscriber[bytes]]) -> Look:
        calls = [sub.try_recv for sub in subs]

        def look() -> Iterator[Any]:
            for call in calls:
                if (data := call()) is not None:
                    yield data

        return look


class Iceoryx(Waiting):
    name = "iceoryx2"

    def _services(self, names: Sequence[str]) -> tuple[Any, list[Any]]:
        import iceoryx2 as iox2

        iox2.set_log_level(iox2.LogLevel.Error)
        node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
        builders = [node.service_builder(iox2.ServiceName.new(f"{self.directory}/{name}")) for name in names]
        made = [builder.publish_subscribe(iox2.Slice[ctypes.c_uint8]) for builder in builders]
        return node, [one.max_subscribers(READERS).subscriber_max_buffer_size(64).open_or_create() for one in made]

    @contextmanager
    def senders(self, names: Sequence[str]) -> Iterator[list[pair.Send]]:
        node, services = self._services(names)

        def send_of(service: Any) -> pair.Send:
            publisher = service.publisher_builder().initial_max_slice_len(SIZE).create()

            def send(data: bytes) -> None:
                sample = publisher.loan_slice_uninit(SIZE)
                ctypes.memmove(sample.payload_ptr, data, SIZE)
                sample.assume_init().send()

            return send

        yield [send_of(service) for service in services]
        del node

    @contextmanager
    def readers(self, names: Sequence[str]) -> Iterator[Look]:
        node, services = self._services(names)
        calls, copy = [service.subscriber_builder().create().receive for service in services], ctypes.string_at

        def look() -> Iterator[Any]:
            for call in calls:
                if (sample := call()) is not None:
                    yield copy(sample.payload_ptr, SIZE)

        yield look
        del node


class Kick(Waiting):
    name = "kickmsg"

    def _open(self, what: str, names: Sequence[str]) -> tuple[Any, list[Any]]:
        import kickmsg

        config = kickmsg.Config()
        config.max_payload_size, config.max_subscribers, config.pool_size = SIZE, READERS + 1, 512
        namespace = self.directory.rpartition("/")[2]
        node = kickmsg.Node(f"{namespace}-{os.getpid()}", namespace)
        return node, [getattr(node, what)(name, config) for name in names]

    @contextmanager
    def senders(self, names: Sequence[str]) -> Iterator[list[pair.Send]]:
        node, pubs = self._open("advertise_or_join", names)
        try:
            yield [pub.send for pub in pubs]
        finally:
            import kickmsg

            for name in names:
                node.unlink_topic(name)
            kickmsg.unlink_shm(f"/{node.namespace}_registry")

    @contextmanager
    def readers(self, names: Sequence[str]) -> Iterator[Look]:
        node, subs = self._open("subscribe_or_create", names)
        calls = [sub.try_receive for sub in subs]

        def look() -> Iterator[Any]:
            for call in calls:
                if (data := call()) is not None:
                    yield data

        yield look
        del node


MANY = (Waiting, Looking, Iceoryx, Kick)


def many_topics(kind: type[Waiting], groups: int, topics: int) -> Callable[[float], list[float]]:
    def sample(seconds: float) -> list[float]:
        count = max(8, int(HZ * seconds)) * topics

        def run(directory: str) -> list[float]:
            library = kind(directory)

            def sending(group: int) -> pair.Job:
                def job(ready: pair.Ready) -> None:
                    with library.senders(names_of(group)) as sends:
                        ready()  # all topics are there
                        ready()
                        send_by_schedule(sends, count, 1 / (HZ * topics))
                        ready()

                return job

            def reading(group: int) -> pair.Job:
                def job(ready: pair.Ready) -> list[float]:
                    ready()
                    with library.readers(names_of(group)) as look:
                        ready()
                        found = read(look, seconds)
                        ready()
                        return found

                return job

            def names_of(group: int) -> list[str]:
                return [f"g{group}t{number}" for number in range(topics)]

            def read(look: Look, seconds: float) -> list[float]:
                latencies_s, clock = [float("inf")] * count, time.perf_counter
                end_s, seen = clock() + 2 * seconds + 5, 0
                while seen < count and clock() < end_s:
                    for data in look():
                        due_s, number = _due(data)
                        latencies_s[number] = clock() - due_s
                        seen += 1
                return latencies_s

            everybody = [*map(sending, range(groups)), *map(reading, list(range(groups)) * READERS)]
            found = pair.run_all(everybody)
            return centiles([one for reader in found[groups:] for one in reader])

        return in_directory(run)

    return sample


# ------------------------------------------------------------------------------------------------------ all of it


def cells(groups: int, topics: int) -> dict[str, Callable[[float], list[float]]]:
    """Name without the centile → what measures all of them."""
    kinds = {kind.name: kind for kind in load()[0]}
    made: dict[str, Callable[[float], list[float]]] = {}
    for way, rates, names in (
        ("looking", LOOKING, ("ringmain", "iceoryx2", "kickmsg")),
        ("asleep", SLEEPING, ("ringmain", "kickmsg")),
    ):
        for rate in rates:
            made[f"{PREFIX}{rate:,}/s, {way}"] = one_pair(Least, way == "looking", rate)
            for name in names:
                if name in kinds:
                    made[f"{rate:,}/s, {way} | {name}"] = one_pair(kinds[name], way == "looking", rate)
    scene = f"{groups * topics} topics × {READERS} readers × {HZ} Hz"
    for many in MANY:
        if many.name.partition(",")[0] in kinds:
            made[f"{scene} | {many.name}"] = many_topics(many, groups, topics)
    return made


def row(name: str, centile: float) -> str:
    """A limit's row is named as its group is."""
    prefix = PREFIX if name.startswith(PREFIX) else ""
    return f"{prefix}p{centile:g} from the intended time, {name.removeprefix(prefix)}"


def measure(chosen: dict[str, Callable[[float], list[float]]], rounds: int, seconds: float) -> list[Result]:
    """Each once in each round, which begins with another one each time."""
    results = {name: [Result(row(name, centile), "µs", True, True) for centile in CENTILES] for name in chosen}
    for number in range(rounds):
        first = number * len(chosen) // rounds
        for name in [*chosen, *chosen][first : first + len(chosen)]:
            # So many seconds are too few for a centile where messages are seldom.
            few = f"{SLEEPING[0]:,}/s" in name
            try:
                values: list[float | None] = [*chosen[name](2 * seconds if few else seconds)]
                error = ""
            except Exception as failure:  # reported, and does not end the run
                values, error = [None] * len(CENTILES), f"{type(failure).__name__}: {failure}"
            for result, value in zip(results[name], values, strict=True):
                result.samples.append(Sample(value, error=error))
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return [result for each in results.values() for result in each]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.rates", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4, help="of each measurement in each round")
    parser.add_argument("--short", action="store_true", help="one short round, of few topics")
    options, here, at = begun(parser)
    if at is None:
        return 0
    pair.cpus = at.cpus[::-1] if at.name == "far" else ()  # most of the machine's interrupts are the first one's
    try:
        build_floor()
    except (OSError, subprocess.SubprocessError) as error:  # then the limit's rows say that they failed
        print(f"the limit is not measured: {error}")
    about = runs.circumstances(shlex.join(["python", "-m", "bench.rates", *sys.argv[1:]]))
    print(f"{about['machine']}, Python {about['python']}, commit {about['commit'] or 'unknown'}\n{at}")
    absent = {name: why for name, why in load()[1].items() if name in ("iceoryx2", "kickmsg")}
    short = options.short
    with measured.runtime_directory("rates"):
        chosen = cells(1, 4) if short else cells(GROUPS, TOPICS)
        results = measure(chosen, 1 if short else options.rounds, 0.1 if short else options.seconds)
    print(runs.table(results))
    made = [bar for bar in bars.bars(results) if "intended time" in bar.group]
    medians = {result.name: amount(result.median) for result in results if result.median is not None}
    for bar in made:
        found = f"ours {amount(bar.our_median)} µs, theirs {amount(bar.their_median)}"
        bar.what += f" ({found}, limit {medians.get(PREFIX + bar.group, 'none')})"
    failed = measured.conclude(made, options.json, [f"beside {name}: {why}" for name, why in absent.items()])
    return failed if here.far_cpus >= BAR_CPUS else 0


if __name__ == "__main__":
    sys.exit(main())
