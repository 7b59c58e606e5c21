"""Does a recorder's memory stay where it is? A publisher at a steady rate, a recorder with retention, and its memory by
the clock: anonymous memory is its own; the file-backed rest is segments that are being sealed.

    python -m bench.recording_soak [DIRECTORY] [--seconds 60] [--rate 1000000] [--size 100]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ringmain as rm

RECORD = """
import sys
import ringmain as rm
recorder = rm.Recorder(sys.argv[1], "soak", fsync="never", segment_bytes=64 << 20, keep_bytes=256 << 20)
with recorder:
    print("ready", flush=True)
    for line in sys.stdin:
        status = recorder.status()
        print(status.messages, status.lost, status.segments_waiting, status.topics[0].lag_messages, flush=True)
"""
SAMPLES = 12


def memory_mib(pid: int) -> tuple[float, float]:
    """(anonymous, all) resident memory of a process."""
    lines = dict(line.split(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(lines["RssAnon"].split()[0]) / 1024, int(lines["VmRSS"].split()[0]) / 1024


def directory_mib(path: Path) -> float:
    total = 0
    for file in path.glob("*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:  # sealed or retired meanwhile
            continue
    return total / (1 << 20)


def soak(directory: Path, seconds: float, rate: int, size: int) -> None:
    path = directory / "soak"
    with rm.Publisher("soak", contract="reliable", capacity="16MiB") as publisher:
        recorder = subprocess.Popen(
            [sys.executable, "-c", RECORD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert recorder.stdin is not None
        assert recorder.stdout is not None
        assert recorder.stdout.readline().strip() == "ready"
        many = [os.urandom(size)] * max(1, rate // 1000)
        print("  time     sent  recorded  lost  lag  to seal  anonymous MiB  resident MiB  on disk MiB")
        begun, sent = time.monotonic(), 0
        for sample in range(1, SAMPLES + 1):
            while (now := time.monotonic() - begun) < seconds * sample / SAMPLES:
                if sent < now * rate:
                    sent += publisher.send_many(many)
                else:
                    time.sleep(0.0005)
            recorder.stdin.write("\n")
            recorder.stdin.flush()
            recorded, lost, waiting, lag = recorder.stdout.readline().split()
            own, resident = memory_mib(recorder.pid)
            print(
                f"{now:>5.0f} s {sent:>9,} {int(recorded):>9,} {lost:>5} {lag:>4} {waiting:>8} {own:>14.0f} "
                f"{resident:>13.0f} {directory_mib(path):>12.0f}",
                flush=True,
            )
        recorder.stdin.close()
        recorder.wait()
    print(f"{sent:,} messages, {sent * size / 1e6:,.0f} MB of payload in {seconds:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=int, default=1_000_000, help="messages a second")
    parser.add_argument("--size", type=int, default=100, help="bytes of each")
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=args.directory) as name,
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="ringmain-bench-") as runtime,
    ):
        os.environ["RINGMAIN_DIR"] = runtime
        soak(Path(name), args.seconds, args.rate, args.size)


if __name__ == "__main__":
    main()
