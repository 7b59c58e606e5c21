"""The fast CRC-32 is zlib's CRC-32: for every length around its block sizes, every alignment, and any start."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmain.recording import stamp


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
