"""What recordings have of their own in native code does what Python does: CRC-32 for every length around its block
sizes, at every alignment and from any start, and the columns that are computed."""

from __future__ import annotations

import random
import zlib
from array import array
from itertools import accumulate

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isal import isal_zlib

from ringmain import _recording
from ringmain.recording import COLUMNS, _checksum
from ringmain.recording._record.row_builder import RowBuilder
from tests.recording.conftest import ring_batch


@settings(deadline=None)
@given(data=st.binary(max_size=400), start=st.integers(0, 2**32 - 1), offset=st.integers(0, 15))
def test_equals_zlib(data: bytes, start: int, offset: int) -> None:
    view = memoryview(data)[offset:]
    assert _checksum.crc32(view, start) == zlib.crc32(view, start)


@pytest.mark.parametrize("size", [1 << 16, (1 << 20) + 13])
def test_equals_zlib_without_the_gil(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert _checksum.crc32(data) == zlib.crc32(data)


def test_the_fast_one_is_in_use() -> None:
    assert _checksum.crc32 is isal_zlib.crc32


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        _checksum.crc32("text")  # type: ignore[arg-type]


Row = tuple[int, int, int]


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(0, 2**20), st.integers(0, 2**50)), min_size=1,
                  max_size=50),
    first=st.integers(0, 49),
)  # fmt: skip
def test_columns_are_derived_as_python_does(rows: list[Row], first: int) -> None:
    times, sizes, lost = (list(column) for column in zip(*rows, strict=True))
    first = min(first, len(rows) - 1)
    count = len(rows) - first
    micros, nanos, found = array("q", [0] * count), array("h", [0] * count), array("i", [0] * count)
    offsets = array("i", accumulate(sizes, initial=0))
    given_ = (array("q", times), offsets, array("Q", lost))
    least, greatest, missed = _recording.derive(*given_, first, count, micros, nanos, found)
    assert (least, greatest, missed) == (min(times[first:]), max(times[first:]), sum(lost[first:]))
    assert list(zip(micros, nanos, strict=True)) == [divmod(t, 1000) for t in times[first:]]
    assert list(found) == sizes[first:]


def test_buffers_that_are_too_short_are_refused() -> None:
    times, offsets, lost = array("q", [1, 2, 3]), array("i", [0, 1, 2, 3]), array("Q", [0, 0, 0])
    room = (array("q", [0] * 3), array("h", [0] * 3), array("i", [0] * 3))
    most = 2**63 - 1
    for call in (
        lambda: _recording.derive(times, offsets, lost, 1, 3, *room),
        lambda: _recording.derive(times, offsets[:3], lost, 0, 3, *room),
        lambda: _recording.derive(times, offsets, lost[:2], 0, 3, *room),
        lambda: _recording.derive(times, offsets, lost, 0, 3, room[0], array("h", [0]), room[2]),
        lambda: _recording.derive(times, offsets, lost, 0, 3, room[0], room[1], array("i", [0])),
        lambda: _recording.derive(times, offsets, lost, 0, 0, *room),
        lambda: _recording.derive(times, offsets, lost, most, most, *room),
        lambda: _recording.fill(times, 1, 3, 7),
        lambda: _recording.fill(times, -1, 1, 7),
        lambda: _recording.fill(times, most, most, 7),
    ):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("first", [0, 3])
def test_rows_are_built_as_python_does(first: int) -> None:
    """Also of a batch whose columns begin at different offsets."""
    recorded = [(3, 1_000_999), (7, 5_000)]
    ring = ring_batch(0, 10 + first, lost=3).slice(first)
    ring = ring.set_column(4, ring.schema.field(4), pa.array(ring.column("lost").to_pylist(), pa.uint64()))
    rows, least, greatest, lost = RowBuilder("me").build("t", 1, ring, recorded)
    messages = ring.to_pylist()
    times = [m["time_ns"] for m in messages]
    assert (least, greatest, lost) == (min(times), max(times), sum(m["lost"] for m in messages))
    taken = [ns // 1000 for count, ns in recorded for _ in range(count)]
    found = [rows.column(name).cast(pa.int64()) if "time" in name else rows.column(name) for name in COLUMNS]
    assert list(zip(*(column.to_pylist() for column in found), strict=True)) == [
        ("me", "t", 1, m["seq"], m["time_ns"] // 1000, m["time_ns"] % 1000, micros, m["sender"], m["kind"], m["lost"],
         len(m["data"]), m["data"])
        for m, micros in zip(messages, taken, strict=True)
    ]  # fmt: skip
