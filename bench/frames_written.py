"""Frames of 6 MB written by one process, handed over, and read by another: ringmain and iceoryx2, which hands over
without a copy, too, and is the fastest peer at this size.

Two ways of writing: *copied*, an image that lies elsewhere is copied into the frame (`pub.send(image)`; a memmove into
the loaned sample), and *in place*, numpy computes the pixels right there. The reader adds up all pixels where they lie
and compares the sum with the frame's number. Nothing is lost: the writer waits until its reader has taken the frame
before; iceoryx2's, until there is room in its queue. Short samples alternate, since the two cores of a virtual machine
are near or far by the minute, and that decides more than anything else: each placement has its own figures.

    python -m bench.frames_written [--rounds N] [--keep-nothing]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

import ringmain as rm
from bench import floors, harness, pair, runs, versus

SIZE = 6_000_000
FRAMES, WARM = 1400, 600
"""Of a sample; the first are not timed: the caches fill, and `send` tries its ways to copy."""
SPIN_S = 0.01
STREAM = "frames"
WAYS = {"copied": True, "in place": False}

Image = Any  # an array of bytes
Write = Callable[[int], None]
Read = Callable[[int], None]

_SOURCE = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)
_WORDS = _SOURCE.view(np.uint64)
_REST = int(_WORDS[1:].sum(dtype=np.uint64))


def _number(frame: int) -> None:
    """The image of this frame: its first word is the number."""
    _WORDS[0] = frame


def _compute(out: Image, frame: int) -> None:
    np.bitwise_or(_SOURCE, 0, out=out)
    out.view(np.uint64)[0] = frame


def _check(image: Image, frame: int) -> None:
    if int(image.view(np.uint64).sum(dtype=np.uint64)) != (_REST + frame) % (1 << 64):
        raise pair.Wrong(f"frame {frame} is not what was written")


class Ringmain:
    name = "ringmain"

    @contextmanager
    def writer(self, copied: bool) -> Iterator[Write]:
        with rm.FramePublisher(STREAM, SIZE, spin=SPIN_S) as pub:

            def write(frame: int) -> None:
                if frame == 0:
                    pub.wait_for_readers(1, timeout=pair.PATIENCE_S)
                while not pub.all_read:
                    os.sched_yield()  # on a busy machine, the reader may need this core
                if copied:
                    _number(frame)
                    pub.send(_SOURCE)
                    return
                with pub.frame() as draft:
                    _compute(draft.array, frame)

            yield write

    @contextmanager
    def reader(self) -> Iterator[Read]:
        with rm.FrameSubscriber(STREAM, spin=SPIN_S) as sub:

            def read(frame: int) -> None:
                with sub.recv(timeout=pair.PATIENCE_S) as got:
                    _check(got.array, frame)

            yield read


class Iceoryx:
    """With the shortest queues: more would mean more memory that takes turns, and less of it in the caches."""

    def __init__(self, queue: int) -> None:
        self.queue = queue
        self.name = f"iceoryx2, queue of {queue}"

    def _service(self) -> tuple[Any, Any]:
        import iceoryx2 as iox2

        iox2.set_log_level(iox2.LogLevel.Error)
        node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
        name = iox2.ServiceName.new(os.environ["RINGMAIN_DIR"])
        builder = node.service_builder(name).publish_subscribe(iox2.Slice[ctypes.c_uint8])
        builder = builder.enable_safe_overflow(False).subscriber_max_buffer_size(self.queue)
        builder = builder.subscriber_max_borrowed_samples(1).max_publishers(1).max_subscribers(1)
        return node, builder.open_or_create()

    @contextmanager
    def writer(self, copied: bool) -> Iterator[Write]:
        import iceoryx2 as iox2

        node, service = self._service()
        builder = service.publisher_builder().initial_max_slice_len(SIZE).max_loaned_samples(1)
        publisher = builder.backpressure_strategy(iox2.BackpressureStrategy.RetryUntilDelivered).create()
        source, content = _SOURCE.ctypes.data, ctypes.c_uint8 * SIZE

        def write(frame: int) -> None:
            sample = publisher.loan_slice_uninit(SIZE)
            if copied:
                _number(frame)
                ctypes.memmove(sample.payload_ptr, source, SIZE)
            else:
                _compute(np.frombuffer(content.from_address(sample.payload_ptr), np.uint8), frame)
            sample.assume_init().send()

        yield write
        del node  # kept until here: the service needs it

    @contextmanager
    def reader(self) -> Iterator[Read]:
        node, service = self._service()
        subscriber, content = service.subscriber_builder().create(), ctypes.c_uint8 * SIZE

        def read(frame: int) -> None:
            deadline = 0.0
            while (sample := subscriber.receive()) is None:  # polling, as it is fastest
                deadline = deadline or time.monotonic() + pair.PATIENCE_S
                if time.monotonic() > deadline:
                    raise TimeoutError("nothing came")
            _check(np.frombuffer(content.from_address(sample.payload_ptr), np.uint8), frame)

        yield read
        del node


def sample(system: Any, copied: bool) -> Callable[[float], float]:
    """Frames a second, from one written when all is warm to the last one read."""

    def writing(ready: Callable[[], None]) -> float:
        start = 0.0
        with system.writer(copied) as write:
            ready()
            for frame in range(FRAMES):
                if frame == WARM:
                    start = time.perf_counter()
                write(frame)
            ready()  # the reader has all
        return start

    def reading(ready: Callable[[], None]) -> float:
        with system.reader() as read:
            ready()
            for frame in range(FRAMES):
                read(frame)
            end = time.perf_counter()
            ready()
        return end

    def run(directory: str) -> float:
        start, end = pair.run_all([writing, reading])
        return (FRAMES - WARM) / float(end - start)

    return lambda budget_s: versus.in_directory(run)


def _stayed(sample: harness.Sample) -> str:
    """The placement, if it was the same before and after."""
    before, after = (harness.placement(ns or 0.0) for ns in (sample.before_ns, sample.after_ns))
    return before if before == after else ""


def rows(results: Sequence[harness.Result]) -> list[dict[str, Any]]:
    """For each cell and placement: the median, the middle half, and how many samples there were."""
    found = []
    for result in results:
        for place in harness.PLACEMENTS:
            values = [s.value for s in result.samples if s.value is not None and _stayed(s) == place]
            if values:
                middle = harness.spread(values)
                found.append(
                    {
                        "cell": result.name,
                        "placement": place,
                        "frames_per_s": round(statistics.median(values)),
                        "spread": [round(value) for value in middle],
                        "samples": len(values),
                    }
                )
    return found


def ratios(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    """ringmain against the better of the peer's settings, for each placement in which both were measured."""
    made: dict[str, float] = {}
    for way in WAYS:
        for place in harness.PLACEMENTS:
            here = {
                row["cell"].split(" | ")[1]: row["frames_per_s"]
                for row in found
                if row["cell"].startswith(f"{way} |") and row["placement"] == place
            }
            peers = [rate for name, rate in here.items() if name != Ringmain.name]
            if peers and Ringmain.name in here:
                made[f"{way}, {place}"] = round(here[Ringmain.name] / max(peers), 2)
    return made


