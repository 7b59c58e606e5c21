"""Bytes handed over to be written in the background are in the file once, in order, or the failure is told; and their
memory is left alone until then, and not kept longer."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import weakref
from array import array
from pathlib import Path

import pytest

import ringmain as rm
from ringmain.recording import RecordingWriter
from ringmain.recording.format import stream_name
from ringmain.recording.spool import PlainSpool, Spool
from tests.recording.conftest import ring_batch

KINDS = [Spool, PlainSpool] if Spool is not PlainSpool else [PlainSpool]
SIZES = (0, 1, 1000, 100_000, 200_000, 3_000_000)  # small ones are written at once, large ones by the thread


@pytest.fixture
def fd(tmp_path: Path):
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield opened
    os.close(opened)


def content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_everything_comes_once_and_in_order(kind: type[Spool], fd: int, seed: int) -> None:
    chance, spool, sent = random.Random(seed), kind(), []
    for number in range(1, 40):
        pieces = [chance.randbytes(chance.choice(SIZES)) for _ in range(chance.randrange(1, 4))]
        assert spool.put(fd, pieces) == number
        assert spool.written <= number
        sent += pieces
    spool.wait()
    assert spool.written == 39
    assert content(fd) == b"".join(sent)


@pytest.mark.parametrize("kind", KINDS)
def test_more_pieces_than_one_call_takes(kind: type[Spool], fd: int) -> None:
    pieces = [bytes([i % 256]) * (i % 700) for i in range(1000 if kind is PlainSpool else 5000)]
    spool = kind()
    spool.put(fd, pieces)
    spool.wait()
    assert content(fd) == b"".join(pieces)


def test_after_a_failure_nothing_more_is_written(fd: int) -> None:
    spool = Spool()
    full = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError, match="No space") as caught:
        for size in (1_000_000, 1_000_000, 1_000_000):
            spool.put(full, [bytes(size)])
        spool.wait()
    assert caught.value.errno == errno.ENOSPC
    for size in (10, 1_000_000):
        with pytest.raises(OSError, match="No space"):
            spool.put(fd, [bytes(size)])
    with pytest.raises(OSError, match="No space"):
        spool.wait()
    assert spool.written == 0
    assert content(fd) == b""
    os.close(full)


def test_a_descriptor_that_cannot_be_written_is_told() -> None:
    spool = Spool()
    with pytest.raises(OSError, match="Bad file descriptor"):
        spool.put(-1, [b"x"])


@pytest.mark.skipif(Spool is PlainSpool, reason="there is no native module here")
def test_memory_is_kept_until_it_is_written_and_no_longer(fd: int) -> None:
    spool = Spool()
    data = array("b", bytes(2_000_000))
    gone = weakref.ref(data)
    spool.put(fd, [data])
    del data
    spool.wait()
    assert gone() is None
    assert os.fstat(fd).st_size == 2_000_000


@pytest.mark.skipif(Spool is PlainSpool, reason="there is no native module here")
def test_what_cannot_be_written_is_refused_and_nothing_is_written_of_it(fd: int) -> None:
    spool = Spool()
    data = bytearray(b"abc")
    with pytest.raises(TypeError):
        spool.put(fd, [data, "text"])  # type: ignore[list-item]
    data += b"d"  # nobody holds it any more
    with pytest.raises(TypeError):
        spool.put(fd, 7)  # type: ignore[arg-type]
    assert content(fd) == b""


def test_a_spool_that_is_dropped_has_written_everything(fd: int) -> None:
    spool = Spool()
    for _ in range(3):
        spool.put(fd, [bytes(1_000_000)])
    del spool
    assert os.fstat(fd).st_size == 3_000_000


def test_a_forked_child_ends(tmp_path: Path) -> None:
    """There the thread does not exist, and is not waited for."""
    script = """
import os, sys
from ringmain.recording.spool import Spool
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
spool = Spool()
spool.put(fd, [bytes(1_000_000)])
pid = os.fork()
if not pid:
    for call in (spool.wait, lambda: spool.put(fd, [b"x"])):
        try:
            call()
        except ProcessLookupError:
            continue
        os._exit(1)
del spool
if pid:
    _, status = os.waitpid(pid, 0)
    assert status == 0
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "f")], check=True, timeout=60)
    assert (tmp_path / "f").stat().st_size == 1_000_000


def blocks(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_blocks_allocated_ahead_are_given_back(tmp_path: Path) -> None:
    """Also by a recorder that stops in the middle; the file is never longer than what was written."""
    writer = RecordingWriter(tmp_path / "r", fsync="never", segment_bytes=1 << 40)
    for number in range(6):
        writer.append("t", 1, ring_batch(number * 1000, 1000, size=2000))
    writer.flush()
    path = tmp_path / "r" / stream_name(0)
    size = path.stat().st_size
    assert 12_000_000 < size < 13_000_000
    writer.abandon()
    assert path.stat().st_size == size
    os.sync()
    assert blocks(path) < size + (1 << 20)
    assert rm.Recording(tmp_path / "r").verify().ok
