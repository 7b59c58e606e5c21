"""How fast live topics are recorded: a publisher process, a recorder process, and what each costs the other.

    100 B    messages/s from publisher to recording, against pyarrow writing as many, in the same batches, from memory
    1 MB     MB/s, against plain writes of as many bytes to the same file system
    replay   how far from its time a replayed message is published, against a loop of `time.sleep`, and how many a
             second with `speed=inf`
    trigger  what a flight recorder's triggers cost the recorder, a message
    cost     what publishing costs with no reader, with one reader that drains, and with a recorder

    python -m bench.recording_live [DIRECTORY]

On a `reliable` topic the publisher waits for the recorder, so what is measured is the recorder's rate, from the first
message published to the last one in the file, and nothing is lost. Recorder and comparison run in one process, by
turns, in memory that the machine has: a virtual one gives what is free back to its host within seconds, and a page that
must be asked for again costs ten times what copying into it does; rounds in which it happened are left out, and
counted. Processor seconds are printed beside the rates: on a busy machine they are the steadier of the two.
`bench/recording_soak.py` looks at memory.
"""

from __future__ import annotations

import math
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

import ringmain as rm
from bench.recording import ring_batch, time_pyarrow, time_raw
from ringmain import typed
from ringmain.recording import RecordingWriter, Trigger
from ringmain.recording._format import Position, stream_name
from ringmain.recording._record.flight import Flight
from ringmain.recording._record.row_builder import RowBuilder

ROUNDS = 15
REPLAY_TARGET = 3_000_000  # messages a second
TIMING_TARGET = 1.5  # times the p99 of a loop of time.sleep in the same run
TRIGGER_TARGET_NS = 250  # a message: a quarter of a core at a million a second


class Imu(msgspec.Struct):
    n: int
    ax: float
    g: tuple[float, float, float]


PRELUDE = """
import os, sys, time
import ringmain as rm
def say(*words): print(*words, flush=True)
"""
PUBLISH = """
size = int(sys.argv[1])
many = [os.urandom(size)] * max(1, min(256, 1_000_000 // size))
with rm.Publisher("bench", contract="reliable", capacity=sys.argv[2]) as publisher:
    say("ready")
    for line in sys.stdin:
        sent, used = 0, time.process_time()
        while sent < int(line):
            sent += publisher.send_many(many)
        say(time.process_time() - used)
"""
RECORD = """
recorder = rm.Recorder(sys.argv[1], "bench", fsync="never", segment_bytes=1 << 40).start()
say("ready")
sys.stdin.readline()
"""
DRAIN = """
with rm.Subscriber("bench") as sub:
    say("ready")
    while True:
        sub.recv_many(1000, timeout=None)
"""


def memory_of_our_own(size: int = 2 << 30) -> mmap.mmap:
    """Free memory that stays the machine's: every sixteenth page of what is returned is kept, and those between are
    free for the taking, but never in pieces large enough to be given back to a host."""
    region = mmap.mmap(-1, size)
    for page in range(0, size, mmap.PAGESIZE):
        region[page] = 1
    step = 16 * mmap.PAGESIZE
    for block in range(0, size, step):
        region.madvise(mmap.MADV_DONTNEED, block + mmap.PAGESIZE, step - mmap.PAGESIZE)
    return region


class Round(NamedTuple):
    """What some messages took."""

    took_s: float
    used_s: float  # processor time, of this process


def start(script: str, *args: object) -> subprocess.Popen[str]:
    program = PRELUDE + textwrap.dedent(script)
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    return process


def record(
    directory: Path, publisher: subprocess.Popen[str], size: int, count: int, least_s: float
) -> tuple[Round, float]:
    """What this process, recording, took for so many, at least `least_s`; and the publisher's processor seconds."""
    assert publisher.stdin is not None
    assert publisher.stdout is not None
    recorder = rm.Recorder(
        directory / "live", "bench", messages=count, fsync="never", segment_bytes=1 << 40, recorder="bench"
    ).start()
    used, started = time.process_time(), time.perf_counter()
    publisher.stdin.write(f"{count}\n")
    publisher.stdin.flush()
    stream = directory / "live" / stream_name(0)

    def is_done() -> bool:
        assert recorder.error is None, recorder.error
        # The file is asked first: a look at the status costs the recorder some of its time. It is gone once it is
        # sealed, which it may be by now where the comparison took long.
        try:
            in_file = stream.stat().st_size >= count * size
        except FileNotFoundError:
            in_file = True
        return in_file and Position.parse(recorder.status().position) >= Position(0, count)

    time.sleep(least_s)
    while not is_done():
        time.sleep(0.001)
    done = Round(time.perf_counter() - started, time.process_time() - used)
    published_s = float(publisher.stdout.readline())
    recorder.close()  # seals, which is not what is measured
    shutil.rmtree(directory / "live")
    return done, published_s


