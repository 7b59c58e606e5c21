"""Cameras → pinned frames → GPU: how long 7 MB take, and what each part of the way costs.

    python -m bench.frames_gpu [--rounds 300] [--seconds 2] [--out FILE]

Needs torch with CUDA; without it, it says so and ends. *returns* is when the call that starts a copy is over, *arrives*
when the copy is: in between, a program can do other work. All are medians, in microseconds.

Frames are compared with memory that torch pinned itself, and with plain memory that is registered like a frame's: with
small and huge pages, shared and not, mapped for writing and for reading only. What the frame's row has in common with
one of these says where its time goes.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import os
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import ringmain as rm
from bench import runs
from bench.registered_memory import SHAPE, SIZE, huge_directory, mappings, registered

HOST_TO_DEVICE = 1  # cudaMemcpyHostToDevice
CAMERAS = 4
PATIENCE_S = 30.0
WARM = 20


@dataclass(frozen=True)
class Row:
    what: str
    returns_us: float | None
    arrives_us: float | None = None
    note: str = ""

    def __str__(self) -> str:
        returns = "" if self.returns_us is None else f"{self.returns_us:.1f}"
        arrives = "" if self.arrives_us is None else f"{self.arrives_us:.1f}"
        speed = f"{SIZE / self.arrives_us / 1e3:.1f} GB/s" if self.arrives_us else ""
        return f"{self.what:62}{returns:>9}{arrives:>9}  {speed:>10}  {self.note}".rstrip()


def call_us(call: Callable[[], object], rounds: int) -> float:
    """The median of one call that starts nothing on the GPU."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        call()
        found.append(time.perf_counter_ns() - start)
    return statistics.median(found) / 1e3


def copied(
    what: str,
    copy: Callable[[], object],
    finish: Callable[[], object],
    rounds: int,
    note: str = "",
    prepare: Callable[[], object] = lambda: None,
) -> Row:
    returns, arrives = [], []
    for number in range(WARM + rounds):
        prepare()
        start = time.perf_counter_ns()
        copy()
        returned = time.perf_counter_ns()
        finish()
        arrived = time.perf_counter_ns()
        if number >= WARM:
            returns.append(returned - start)
            arrives.append(arrived - start)
    return Row(what, statistics.median(returns) / 1e3, statistics.median(arrives) / 1e3, note)


def memcpy_async() -> Any:
    """cudaMemcpyAsync of the runtime that torch has loaded, or None."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split()[-1] for line in lines if "libcudart" in line}
    if not paths:
        return None
    function = ctypes.CDLL(min(paths)).cudaMemcpyAsync
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    return function


# ----------------------------------------------------------------------------------------------- one frame, many times


@contextmanager
def frame(*, pin: bool) -> Iterator[tuple[Any, Any, str]]:
    """A publisher, a frame that was received from it, and whether its memory is pinned."""
    with rm.FramePublisher("bench/gpu", SHAPE, "u1", buffers=3) as pub, rm.FrameSubscriber("bench/gpu") as sub:
        pub.send(np.random.default_rng(1).integers(0, 256, SHAPE, "u1"))
        with sub.recv(timeout=PATIENCE_S) as received:
            note = "" if not pin or (pub.pin_memory() and sub.pin_memory()) else "NOT PINNED: CUDA refused"
            yield pub, received, note


def to_gpu(torch: Any, rounds: int) -> list[Row]:
    gpu = torch.empty(SHAPE, dtype=torch.uint8, device="cuda")
    finish = torch.cuda.current_stream().synchronize
    rows = []

    def measure(what: str, source: Callable[[], Any], note: str = "") -> None:
        rows.append(copied(what, lambda: gpu.copy_(source(), non_blocking=True), finish, rounds, note))

    own = torch.empty(SHAPE, dtype=torch.uint8, pin_memory=True)
    measure("torch's own pinned memory", lambda: own)
    with frame(pin=True) as (_, received, note):
        wrapped = torch.from_numpy(received.array)
        measure("frame, pinned, the same tensor", lambda: wrapped, note)
        measure("frame, pinned, torch.from_numpy(f.array) each time", lambda: torch.from_numpy(received.array), note)
        measure("frame, pinned, torch.from_dlpack(f) each time", lambda: torch.from_dlpack(received), note)
        if not torch.equal(gpu.cpu(), torch.from_numpy(received.copy())):
            raise SystemExit("what arrived on the GPU is not the frame")
        rows += by_hand(torch, gpu, {"torch's own pinned memory": own, "frame, pinned": wrapped}, finish, rounds)
    with frame(pin=False) as (_, received, _note):
        wrapped = torch.from_numpy(received.array)
        measure("frame, not pinned", lambda: wrapped)
    flat = gpu.view(-1)
    for mapping in mappings():
        try:
            with registered(torch, mapping) as tensor:
                rows.append(copied(mapping.what, partial(flat.copy_, tensor, True), finish, rounds))
        except OSError as error:
            rows.append(Row(mapping.what, None, None, str(error)))
    return rows


def by_hand(torch: Any, gpu: Any, sources: dict[str, Any], finish: Callable[[], object], rounds: int) -> list[Row]:
    """cudaMemcpyAsync alone, without torch's part of the call."""
    copy = memcpy_async()
    if copy is None:
        return [Row("cudaMemcpyAsync by itself", None, None, "torch has loaded no libcudart")]
    stream = torch.cuda.current_stream().cuda_stream
    target = gpu.data_ptr()
    return [
        copied(
            f"cudaMemcpyAsync by itself, {what}",
            partial(copy, target, tensor.data_ptr(), SIZE, HOST_TO_DEVICE, stream),
            finish,
            rounds,
        )
        for what, tensor in sources.items()
    ]


