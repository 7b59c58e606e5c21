"""What handing over a frame costs, and how many frames of 6 MB a second are written and handed over.

Handing over, not writing the pixels: a frame of 6 MB against one of 64 KB and against a message of 64 bytes, in one
process and from one process to another and back. Writing and handing over: 6 MB are copied into each frame; iceoryx2
takes part if it is installed. Rounds alternate and the best of each is shown: what others do on the machine only adds.

    python -m bench.frames_handover
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import ringmain as rm

SMALL, LARGE = 64 * 1024, 6_000_000
ROUNDS = 9
SPIN_S = 0.01
"""The two-process rounds measure the hand-over, not the scheduler: whoever waits keeps looking."""
PATIENCE_S = 60.0
BUFFERS = 3
"""What iceoryx2 uses by default (two unread and one being written), so that both write to as much memory: with more, a
reader that is lapped makes the publisher go round more buffers than the caches hold."""


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
    """Nanoseconds for one hand-over: sent and received."""
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
    """Sends back whatever comes, until something empty does."""
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
    """The median of there and back; size 0 is a message of 64 bytes."""
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


def _count_frames(size: int, total: int, results: Any) -> None:
    with rm.FrameSubscriber("video", spin=SPIN_S) as sub:
        results.put("ready")
        received = 0
        while True:
            with sub.recv(timeout=PATIENCE_S) as frame:
                received += 1
                assert len(frame.data) == size
                if frame.id == total - 1:
                    break
        results.put(received)


def _count_samples(size: int, total: int, results: Any) -> None:
    import iceoryx2 as iox2

    sub = _service(iox2)[1].subscriber_builder().create()
    results.put("ready")
    received, idle_since = 0, time.monotonic()
    while time.monotonic() - idle_since < 1.0:  # polling, the way it is meant to be read fastest
        sample = sub.receive()
        if sample is not None:
            received += 1
            assert sample.payload().len() == size
            idle_since = time.monotonic()
    results.put(received)


def _service(iox2: Any) -> tuple[Any, Any]:
    iox2.set_log_level(iox2.LogLevel.Error)
    node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
    name = iox2.ServiceName.new(f"ringmain-bench-{os.environ['RINGMAIN_DIR']}")
    service = node.service_builder(name).publish_subscribe(iox2.Slice[ctypes.c_uint8]).open_or_create()
    return node, service


def written(system: str, total: int = 1500) -> tuple[float, float]:
    """Frames of 6 MB written and handed over in a second, and the share of them that arrived."""
    spawn: Any = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    source = os.urandom(LARGE)
    if system == "ringmain":
        with rm.FramePublisher("video", size=LARGE, buffers=BUFFERS) as pub:
            worker = spawn.Process(target=_count_frames, args=(LARGE, total, results))
            worker.start()
            results.get(timeout=PATIENCE_S)
            start = time.perf_counter()
            for _ in range(total):
                pub.send(source)
            took = time.perf_counter() - start
            received = results.get(timeout=PATIENCE_S)
            worker.join(PATIENCE_S)
    else:
        import iceoryx2 as iox2

        node, service = _service(iox2)
        peer = service.publisher_builder().initial_max_slice_len(LARGE).create()
        worker = spawn.Process(target=_count_samples, args=(LARGE, total, results))
        worker.start()
        results.get(timeout=PATIENCE_S)
        start = time.perf_counter()
        for _ in range(total):
            sample = peer.loan_slice_uninit(LARGE)
            ctypes.memmove(sample.payload_ptr, source, LARGE)
            sample.assume_init().send()
        took = time.perf_counter() - start
        received = results.get(timeout=PATIENCE_S)
        worker.join(PATIENCE_S)
        del peer, service, node
    return total / took, received / total


def main() -> None:
    directory = tempfile.mkdtemp(prefix="ringmain-bench-", dir="/dev/shm")
    os.environ["RINGMAIN_DIR"] = directory
    try:
        print("handing over, one process (ns)")
        single = in_one_process()
        message = single["message of 64 B"]
        for label, ns in single.items():
            print(f"  {label:28}{ns:8.0f}   {ns / message:4.1f} x")
        print("\nthere and back, two processes, spinning (us, median)")
        trips: dict[str, list[float]] = {label: [] for label in ("message of 64 B", "frame of 64 KB", "frame of 6 MB")}
        for _ in range(3):
            for seen, size in zip(trips.values(), (0, SMALL, LARGE), strict=True):
                seen.append(round_trip_us(size))
        for label, seen in trips.items():
            print(f"  {label:28}{min(seen):8.2f}   {min(seen) / min(trips['message of 64 B']):4.1f} x")
        print("\nwriting and handing over 6 MB, two processes")
        systems = ["ringmain"] + (["iceoryx2"] if find_spec("iceoryx2") else [])
        rates: dict[str, list[tuple[float, float]]] = {system: [] for system in systems}
        for _ in range(7):
            for system in systems:
                rates[system].append(written(system))
        for system, runs in rates.items():
            rate, share = max(runs)
            print(f"  {system:28}{rate:8.0f} frames/s, {rate * LARGE / 1e9:5.1f} GB/s, {share:.0%} received")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
