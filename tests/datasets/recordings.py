"""Recordings for the tests of data sets, made with the real RecordingWriter: tests decide on times, losses, values."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np

from ringmain import typed
from ringmain.frames import FrameLayout
from ringmain.recording import RecordingWriter
from ringmain.recording._format import FRAMES
from ringmain.recording._frames import END, MARK, Trailer
from ringmain.recording._record.row_builder import ring_rows

START_US = 1_700_000_000_000_000
START_NS = START_US * 1000
BAD = b"\xc1 does not decode"


class State(msgspec.Struct):
    position: tuple[float, float]
    speed: float
    gear: int
    moving: bool
    mode: str


class Imu(msgspec.Struct):
    acceleration: tuple[float, float, float]
    turn_rate: float


class Action(msgspec.Struct):
    steer: float


class Scan(msgspec.Struct):
    ranges: list[float]


class Task(msgspec.Struct):
    name: str
    trial: int


class End(msgspec.Struct):
    success: bool


class At(msgspec.Struct):
    """A message of a test: when, what, and how many were lost just before it. Bytes are the payload itself."""

    ns: int
    value: Any
    lost: int = 0


def frame(brightness: int, width: int = 16, height: int = 12) -> bytes:
    """A picture as a recording has it."""
    layout = FrameLayout.of_image("rgb", width, height)
    pixels = np.full((height, width, 3), brightness, "u1")
    trailer = msgspec.msgpack.encode(Trailer(layout, 0, 0, 0, True, {}))
    return pixels.tobytes() + trailer + END.pack(len(trailer), MARK)


def record(
    path: Path, topics: Mapping[str, tuple[type | None, Sequence[At]]], *, host: str = "robot-1", epoch: int = 1,
    seal: bool = True, recorder: str = "",
) -> Path:  # fmt: skip
    """A recording of these messages; times are relative to START_NS. A topic without a type has only bytes."""
    with patch.object(socket, "gethostname", lambda: host):
        writer = RecordingWriter(path, recorder=recorder or f"recorder-{host}", fsync="never", flush_interval_s=1000)
        for topic, (type_, messages) in topics.items():
            codec = typed.codec_for(type_) if type_ is not None else None
            frames = any(isinstance(one.value, bytes) and one.value.endswith(MARK) for one in messages)
            schema = codec.schema.to_bytes() if codec is not None else b""
            writer.declare(topic, epoch=epoch, contract=FRAMES if frames else "broadcast", schema=schema)
            seq, rows = 0, []
            for one in messages:
                seq += one.lost
                raw = one.value if isinstance(one.value, bytes) or codec is None else bytes(codec.encode(one.value))
                rows.append((seq, START_NS + one.ns, one.lost, raw))
                seq += 1
            if rows:
                seqs, times, lost, data = map(list, zip(*rows, strict=True))
                batch = ring_rows(len(rows), seq=seqs, time_ns=times, lost=lost, data=data)
                writer.append(topic, epoch, batch, record_time_ns=START_NS)
        writer.close() if seal else writer.abandon()
    return path
