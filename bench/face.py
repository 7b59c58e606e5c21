"""What C++ programs get of ringmain: `native/face.cpp`, by the headers and the library that are shipped.

Beside the round trip of a cache line in the same run, which is what the cores allow, and a queue for one writer and one
reader that does nothing else: no roster, no deaths, no sleep, one size. iceoryx2's row of the same run is that of its
Python package: its C++ and Rust faces are not on PyPI.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from bench import pair
from bench.floors import FACE, number_from
from bench.harness import Cell
from bench.peers.ring import Single
from bench.versus import in_directory

SIZE = 32
READERS = (1, 60)


def _between(what: str, each_second: int) -> Callable[[float], float]:
    def run(seconds: float) -> float:
        count = max(1000, int(each_second * seconds))
        return in_directory(lambda _: number_from(FACE, what, count, cpus=pair.cpus))

    return run


def _publish(readers: int) -> Callable[[float], float]:
    return lambda seconds: in_directory(lambda _: number_from(FACE, "publish", readers, int(2_000_000 * seconds)))


class FromCpp(Single):
    """Python receives as in its own row; who sends is the C++ program."""

    def run(self, messages: list[bytes], count: int) -> float:
        words = [str(FACE), "send", "lane/0", str(count), *(message.hex() for message in messages)]

        def sending(ready: pair.Ready) -> float:
            with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sender:
                assert sender.stdin
                assert sender.stdout
                if sender.stdout.readline() != "ready\n":
                    raise pair.Wrong("the C++ program did not begin")
                ready()
                start = time.perf_counter()
                sender.stdin.write("send\n")
                sender.stdin.flush()
                ready()  # the receiver has all
            return start

        def receiving(ready: pair.Ready) -> float:
            with self.receiver(0) as receive:
                ready()
                self.consume(receive, messages, count)
                end = time.perf_counter()
                ready()
                return end

        start, end = pair.run_all([sending, receiving])
        return count / float(end - start)


def _to_python(seconds: float) -> float:
    messages = pair.pool(SIZE)
    count = max(1, int(4_000_000 * seconds) // len(messages)) * len(messages)
    return in_directory(lambda directory: FromCpp(directory, SIZE).run(messages, count))


def face_cells() -> list[Cell]:
    return [
        Cell("C++ → C++ 32 B", "messages/s", _between("throughput", 2_000_000), True, False),
        Cell("C++ → C++ one way, spinning", "ns", _between("oneway", 100_000), True),
        Cell("C++ → C++ round trip, spinning", "ns", _between("roundtrip", 100_000), True),
        Cell("queue of two processes 32 B", "messages/s", _between("queue-throughput", 2_000_000), True, False),
        Cell("queue of two processes, round trip", "ns", _between("queue-roundtrip", 100_000), True),
        *(Cell(f"C++ publish to {readers} readers", "ns", _publish(readers)) for readers in READERS),
        Cell("C++ → Python 32 B", "messages/s", _to_python, True, False),
    ]
