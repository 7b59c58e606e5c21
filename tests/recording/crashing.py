"""A recorder for the crash tests to kill. Run as a program: DIRECTORY BATCHES.

Appends batches of ten messages and flushes each; after a flush it prints how many messages are safe by then.
Rotates after every four, retains little, and declares a topic on the way, so that it passes every labelled
point.
"""

from __future__ import annotations

import sys

from ringmain.recording import RecordingWriter
from tests.recording.conftest import ring_batch


def main() -> None:
    path, batches = sys.argv[1], int(sys.argv[2])
    keep = int(sys.argv[3]) if len(sys.argv) > 3 else None
    with RecordingWriter(path, fsync="never", flush_interval_s=1000, keep_bytes=keep) as writer:
        for i in range(batches):
            writer.append("t", 1, ring_batch(i * 10, 10, size=200))
            writer.flush()
            print((i + 1) * 10, flush=True)
            if i % 4 == 3:
                writer.rotate()
                writer.declare(f"topic{i}", epoch=1)


if __name__ == "__main__":
    main()
