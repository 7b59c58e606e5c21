"""How fast live topics are recorded: a publisher process, a recorder process, and what each costs the other.

    100 B    messages/s from publisher to recording, against pyarrow writing as many, in the same batches, from memory
    1 MB     MB/s, against plain writes of as many bytes to the same file system
    replay   how far from its time a replayed message is published
    cost     what publishing costs with no reader, with one reader that drains, and with a recorder

    python -m bench.recording_live [DIRECTORY]

On a `reliable` topic the publisher waits for the recorder, so what is measured is the recorder's rate, and nothing is
lost. Both sides write as many bytes, in turns, into memory that they have themselves just written and freed: a virtual
machine gives free memory back to its host within seconds, and a file in memory that must be asked for again, or that is
in another core's cache, costs several times as much.
Processor seconds are printed beside the rates: on a busy machine they are the steadier of the two.
`bench/recording_soak.py` looks at memory.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import ringmain as rm
from bench.recording import ring_batch, time_pyarrow, time_raw
from ringmain.recording import RecordingWriter
from ringmain.recording.envelope import Envelope

ROUNDS = 5

PRELUDE = """
import os, sys, time
import ringmain as rm
from bench.recording_live import warm
def say(*words): print(*words, flush=True)
"""
RECORD = """
recorder = rm.Recorder(sys.argv[1], "bench", fsync="never", segment_bytes=1 << 40).start()
warm(sys.argv[1], int(sys.argv[2]))
begun_s = time.process_time()
say("ready")
wanted = int(sys.stdin.readline())
while recorder.status().messages < wanted and recorder.error is None:
    time.sleep(0.02)  # each look costs the recorder some of its time
say(time.process_time() - begun_s)
os._exit(0)
"""
DRAIN = """
with rm.Subscriber("bench") as sub:
    say("ready")
    while True:
        sub.recv_many(1000, timeout=None)
"""


def warm(directory: str | Path, size: int) -> None:
    """Has the kernel get, and free, the memory that a file of this size takes."""
    path, piece = Path(directory) / "warm", bytes(1 << 20)
    with open(path, "wb", buffering=0) as file:
        for _ in range(size >> 20):
            file.write(piece)
    path.unlink()


def start(script: str, *args: object) -> subprocess.Popen[str]:
    program = PRELUDE + textwrap.dedent(script)
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    return process


def ask(process: subprocess.Popen[str], question: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(question + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def record(directory: Path, size: int, capacity: str, count: int) -> tuple[float, float]:
    """(seconds until the last has been taken, the recorder's processor seconds)."""
    with rm.Publisher("bench", contract="reliable", capacity=capacity) as publisher:
        recorder = start(RECORD, directory / "live", count * (size + 100))
        many = [os.urandom(size)] * max(1, min(256, 1_000_000 // size))
        started, sent = time.perf_counter(), 0
        while sent < count:
            sent += publisher.send_many(many)
        used_s = float(ask(recorder, str(sent)))
        took = time.perf_counter() - started
        recorder.wait()
    shutil.rmtree(directory / "live")
    return took * count / sent, used_s * count / sent


def baseline(directory: Path, size: int, count: int) -> tuple[float, float]:
    """(seconds, processor seconds) of pyarrow (small messages) or plain writes (large ones) for as many."""
    rows = 16384 if size < 10_000 else 8
    batches = [ring_batch(rows, size, i * rows) for i in range(8)]
    times = count // rows
    if size < 10_000:
        envelope = Envelope("bench")
        ready = [envelope.wrap("bench", 1, b, [(rows, time.time_ns())])[0] for b in batches]
        warm(directory, count * (size + 100))
        used = time.process_time()
        took = time_pyarrow(directory, [ready[i % len(ready)] for i in range(times)])
    else:
        data = [memoryview(b.column("data").buffers()[2]) for b in batches]
        pieces = [data[i % len(data)][j * size : (j + 1) * size] for i in range(times) for j in range(rows)]
        warm(directory, count * (size + 100))
        used = time.process_time()
        took = time_raw(directory, pieces)
    return took, time.process_time() - used


def compare_live(directory: Path, size: int, capacity: str, count: int) -> None:
    what = "pyarrow" if size < 10_000 else "file writes"
    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(baseline(directory, size, count))
        ours.append(record(directory, size, capacity, count))
    for name, rounds in (("recorded", ours), (what, theirs)):
        took, used = (statistics.median(r[i] for r in rounds) for i in (0, 1))
        print(
            f"{size:>8} B | {name:<11} {count / took:>11,.0f} msg/s {count * size / took / 1e6:>6,.0f} MB/s | "
            f"{used / count * 1e9:>9,.0f} ns of processor time a message"
        )
    ratios = [statistics.median(t[i] for t in theirs) / statistics.median(o[i] for o in ours) for i in (0, 1)]
    print(f"{size:>8} B | {ratios[0]:.0%} of the rate of {what}, {ratios[1]:.0%} by processor time", flush=True)


def cost_to_the_publisher(directory: Path, messages: int = 3_000_000) -> None:
    """Processor time of a send on a broadcast topic, which waits for nobody."""
    costs: dict[str, list[float]] = {"nobody": [], "one reader": [], "a recorder": []}
    for _ in range(ROUNDS):
        for who, seen in costs.items():
            with rm.Publisher("bench", contract="broadcast", capacity="16MiB") as publisher:
                process = None
                if who == "one reader":
                    process = start(DRAIN)
                elif who == "a recorder":
                    process = start(RECORD, directory / "cost", 0)
                data = os.urandom(100)
                used = time.process_time()
                for _ in range(messages):
                    publisher.send(data)
                seen.append((time.process_time() - used) / messages * 1e9)
                if process is not None:
                    process.kill()
                    process.wait()
                shutil.rmtree(directory / "cost", ignore_errors=True)
    for who, seen in costs.items():
        print(f"     100 B | send, read by {who:<10} {statistics.median(seen):>6,.0f} ns of processor time")


def replay_timing(directory: Path) -> None:
    """A synthetic second of messages at 1 kHz, replayed: how far from its time each is published."""
    writer = RecordingWriter(directory / "replay", fsync="never")
    writer.append("bench", 1, ring_batch(1000, 100, 0, step_ns=1_000_000))
    writer.close()
    player = rm.Player(directory / "replay").open()
    with rm.Subscriber("bench") as sub:
        player.run()
        times = [sub.recv_message(timeout=1.0).time_ns for _ in range(1000)]
    errors_us = sorted(abs(t - times[0] - i * 1_000_000) / 1000 for i, t in enumerate(times))
    print(f"replay at 1 kHz | publish times are off by p50 {errors_us[500]:.1f} us, p99 {errors_us[990]:.1f} us")


def main() -> None:
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    with (
        tempfile.TemporaryDirectory(dir=parent) as name,
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="ringmain-bench-") as runtime,
    ):
        os.environ["RINGMAIN_DIR"] = runtime
        directory = Path(name)
        compare_live(directory, 100, "16MiB", 4 << 20)
        compare_live(directory, 1 << 20, "32MiB", 768)
        replay_timing(directory)
        cost_to_the_publisher(directory)


if __name__ == "__main__":
    main()