def keep(what: str, about: dict[str, object], found: dict[str, Any]) -> None:
    """In a folder of its own, because the README uses the newest file of `python -m bench`."""
    stamp = str(about["date"]).replace(":", "").replace("-", "")[:15]
    path = runs.DIRECTORY / "frames" / f"{what}-{stamp}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**about, **found}, indent=1) + "\n")
    print(path.relative_to(floors.ROOT))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.frames_written", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="how often each cell is measured")
    parser.add_argument("--keep-nothing", action="store_true", help="write no file into bench/results/frames/")
    options = parser.parse_args()
    systems: list[Any] = [Ringmain(), *([Iceoryx(1), Iceoryx(2)] if find_spec("iceoryx2") else [])]
    cells = [
        harness.Cell(f"{way} | {system.name}", "frames/s", sample(system, copied), True, False)
        for way, copied in WAYS.items()
        for system in systems
    ]
    floors.build_floor()
    os.environ.setdefault("RINGMAIN_DIR", tempfile.gettempdir())  # every sample has its own; see versus.in_directory
    about = runs.circumstances(shlex.join(["python", "-m", "bench.frames_written", *sys.argv[1:]]))
    results = harness.measure(cells, options.rounds, 0.0)
    found = rows(results)
    for row in found:
        low, high = row["spread"]
        print(f"{row['cell']:34}{row['placement']:8}{row['frames_per_s']:8,} frames/s  {low:,} ... {high:,}  "
              f"({row['samples']} samples)")  # fmt: skip
    for what, ratio in ratios(found).items():
        print(f"{what:34}ringmain {ratio:.2f} x the best of the peer")
    failed = [f"{result.name}: {s.error}" for result in results for s in result.samples if s.error]
    print("\n".join(failed))
    if not options.keep_nothing:
        keep("written", about, {"ratios": ratios(found), "rows": found, "failed": failed})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
