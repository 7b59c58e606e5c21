"""What passing on a frame costs, without writing its pixels: one of 6 MB against one of 64 KB and against a message
of 64 bytes, in one process, and from one process to another and back. (Written and read, too: `bench.frames_written`.)
Rounds alternate and the best of each is shown: what others do on the machine only adds.

    python -m bench.frames_handover [--keep-nothing]
"""

from __future__ import annotations

import multiprocessing
import os
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import ringmain as rm
from bench import runs
from bench.frames_written import keep

SMALL, LARGE = 64 * 1024, 6_000_000
ROUNDS = 9
SPIN_S = 0.01
"""The two-process rounds measure passing on a frame, not the scheduler: both sides spin."""
PATIENCE_S = 60.0


def best_ns(run: Callable[[], object], count: int = 2000) -> float:
    """Of several bursts, the fastest; per call."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(count):
            run()
        best = min(best, (time.perf_counter_ns() - start) / count)
    return best


def in_one_process() -> dict[str, float]:
    """Nanoseconds to send and receive one frame."""
    found: dict[str, float] = {}
    payload = bytes(64)
    with rm.Publisher("message") as pub, rm.Subscriber("message") as sub:

        def message() -> None:
            pub.send(payload)
            sub.recv()

        found["message of 64 B"] = best_ns(message)
    for label, size in (("64 KB", SMALL), ("6 MB", LARGE)):
        with rm.FramePublisher("frame", size=size) as frames, rm.FrameSubscriber("frame") as reader:

            def plain(frames: rm.FramePublisher = frames, reader: rm.FrameSubscriber = reader) -> None:
                frames.frame().commit()
                reader.recv().release()

            def blocks(frames: rm.FramePublisher = frames, reader: rm.FrameSubscriber = reader) -> None:
                with frames.frame():
                    pass
                with reader.recv():
                    pass

            found[f"frame of {label}"] = best_ns(plain)
            found[f"frame of {label}, with blocks"] = best_ns(blocks)
    return found


def _echo(size: int) -> None:
    """Sends back every message, until an empty one."""
    if size == 0:
        with rm.Publisher("back") as back, rm.Subscriber("there", spin=SPIN_S) as there:
            back.send(b"ready")
            while data := there.recv(timeout=PATIENCE_S):
                back.send(data)
        return
    with rm.FramePublisher("back", size=size) as answer, rm.FrameSubscriber("there", spin=SPIN_S) as incoming:
        answer.frame().commit()
        while True:
            with incoming.recv(timeout=PATIENCE_S) as frame:
                valid = frame.valid
            if not valid:
                return
            answer.frame().commit()


def round_trip_us(size: int, count: int = 3000) -> float:
    """The median round trip; size 0 is a message of 64 bytes."""
    spawn: Any = multiprocessing.get_context("spawn")
    worker = spawn.Process(target=_echo, args=(size,))
    times: list[int] = []
    frames = size > 0
    there: Any = rm.FramePublisher("there", size=size) if frames else rm.Publisher("there")
    back: Any = rm.FrameSubscriber("back", spin=SPIN_S) if frames else rm.Subscriber("back", spin=SPIN_S)
    with there, back:
        worker.start()
        there.wait_for_readers(1, timeout=PATIENCE_S)
        first = back.recv(timeout=PATIENCE_S)
        if frames:
            first.release()
        payload = bytes(64)
        for _ in range(count):
            start = time.perf_counter_ns()
            if frames:
                there.frame().commit()
                back.recv(PATIENCE_S).release()
            else:
                there.send(payload)
                back.recv(PATIENCE_S)
            times.append(time.perf_counter_ns() - start)
        if frames:
            with there.frame() as last:
                last.valid = False
        else:
            there.send(b"")
        worker.join(PATIENCE_S)
    return statistics.median(times) / 1000


def main() -> None:
    directory = tempfile.mkdtemp(prefix="ringmain-bench-", dir="/dev/shm")
    os.environ["RINGMAIN_DIR"] = directory
    try:
        print("send and receive, one process (ns)")
        single = in_one_process()
        message = single["message of 64 B"]
        for label, ns in single.items():
            print(f"  {label:28}{ns:8.0f}   {ns / message:5.2f} x")
        print("\nround trip, two processes, spinning (us, median)")
        trips: dict[str, list[float]] = {label: [] for label in ("message of 64 B", "frame of 64 KB", "frame of 6 MB")}
        for _ in range(3):
            for seen, size in zip(trips.values(), (0, SMALL, LARGE), strict=True):
                seen.append(round_trip_us(size))
        for label, seen in trips.items():
            print(f"  {label:28}{min(seen):8.2f}   {min(seen) / min(trips['message of 64 B']):5.2f} x")
        if "--keep-nothing" not in sys.argv[1:]:
            about = runs.circumstances(shlex.join(["python", "-m", "bench.frames_handover", *sys.argv[1:]]))
            best_us = {label: min(seen) for label, seen in trips.items()}
            keep("handover", about, {"one process, ns": single, "there and back, us": best_us})
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
