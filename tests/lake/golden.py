"""Makes tests/golden/lake/vN: a small lake of the version that this ringmain writes, kept for ever. In it are two
batches of two robots, a field that has changed its type, a message that does not decode, and lost ones.

Run as a program when the lake's version changes; never over an old one.
"""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import msgspec

from ringmain.lake import Lake
from ringmain.lake._ledger import LAKE_VERSION
from ringmain.pipeline import Pipeline
from tests.spark.recordings import rows, schema_of, writer

GOLDEN = Path(__file__).parents[1] / "golden" / "lake"
BASE = Path("/tmp/ringmain-golden")  # the ledger has the recordings' addresses


class Old(msgspec.Struct):
    volt: float
    mode: str


class New(msgspec.Struct):
    volt: str
    mode: str


def old(n: int) -> bytes:
    return b"\xc1" if n == 3 else msgspec.msgpack.encode(Old(n / 2, "ab"[n % 2]))


def new(n: int) -> bytes:
    return msgspec.msgpack.encode(New(f"{n} V", "ab"[n % 2]))


def main() -> None:
    target = GOLDEN / f"v{LAKE_VERSION}"
    if target.exists():
        raise SystemExit(f"{target} exists: a golden lake is never made anew")
    BASE.mkdir()
    for robot, kind, encode in (("left", Old, old), ("right", New, new)):
        socket.gethostname = lambda robot=robot: robot  # type: ignore[misc]  # says nothing of this machine
        made = writer(BASE / "recordings" / robot, recorder=robot)
        epoch = 1 + (robot == "right")
        made.declare("battery", epoch=epoch, schema=schema_of(kind))
        made.append("battery", epoch, rows(0, 20, encode=encode, step_ns=10**9, lost=2))
        made.append("raw", epoch, rows(0, 5))
        made.close()
        Pipeline().run(BASE / "recordings", BASE / "lake", engine="local")
    assert len(Lake(str(BASE / "lake")).tables()) > 5
    shutil.copytree(BASE / "lake", target)
    shutil.rmtree(BASE)


if __name__ == "__main__":
    main()
