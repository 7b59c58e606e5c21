"""What recordings have of their own in native code does what Python does: CRC-32 for every length around its block
sizes, at every alignment and from any start, and the columns of times."""

from __future__ import annotations

import random
import zlib
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmain.recording import stamp
from ringmain.recording.envelope import Envelope
from tests.recording.conftest import ring_batch


@settings(deadline=None)
@given(data=st.binary(max_size=400), start=st.integers(0, 2**32 - 1), offset=st.integers(0, 15))
def test_equals_zlib(data: bytes, start: int, offset: int) -> None:
    view = memoryview(data)[offset:]
    assert stamp.crc32(view, start) == zlib.crc32(view, start)


@pytest.mark.parametrize("size", [1 << 16, (1 << 20) + 13])
def test_equals_zlib_without_the_gil(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert stamp.crc32(data) == zlib.crc32(data)


def test_the_fast_one_is_in_use_where_it_was_built() -> None:
    checksum = pytest.importorskip("ringmain._checksum", reason="no instructions for CRC-32 on this processor")
    assert stamp.crc32 is checksum.crc32


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        stamp.crc32("text")  # type: ignore[arg-type]


@settings(deadline=None)
@given(times=st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=50), first=st.integers(0, 49))
def test_times_are_split_as_divmod_does(times: list[int], first: int) -> None:
    checksum = pytest.importorskip("ringmain._checksum", reason="no instructions for CRC-32 on this processor")
    first = min(first, len(times) - 1)
    rows = len(times) - first
    micros, nanos = array("q", [0] * rows), array("h", [0] * rows)
    assert checksum.split_times(array("q", times), first, rows, micros, nanos) == (
        min(times[first:]), max(times[first:]),
    )  # fmt: skip
    assert list(zip(micros, nanos, strict=True)) == [divmod(t, 1000) for t in times[first:]]


def test_buffers_that_are_too_short_are_refused() -> None:
    checksum = pytest.importorskip("ringmain._checksum", reason="no instructions for CRC-32 on this processor")
    times, small = array("q", [1, 2, 3]), array("h", [0])
    for call in (
        lambda: checksum.split_times(times, 1, 3, array("q", times), array("h", [0] * 3)),
        lambda: checksum.split_times(times, 0, 3, array("q", times), small),
        lambda: checksum.split_times(times, 0, 0, times, small),
        lambda: checksum.fill(times, 1, 3, 7),
        lambda: checksum.fill(times, -1, 1, 7),
    ):
        with pytest.raises(ValueError):
            call()


def test_without_the_native_module_the_columns_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = [(3, 1_000_999), (7, 5_000)]
    ring = ring_batch(0, 10, lost=3)
    with_it = Envelope("me").wrap("t", 1, ring, recorded)
    monkeypatch.setattr("ringmain.recording.envelope.native", None)
    assert Envelope("me").wrap("t", 1, ring, recorded) == with_it
