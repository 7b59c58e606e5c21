"""Instructions a message on the hot paths, counted by callgrind, against those in bench/instructions.json.

    python -m bench.instructions [--record]

Counts repeat where times do not, so this can guard. Each path is run short and long in a fresh interpreter with a fixed
hash seed; the difference is what the extra messages cost, with Python's own share of the loop in it. Grown by more than
a tenth: it fails, and whoever means it records the new count in the same commit. Where there is no valgrind it says so
and passes.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

RECORD = Path(__file__).with_name("instructions.json")
GROWTH = 1.10
EXTRA = 384_000
"""Many: starting the interpreter varies by some million instructions from run to run."""
PATHS = ("send", "send + recv", "send_many + recv_many")
SCRIPT = """
import sys
import ringmain as rm

def main(alone, both, many):  # a function: names of a module are looked up in dictionaries, which would be counted too
    message = bytes(32)
    messages = [message] * 64
    with rm.Publisher("hot") as pub, rm.Subscriber("hot") as sub:
        send, recv, send_many, recv_many = pub.send, sub.recv, pub.send_many, sub.recv_many
        for _ in range(both):
            send(message)
            recv()
        for _ in range(many // 64):
            send_many(messages)
            recv_many(64)
        for _ in range(alone):
            send(message)

main(*map(int, sys.argv[1:]))
"""


def instructions(counts: tuple[int, ...], directory: str) -> int:
    """All that the interpreter executes, from its start to its end."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "RINGMAIN_DIR": directory, "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        [*command, *map(str, counts)], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        raise SystemExit(f"callgrind failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return int(found[1])


def measure() -> dict[str, float]:
    base = (64,) * len(PATHS)
    directory = tempfile.mkdtemp(prefix="ringmain-bench-", dir="/dev/shm")
    try:
        short = instructions(base, directory)
        found = {}
        for index, path in enumerate(PATHS):
            longer = tuple(count + EXTRA * (index == place) for place, count in enumerate(base))
            found[path] = round((instructions(longer, directory) - short) / EXTRA, 1)
        return found
    finally:
        shutil.rmtree(directory)


def main() -> int:
    if not shutil.which("valgrind"):
        print("instructions: skipped, there is no valgrind here (Debian: apt-get install valgrind)")
        return 0
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    about = f"{platform.machine()}, Python {platform.python_version().rpartition('.')[0]}"
    found = measure()
    if "--record" in sys.argv[1:]:
        RECORD.write_text(json.dumps({**recorded, about: found}, indent=1, sort_keys=True) + "\n")
    elif about not in recorded:
        print(f"instructions: nothing is recorded for {about}; `python -m bench.instructions --record` does it")
    before = recorded.get(about, found)
    grown = [path for path in PATHS if found[path] > GROWTH * before.get(path, found[path])]
    for path in PATHS:
        verdict = "GROWN" if path in grown else ""
        print(
            f"{path:24}{found[path]:8.0f} instructions a message, recorded {before.get(path, 0):.0f} {verdict}".rstrip()
        )
    return 1 if grown and "--record" not in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
