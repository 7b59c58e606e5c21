"""How long a scrape of `ringmain metrics` takes with many topics, each with a writer and a reader, and what its parts
cost. Run separately: `python -m bench.scrape`.

The figures are processor time of the reading process. On a busy machine, time by the clock says how busy it is.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable

import ringmain as rm
from ringmain import _native
from ringmain._metrics import Collector

TARGET_MS = 50.0


def processor_ms(call: Callable[[], object], rounds: int) -> list[float]:
    took = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        took.append((time.process_time() - start) * 1e3)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory, contextlib.ExitStack() as open_endpoints:
        os.environ["RINGMAIN_DIR"] = directory
        for number in range(args.topics):
            topic = f"group{number % 10}/topic{number}"
            open_endpoints.enter_context(rm.Publisher(topic, capacity=65536)).send(b"x")
            open_endpoints.enter_context(rm.Subscriber(topic))
        collector = Collector()
        parts = {
            "all of it, as text": collector.text,
            "the figures": collector.collect,
            "the files alone": lambda: _native.inspect_all(directory),
        }
        print(
            f"{args.topics} topics, {len(collector.text()):,} bytes; processor time, ms: best, median of {args.rounds}"
        )
        for name, call in parts.items():
            took = processor_ms(call, args.rounds)
            print(f"{name:24} {min(took):6.1f} {statistics.median(took):6.1f}")
        print(f"target: {TARGET_MS:g} ms for 1,000 topics")


if __name__ == "__main__":
    main()
