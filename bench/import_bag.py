"""How fast `ringmain import` makes a recording of an MCAP file with raw payloads; all of them and their times are
checked. Run separately: `python -m bench.import_bag`.

The figures are megabytes of payload for a second of processor time of all threads, and for a second by the clock.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from mcap.writer import CompressionType, Writer

from ringmain.recording import Recording, import_bag

TARGET_MB_S = 100.0
FIRST_NS = 1_700_000_000_123_456_789
STEP_NS = 1_000_003


def write_bag(path: Path, messages: int, payload: bytes, compression: CompressionType) -> None:
    with open(path, "wb") as file:
        writer = Writer(file, compression=compression)
        writer.start()
        channel = writer.register_channel("raw", "application/octet-stream", 0)
        for n in range(messages):
            at_ns = FIRST_NS + n * STEP_NS
            writer.add_message(channel, at_ns, payload, at_ns)
        writer.finish()


def measure(folder: Path, size: int, total: int, compression: CompressionType) -> str:
    bag, target, messages = folder / "bag.mcap", folder / "drive", total // size
    write_bag(bag, messages, os.urandom(size), compression)
    start_s, start_cpu_s = time.monotonic(), time.process_time()
    done = import_bag(bag, target)
    took_s, cpu_s = time.monotonic() - start_s, time.process_time() - start_cpu_s
    assert done.messages == messages
    times = [message.time_ns for message in Recording(target).messages(topics="raw")]
    assert times == [FIRST_NS + n * STEP_NS for n in range(messages)], "every message, with its time to the nanosecond"
    megabytes = messages * size / 1e6
    return (
        f"{size:9,} B, {compression.name:4} {messages:9,} messages: {megabytes / cpu_s:6.0f} {megabytes / took_s:6.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=300)
    args = parser.parse_args()
    print("MB of payload a second: of processor time, by the clock")
    for size in (1_000, 10_000, 1_000_000):
        for compression in (CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD):
            with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
                print(measure(Path(folder), size, args.megabytes * 1_000_000, compression), flush=True)
    print(f"target: {TARGET_MB_S:g} MB/s a core")


if __name__ == "__main__":
    main()