class Baseline:
    """pyarrow (small messages) or plain writes (large ones), for as many messages as are recorded."""

    def __init__(self, directory: Path, size: int, count: int) -> None:
        self.directory = directory
        self.what = "pyarrow" if size < 10_000 else "file writes"
        rows = 16384 if size < 10_000 else 8
        rings = [ring_batch(rows, size, i * rows) for i in range(8)]
        times = [i % len(rings) for i in range(count // rows)]
        builder = RowBuilder("bench")
        ready = [builder.build("bench", 1, ring, [(rows, time.time_ns())]).batch for ring in rings]
        self._batches = [ready[i] for i in times]
        data = [memoryview(ring.column("data").buffers()[2]) for ring in rings]
        self._pieces = [data[i][j * size : (j + 1) * size] for i in times for j in range(rows)]

    def run(self) -> Round:
        used = time.process_time()
        if self.what == "pyarrow":
            took = time_pyarrow(self.directory, self._batches)
        else:
            took = time_raw(self.directory, self._pieces)
        return Round(took, time.process_time() - used)


def compare_live(directory: Path, size: int, capacity: str, count: int) -> None:
    baseline = Baseline(directory, size, count)
    kept = memory_of_our_own()
    publisher = start(PUBLISH, size, capacity)
    ours, theirs, published = [], [], []
    for number in range(ROUNDS + 1):
        theirs.append(baseline.run())
        mine, published_s = record(directory, publisher, size, count, theirs[-1].took_s)
        ours.append(mine)
        published.append(published_s)
        if number == 0:  # imports, first calls
            ours, theirs, published = [], [], []
    kept.close()
    publisher.kill()
    publisher.wait()
    good = [i for i in range(ROUNDS) if all(r[i].used_s < 2 * min(x.used_s for x in r) for r in (ours, theirs))]
    print(f"{size:>8} B | {len(good)} of {ROUNDS} rounds; in the others memory had to be got from the host")
    ours, theirs, published = ([r[i] for i in good] for r in (ours, theirs, published))
    for name, rounds in (("recorded", ours), (baseline.what, theirs)):
        low, middle, high = statistics.quantiles([r.took_s for r in rounds], n=4)
        used = statistics.median(r.used_s for r in rounds)
        print(
            f"{size:>8} B | {name:<11} {count / middle:>11,.0f} msg/s {count * size / middle / 1e6:>6,.0f} MB/s "
            f"(quartiles {count / high:,.0f} to {count / low:,.0f}) | {used / count * 1e9:>9,.0f} ns of processor time"
        )
    rates = statistics.median(t.took_s / o.took_s for t, o in zip(theirs, ours, strict=True))
    costs = statistics.median(t.used_s / o.used_s for t, o in zip(theirs, ours, strict=True))
    print(f"{size:>8} B | {rates:.0%} of the rate of {baseline.what}, {costs:.0%} by processor time")
    print(
        f"{size:>8} B | published at {statistics.median(published) / count * 1e9:,.0f} ns of processor time", flush=True
    )


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
                    process = start(RECORD, directory / "cost")
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
    """A synthetic second of messages at 1 kHz, replayed: how far from its time each is published. The times are counted
    from where most of them say that the first was due: counted from the first message itself, all would be off by what
    that one is late, and the first thing that a process does is."""
    writer = RecordingWriter(directory / "replay", fsync="never")
    writer.append("bench", 1, ring_batch(1000, 100, 0, step_ns=1_000_000))
    writer.close()
    player = rm.Player(directory / "replay").open()
    with rm.Subscriber("bench") as sub:
        player.run()
        times = [sub.recv_message(timeout=1.0).time_ns for _ in range(1000)]
    slept = []
    started = time.monotonic()
    for n in range(1000):
        time.sleep(max(0.0, started + n * 0.001 - time.monotonic()))
        slept.append(time.time_ns())
    ours, plain = (errors_us(at) for at in (times, slept))
    met = "met" if ours[990] <= TIMING_TARGET * plain[990] else "not met"
    print(
        f"replay at 1 kHz | publish times are off by p50 {ours[500]:.1f} us, p99 {ours[990]:.1f} us; a loop of "
        f"time.sleep p99 {plain[990]:.1f} us | target p99 {TIMING_TARGET} x that: {met}"
    )


def errors_us(at: list[int]) -> list[float]:
    """How far each of these times, a millisecond apart, is off, in order."""
    begun = [t - i * 1_000_000 for i, t in enumerate(at)]
    middle = statistics.median(begun)
    return sorted(abs(t - middle) / 1000 for t in begun)


def trigger_cost(directory: Path) -> None:
    """Triggers of each kind that look at messages, asked of batches as a recorder takes them; none fires."""
    codec = typed.codec_for(Imu)
    payloads = pa.array([bytes(codec.encode(Imu(n, 0.5, (0.0, 0.0, 9.8)))) for n in range(16384)])
    ring = ring_batch(len(payloads), 32, 0, step_ns=1000)
    ring = ring.set_column(len(ring.columns) - 1, ring.schema.field(len(ring.columns) - 1), payloads)
    asked = {
        "an expression": Trigger(when="imu: ax > 9 and abs(g[2]) < 5"),
        "a kind": Trigger(kind="imu: emergency"),
        "a loss": Trigger(loss="imu"),
    }
    for what, trigger in asked.items():
        with RecordingWriter(directory / f"trigger-{trigger.what}", fsync="never") as writer:
            flight = Flight(writer, [trigger], recorder="bench", sync=False)
            costs = []
            for _ in range(ROUNDS):
                used = time.process_time()
                for _ in range(8):
                    flight.see("imu", ring, codec.schema.to_bytes())
                costs.append((time.process_time() - used) / (8 * len(ring)) * 1e9)
            assert not flight.problems
        found = statistics.median(costs)
        met = "met" if found <= TRIGGER_TARGET_NS else "not met"
        print(
            f"trigger | {what:<13} {found:>6,.1f} ns of processor time a message | target {TRIGGER_TARGET_NS} ns: {met}"
        )


def replay_rate(directory: Path, messages: int = 1 << 21) -> None:
    """Messages of 32 bytes on one topic, and the same on two that take turns: as fast as it goes, without a reader."""
    for topics in (1, 2):
        path = directory / f"rate{topics}"
        writer = RecordingWriter(path, fsync="never")
        rows = 16384
        for at in range(0, messages // topics, rows):
            for n in range(topics):
                writer.append(f"bench/{n}", 1, ring_batch(rows, 32, at, step_ns=1000))
        writer.close()
        rates, costs = [], []
        for _ in range(5):
            used, started = time.process_time(), time.perf_counter()
            done = rm.replay(path, speed=math.inf).messages
            rates.append(done / (time.perf_counter() - started))
            costs.append((time.process_time() - used) / done * 1e9)
        met = "met" if topics > 1 or statistics.median(rates) >= REPLAY_TARGET else "not met"
        print(
            f"replay with speed=inf, {topics} topics | {statistics.median(rates):>11,.0f} msg/s, "
            f"{statistics.median(costs):,.0f} ns of processor time"
            + (f" | target {REPLAY_TARGET:,}/s on two cores: {met}" if topics == 1 else "")
        )


def main() -> None:
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    with (
        tempfile.TemporaryDirectory(dir=parent) as name,
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="ringmain-bench-") as runtime,
    ):
        os.environ["RINGMAIN_DIR"] = runtime
        directory = Path(name)
        compare_live(directory, 100, "16MiB", 2 << 20)
        compare_live(directory, 1 << 20, "32MiB", 192)
        replay_timing(directory)
        replay_rate(directory)
        trigger_cost(directory)
        cost_to_the_publisher(directory)


if __name__ == "__main__":
    main()
