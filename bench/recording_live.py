"""How fast live topics are recorded: a publisher process, a recorder process, and what each costs the other.

    100 B    messages/s from publisher to flushed recording, against pyarrow writing the same batches from memory
    1 MB     MB/s, against plain writes of the same bytes to the same file system
    cost     what publishing costs with no reader, with one reader that drains, and with a recorder
    replay   how far from its time a replayed message is published
    memory   the recorder's resident memory at the start, the middle and the end of a run

    python -m bench.recording_live [DIRECTORY] [SECONDS]

On a `reliable` topic the publisher waits for the recorder, so what is measured is the recorder's rate, and nothing is
lost. Processor seconds are printed beside the rates: on a busy machine they are the steadier of the two.
"""

from __future__ import annotations

import os
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

PRELUDE = """
import os, resource, sys, time
import ringmain as rm
def say(*words): print(*words, flush=True)
def resident_kb(): return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
"""
RECORD = """
recorder = rm.Recorder(sys.argv[1], "bench", fsync="never", segment_bytes=int(sys.argv[2]), keep_bytes=int(sys.argv[3]))
recorder.start()
begun_s = time.process_time()
say("ready")
for line in sys.stdin:
    if line.strip() == "memory":
        say(resident_kb())
        continue
    wanted = int(line)
    while recorder.status().messages < wanted and recorder.error is None:
        time.sleep(0.01)
    say(time.process_time() - begun_s)
    os._exit(0)
"""
DRAIN = """
with rm.Subscriber("bench") as sub:
    say("ready")
    while True:
        sub.recv_many(1000, timeout=None)
"""


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


def publish(publisher: rm.Publisher, size: int, seconds: float) -> tuple[int, float, float]:
    """(messages, seconds, processor seconds) of sending as fast as the readers let us."""
    data, sent = os.urandom(size), 0
    many = [data] * max(1, min(256, 1_000_000 // size))
    started, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - started < seconds:
        sent += publisher.send_many(many)
    return sent, time.perf_counter() - started, time.process_time() - used


def record(directory: Path, size: int, capacity: str, seconds: float) -> tuple[float, float]:
    """(messages/s until the last has been taken, the recorder's processor seconds for each)."""
    with rm.Publisher("bench", contract="reliable", capacity=capacity) as publisher:
        recorder = start(RECORD, directory / "live", 1 << 40, 1 << 40)
        started = time.perf_counter()
        sent, _, _ = publish(publisher, size, seconds)
        used_s = float(ask(recorder, str(sent)))
        took = time.perf_counter() - started
        recorder.wait()
    rate = sent / took
    print(
        f"{size:>8} B | live {rate:>11,.0f} msg/s {rate * size / 1e6:>6,.0f} MB/s | "
        f"recorder's processor time {used_s / sent * 1e9:>9,.0f} ns a message"
    )
    for path in (directory / "live").rglob("*"):
        if path.is_file():
            path.unlink()
    return rate, used_s / sent


def baseline(directory: Path, size: int) -> tuple[float, float]:
    """(messages/s, processor seconds for each) of pyarrow (small messages) or plain writes (large ones)."""
    rows, count = (16384, 30) if size < 10_000 else (4, 32)
    batches = [ring_batch(rows, size, i * rows) for i in range(count)]
    used = time.process_time()
    if size < 10_000:
        envelope = Envelope("bench")
        ready = [envelope.wrap("bench", 1, b, [(rows, time.time_ns())])[0] for b in batches]
        used = time.process_time()
        took = statistics.median(time_pyarrow(directory, ready) for _ in range(5))
    else:
        pieces = [
            memoryview(b.column("data").buffers()[2])[i * size : (i + 1) * size] for b in batches for i in range(rows)
        ]
        took = statistics.median(time_raw(directory, pieces) for _ in range(5))
    return rows * count / took, (time.process_time() - used) / 5 / (rows * count)


def cost_to_the_publisher(directory: Path, seconds: float) -> None:
    """Processor time of a send on a broadcast topic, which waits for nobody."""
    for who in ("nobody", "one reader", "a recorder"):
        with rm.Publisher("bench", contract="broadcast", capacity="16MiB") as publisher:
            process = None
            if who == "one reader":
                process = start(DRAIN)
            elif who == "a recorder":
                process = start(RECORD, directory / "cost", 1 << 40, 1 << 40)
            data, sent = os.urandom(100), 0
            used, started = time.process_time(), time.perf_counter()
            while time.perf_counter() - started < seconds:
                for _ in range(1000):
                    publisher.send(data)
                sent += 1000
            used = time.process_time() - used
            if process is not None:
                process.kill()
                process.wait()
        print(f"     100 B | send, read by {who:<10} {used / sent * 1e9:>6,.0f} ns of processor time")


def memory(directory: Path, seconds: float) -> None:
    with rm.Publisher("bench", contract="reliable", capacity="4MiB") as publisher:
        recorder = start(RECORD, directory / "memory", 64 << 20, 256 << 20)
        seen, total = [], 0
        for _ in range(4):
            total += publish(publisher, 1000, seconds / 4)[0]
            seen.append(int(ask(recorder, "memory")) // 1024)
        ask(recorder, str(total))
        recorder.wait()
    print(f"    1000 B | resident memory, MiB, at each quarter: {seen} ({total:,} messages, {total / 1e3:,.0f} MB)")


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
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 3.0
    with (
        tempfile.TemporaryDirectory(dir=parent) as name,
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="ringmain-bench-") as runtime,
    ):
        os.environ["RINGMAIN_DIR"] = runtime
        directory = Path(name)
        for size, capacity in ((100, "16MiB"), (1 << 20, "32MiB")):
            rate, cost = record(directory, size, capacity, seconds)
            base, base_cost = baseline(directory, size)
            what = "pyarrow" if size < 10_000 else "file writes"
            print(
                f"{size:>8} B | {what} {base:>11,.0f} msg/s {base * size / 1e6:>6,.0f} MB/s, {base_cost * 1e9:,.0f} ns "
                f"of processor time | {rate / base:.0%} of its rate, {base_cost / cost:.0%} by processor time"
            )
        replay_timing(directory)
        cost_to_the_publisher(directory, seconds)
        memory(directory, 4 * seconds)


if __name__ == "__main__":
    main()
