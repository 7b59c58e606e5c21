"""What C++ programs get of ringmain: `native/face.cpp`, by the headers and the library that are shipped.

Beside the round trip of a cache line in the same run, which is what the cores allow; a queue for one writer and one
reader that does nothing else: no roster, no deaths, no sleep, one size; and that queue when its two sides also do for
each message what those of a bus must, which is the limit. iceoryx2's row of the same run is that of its Python package:
its C++ and Rust faces are not on PyPI.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack

from bench import pair
from bench.floors import FACE, number_from
from bench.harness import Cell
from bench.limits import PREFIX
from bench.peers.ring import Single
from bench.versus import in_directory

SIZE = 32
READERS = (1, 60)
IN_THE_RING = 16_000
"""Messages of that size that a ring of 1 MiB has room for."""


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
        """Messages a second while both are at it."""
        return self._run(messages, count, 1, lambda sender, ready: ready())

    def drain(self, messages: list[bytes], count: int, rounds: int, beside: bool = False) -> float:
        """The same of the receiver alone: it begins when `count` messages are in the ring, so often. `beside`: while
        the sender's core publishes on another topic, which no one reads."""

        def once_sent(sender: subprocess.Popen[str], ready: pair.Ready) -> None:
            _expect(sender, "sent")
            ready()

        return self._run(messages, count, rounds, once_sent, beside)

    def _run(
        self, messages: list[bytes], count: int, rounds: int, begin: Callable[..., None], beside: bool = False
    ) -> float:
        others = [str(FACE), "publish", "1", "1000000000"]  # until it is ended
        words = [str(FACE), "send", "lane/0", str(count), *(message.hex() for message in messages)]

        def sending(ready: pair.Ready) -> None:
            with (
                ExitStack() as stack,
                subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sender,
            ):
                assert sender.stdin
                if beside:
                    stack.callback(subprocess.Popen(others, stdout=subprocess.DEVNULL).kill)
                _expect(sender, "ready")
                ready()  # the receiver can open the topic
                for _ in range(rounds):
                    ready()  # it has all of the round before
                    sender.stdin.write("send\n")
                    sender.stdin.flush()
                    begin(sender, ready)
                ready()

        def receiving(ready: pair.Ready) -> float:
            taken_s = 0.0
            ready()
            with self.receiver(0) as receive:
                for _ in range(rounds):
                    ready()
                    ready()
                    start = time.perf_counter()
                    self.consume(receive, messages, count)
                    taken_s += time.perf_counter() - start
                ready()
            return taken_s

        _, taken_s = pair.run_all([sending, receiving])
        return rounds * count / float(taken_s)


def _expect(sender: subprocess.Popen[str], line: str) -> None:
    assert sender.stdout
    if sender.stdout.readline() != f"{line}\n":
        raise pair.Wrong(f"the C++ program did not say that it is {line}")


def _to_python(seconds: float) -> float:
    messages = pair.pool(SIZE)
    count = max(1, int(4_000_000 * seconds) // len(messages)) * len(messages)
    return in_directory(lambda directory: FromCpp(directory, SIZE).run(messages, count))


def _drained(beside: bool) -> Callable[[float], float]:
    messages = pair.pool(SIZE)
    count = len(messages) * (IN_THE_RING // len(messages))

    def run(seconds: float) -> float:
        rounds = max(1, int(4_000_000 * seconds) // count)
        return in_directory(lambda directory: FromCpp(directory, SIZE).drain(messages, count, rounds, beside))

    return run


def face_cells() -> list[Cell]:
    return [
        Cell("C++ → C++ 32 B", "messages/s", _between("throughput", 2_000_000), True, False),
        Cell("C++ → C++ one way, spinning", "ns", _between("oneway", 100_000), True),
        Cell("C++ → C++ round trip, spinning", "ns", _between("roundtrip", 100_000), True),
        Cell("queue of two processes 32 B", "messages/s", _between("queue-throughput", 2_000_000), True, False),
        Cell("queue of two processes, round trip", "ns", _between("queue-roundtrip", 100_000), True),
        Cell(f"{PREFIX}C++ one way, spinning", "ns", _between("duties-oneway", 100_000), True),
        Cell(f"{PREFIX}C++ round trip, spinning", "ns", _between("duties-roundtrip", 100_000), True),
        *(Cell(f"C++ publish to {readers} readers", "ns", _publish(readers)) for readers in READERS),
        Cell("C++ → Python 32 B", "messages/s", _to_python, True, False),
        Cell("Python reads what C++ has sent, 32 B", "messages/s", _drained(False), True, False),
        Cell(f"{PREFIX}Python reads what C++ has sent, 32 B", "messages/s", _drained(True), True, False),
    ]