def parts(torch: Any, rounds: int) -> list[Row]:
    """What happens around a copy, once for each frame."""
    with frame(pin=True) as (_, received, _note):
        array = received.array
        tensor = torch.from_numpy(array)
        rows = [
            Row("f.array", call_us(lambda: received.array, rounds)),
            Row("torch.from_numpy(array)", call_us(lambda: torch.from_numpy(array), rounds)),
            Row("torch.from_dlpack(f)", call_us(lambda: torch.from_dlpack(received), rounds)),
            Row("tensor.is_pinned(), which copies do not ask", call_us(tensor.is_pinned, rounds)),
        ]
    with rm.FramePublisher("bench/one", SHAPE, "u1") as pub, rm.FrameSubscriber("bench/one") as sub:

        def pass_on() -> None:
            pub.frame().commit()
            sub.recv(timeout=PATIENCE_S).release()

        pass_on()
        return [*rows, Row("a frame sent, received and released, no pixels", call_us(pass_on, rounds))]


def from_gpu(torch: Any, rounds: int) -> list[Row]:
    gpu = torch.ones(SHAPE, dtype=torch.uint8, device="cuda")
    finish = torch.cuda.current_stream().synchronize
    own = torch.empty(SHAPE, dtype=torch.uint8, pin_memory=True)
    rows = [copied("GPU → torch's own pinned memory", lambda: own.copy_(gpu, non_blocking=True), finish, rounds)]
    for pin in (True, False):
        with frame(pin=pin) as (pub, _, note), pub.frame() as draft:
            target = torch.from_numpy(draft.array)
            what = f"GPU → frame, {'pinned' if pin else 'not pinned'}"
            rows.append(copied(what, partial(target.copy_, gpu, True), finish, rounds, note))
    return rows


# ------------------------------------------------------------------------------------------------ between processes


def camera(name: str, stop: Any) -> None:
    """Sends frames as fast as it can copy them, each marked with its number."""
    image = np.random.default_rng(1).integers(0, 256, SHAPE, "u1")
    with rm.FramePublisher(name, SHAPE, "u1", buffers=4) as pub:
        pub.wait_for_readers(1, PATIENCE_S)
        number = 0
        while not stop.is_set():
            image[0, 0, 0] = number % 256
            pub.send(image, id=number)
            number += 1


def queue_camera(queue: Any, count: int, over: Any) -> None:
    torch: Any = import_module("torch")
    image = torch.zeros(SHAPE, dtype=torch.uint8)
    for _ in range(count):
        queue.put(image.clone())
    over.wait(PATIENCE_S)  # the tensors' memory is this process's


def through_queue(torch: Any, count: int) -> Row:
    context = torch.multiprocessing.get_context("spawn")
    queue, over = context.Queue(4), context.Event()
    worker = context.Process(target=queue_camera, args=(queue, WARM + count, over), daemon=True)
    worker.start()
    gpu = torch.empty(SHAPE, dtype=torch.uint8, device="cuda")
    try:
        for number in range(WARM + count):
            if number == WARM:
                start = time.perf_counter()
            gpu.copy_(queue.get(timeout=PATIENCE_S * 2))
            torch.cuda.synchronize()
        each = (time.perf_counter() - start) / count
    finally:
        over.set()
        worker.join(PATIENCE_S)
    return Row("torch.multiprocessing.Queue, one camera, for each frame", None, each * 1e6)


