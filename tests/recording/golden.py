"""Makes tests/golden/recording/v4: a small recording with a sealed and a growing segment, kept for good.

Run as a program when the format's version changes, into a directory of the new version; never over an old
one.
"""

from __future__ import annotations

from pathlib import Path

from ringmain.recording import Position, RecordingWriter, Store, _checksum, register
from ringmain.recording._format import META
from ringmain.recording._meta import Clocks, Properties, Session, read_meta
from tests.recording.conftest import START_NS, ring_batch

GOLDEN = Path(__file__).parents[1] / "golden" / "recording" / "v4"


PROPERTIES = Properties(capacity_bytes=1 << 23, max_participants=7, kept_kinds=40, persist=True)


def main() -> None:
    if GOLDEN.exists():
        raise SystemExit(f"{GOLDEN} exists: a golden file is never made anew")
    writer = RecordingWriter(GOLDEN, recorder="golden", flush_interval_s=1000)
    writer.declare("imu", epoch=1, contract="broadcast", schema=b"\x00golden", properties=PROPERTIES)
    writer.append("imu", 1, ring_batch(0, 5), record_time_ns=START_NS + 10_000)
    writer.rotate()
    writer.append("imu", 1, ring_batch(7, 3, lost=2), record_time_ns=START_NS + 20_000)
    writer.append("camera/front", 9, ring_batch(0, 2, size=70), record_time_ns=START_NS + 20_000)
    writer.flush()
    writer.abandon()
    register(GOLDEN, "spark", Position(0, 3))
    (GOLDEN / "lock").unlink()
    meta = read_meta(Store(GOLDEN))
    assert meta is not None
    # Says nothing of the machine that it was made on.
    meta.id = "0123abcd"
    meta.sessions = [Session(0, 4242, "host", Clocks(START_NS, 1_000, "boot"))]
    _checksum.replace_file(GOLDEN / META, _checksum.dump_json(meta), sync=False)


if __name__ == "__main__":
    main()