def newly_written(torch: Any, rounds: int) -> Row:
    """Frames as another process has just written them, one after the other, each in the next buffer."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    worker = context.Process(target=camera, args=("camera/new", stop), daemon=True)
    gpu = torch.empty(SHAPE, dtype=torch.uint8, device="cuda")
    with rm.FrameSubscriber("camera/new") as sub:
        worker.start()
        try:
            received = sub.recv(timeout=PATIENCE_S)
            note = "" if sub.pin_memory() else "NOT PINNED: CUDA refused"

            def next_one() -> None:
                nonlocal received
                received.release()
                received = sub.recv(timeout=PATIENCE_S)

            what = "frame from a camera, pinned, torch.from_dlpack(f)"
            finish = torch.cuda.current_stream().synchronize
            copy = lambda: gpu.copy_(torch.from_dlpack(received), non_blocking=True)  # noqa: E731
            return copied(what, copy, finish, rounds, note, next_one)
        finally:
            stop.set()
            worker.join(PATIENCE_S)


def cameras(torch: Any, count: int, seconds: float, *, pin: bool) -> Row:
    """Cameras, each a process, into one worker with a stream for each. A frame is held until its copy is done."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    workers = [context.Process(target=camera, args=(f"camera/{n}", stop), daemon=True) for n in range(count)]
    note = ""
    with ExitStack() as stack:
        subs = [stack.enter_context(rm.FrameSubscriber(f"camera/{n}")) for n in range(count)]
        for worker in workers:
            worker.start()
        try:
            for sub in subs:
                sub.recv(timeout=PATIENCE_S).release()
                if pin and not sub.pin_memory():
                    note = "NOT PINNED: CUDA refused"
            taken, lost = _work(torch, subs, seconds)
        finally:
            stop.set()
            for worker in workers:
                worker.join(PATIENCE_S)
    how = "pinned" if pin else "not pinned"
    what = f"{count} camera{'s' if count > 1 else ''} → one worker, {how}, for each frame"
    note = note or f"{taken / seconds:.0f} frames/s, {lost / (taken + lost):.0%} lost to faster cameras"
    return Row(what, None, seconds / taken * 1e6, note)


def _work(torch: Any, subs: list[Any], seconds: float) -> tuple[int, int]:
    """Copies for so long; how many frames were copied, and how many were lost."""
    streams = [torch.cuda.Stream() for _ in subs]
    gpu = [torch.empty(SHAPE, dtype=torch.uint8, device="cuda") for _ in subs]
    copying: list[deque[tuple[Any, Any]]] = [deque() for _ in subs]
    taken, lost_before = 0, sum(sub.lost for sub in subs)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        rm.wait(subs, timeout=PATIENCE_S)
        for number, sub in enumerate(subs):
            held = copying[number]
            while held and (len(held) > 1 or held[0][1].query()):
                received, done = held.popleft()
                done.synchronize()
                received.release()
            received = sub.try_recv()
            if received is None:
                continue
            with torch.cuda.stream(streams[number]):
                gpu[number].copy_(torch.from_numpy(received.array), non_blocking=True)
                done = torch.cuda.Event()
                done.record()
            held.append((received, done))
            taken += 1
    torch.cuda.synchronize()
    lost = sum(sub.lost for sub in subs) - lost_before
    for number, held in enumerate(copying):
        if held and not torch.equal(gpu[number].cpu(), torch.from_numpy(held[-1][0].copy())):
            raise SystemExit("what arrived on the GPU is not the frame")
        for received, _ in held:
            received.release()
    return taken, lost


def on_huge_pages(torch: Any, rounds: int) -> Row:
    what = "frame, pinned, huge pages, the same tensor"
    gpu = torch.empty(SHAPE, dtype=torch.uint8, device="cuda")
    before = os.environ["RINGMAIN_DIR"]
    with huge_directory() as directory:
        if directory is None:
            return Row(what, None, None, "not measured: a tmpfs with huge pages cannot be mounted here")
        os.environ["RINGMAIN_DIR"] = directory
        try:
            with frame(pin=True) as (_, received, note):
                tensor = torch.from_numpy(received.array)
                finish = torch.cuda.current_stream().synchronize
                return copied(what, lambda: gpu.copy_(tensor, non_blocking=True), finish, rounds, note)
        finally:
            os.environ["RINGMAIN_DIR"] = before


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.frames_gpu", description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="how often each copy is made (default: 300)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long the cameras run (default: 2)")
    parser.add_argument("--out", type=Path, help="the JSON file; default: bench/results/frames/gpu-<time>.json")
    options = parser.parse_args()
    try:
        torch: Any = import_module("torch")
    except ImportError:
        print("frames_gpu: nothing measured, torch is not installed")
        return 0
    if not torch.cuda.is_available():
        print(f"frames_gpu: nothing measured, torch {torch.__version__} finds no CUDA device")
        return 0
    about = runs.circumstances(shlex.join(["python", "-m", "bench.frames_gpu", *sys.argv[1:]]))
    about |= {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    directory = tempfile.mkdtemp(prefix="ringmain-bench-", dir="/dev/shm")
    os.environ["RINGMAIN_DIR"] = directory
    try:
        rows = [*to_gpu(torch, options.rounds), on_huge_pages(torch, options.rounds), *parts(torch, options.rounds)]
        rows += [*from_gpu(torch, options.rounds), newly_written(torch, options.rounds)]
        rows += [cameras(torch, n, options.seconds, pin=pin) for n in (1, CAMERAS) for pin in (True, False)]
        rows.append(through_queue(torch, options.rounds))
    finally:
        shutil.rmtree(directory)
    print(f"{about['gpu']}, torch {about['torch']}, {about['machine']}, Linux {about['kernel']}, {about['date']}")
    print(f"{f'frames of {SIZE / 1e6:.2f} MB, µs':62}{'returns':>9}{'arrives':>9}")
    print("\n".join(map(str, rows)))
    stamp = str(about["date"]).replace(":", "").replace("-", "")[:15]
    out = options.out or runs.DIRECTORY / "frames" / f"gpu-{stamp}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
