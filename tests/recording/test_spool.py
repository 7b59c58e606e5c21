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
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typing_extensions import Buffer

import ringmain as rm
from ringmain._recording import Spool
from ringmain.errors import Corrupt, RecordingError
from ringmain.recording import RecordingWriter
from ringmain.recording._format import Position, stream_name
from ringmain.recording._record.tap import Tap
from tests.conftest import PATIENCE_S
from tests.recording.conftest import ring_batch

SIZES = (0, 1, 1000, 100_000, 200_000, 3_000_000)  # small ones are written at once, large ones by the thread


_MOST_PIECES = 1024  # in one system call


class PlainSpool:
    """The same in Python, as a reference: writes at once."""

    def __init__(self) -> None:
        self.written = 0
        self._error: OSError | None = None

    @property
    def failed(self) -> bool:
        return self._error is not None

    def put(self, fd: int, pieces: Sequence[Buffer], ahead: int = 0) -> int:
        self.wait()
        try:
            for first in range(0, len(pieces), _MOST_PIECES):
                _write(fd, pieces[first : first + _MOST_PIECES])
        except OSError as error:
            self._error = error
            raise
        self.written += 1
        return self.written

    def wait(self) -> None:
        if self._error is not None:
            raise self._error


def _write(fd: int, pieces: Sequence[Buffer]) -> None:
    total = sum(memoryview(piece).nbytes for piece in pieces)
    done = os.writev(fd, pieces)
    if done < total:  # rare: the disk is nearly full, or there are more than 2 GiB
        rest = memoryview(b"".join(pieces))[done:]
        while rest:
            rest = rest[os.write(fd, rest) :]


KINDS = [Spool, PlainSpool]


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
    pieces = [bytes([i % 256]) * (i % 700) for i in range(5000)]
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_that_comes_while_others_wait_is_told_to_all(kind: type[Spool]) -> None:
    """Whoever waits is never left waiting: jobs are finished in order, also by a failure."""
    full, piece = os.open("/dev/full", os.O_WRONLY), bytes(140_000)
    for _ in range(3000):
        spool = kind()
        assert not spool.failed
        with pytest.raises(OSError, match="No space"):
            for _ in range(10):
                spool.put(full, [piece])
        with pytest.raises(OSError, match="No space"):
            spool.wait()
        assert spool.failed
        assert spool.written == 0
    os.close(full)


@pytest.mark.not_as_root
def test_without_a_thread_to_be_had_it_writes_all_the_same(tmp_path: Path) -> None:
    script = """
import os, resource, sys, threading
from ringmain._recording import Spool
os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
try:
    threading.Thread(target=int).start()
except RuntimeError:
    pass
else:
    raise AssertionError("there are threads to be had")
spool = Spool()
for i in range(3):
    assert spool.put(1, [bytes([i]) * 1_000_000]) == i + 1
spool.wait()
assert spool.written == 3
"""
    if os.getuid() != 0:
        script = script.replace("os.setuid(65534)", "")
    with open(tmp_path / "f", "wb") as file:
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60, stdout=file)
    assert (tmp_path / "f").read_bytes() == b"".join(bytes([i]) * 1_000_000 for i in range(3))


def test_a_descriptor_that_cannot_be_written_is_told() -> None:
    spool = Spool()
    with pytest.raises(OSError, match="Bad file descriptor"):
        spool.put(-1, [b"x"])


def test_memory_is_kept_until_it_is_written_and_no_longer(fd: int) -> None:
    spool = Spool()
    data = array("b", bytes(2_000_000))
    gone = weakref.ref(data)
    spool.put(fd, [data])
    del data
    spool.wait()
    assert gone() is None
    assert os.fstat(fd).st_size == 2_000_000


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
from ringmain._recording import Spool
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


def test_a_forked_child_leaves_the_parents_file_alone(tmp_path: Path) -> None:
    """Neither cutting it nor waiting for a thread that it does not have."""
    script = """
import os, sys
sys.path.insert(0, sys.argv[2])
from ringmain.recording import RecordingWriter
from tests.recording.conftest import ring_batch
writer = RecordingWriter(sys.argv[1], fsync="never", segment_bytes=1 << 40)
for number in range(6):
    writer.append("t", 1, ring_batch(number * 1000, 1000, size=2000))
pid = os.fork()
if not pid:
    os.ftruncate = lambda *_: os._exit(7)
    writer.close()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
writer.append("t", 1, ring_batch(6000, 1000, size=2000))
writer.close()
"""
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "r"), root], check=True, timeout=60)
    recording = rm.Recording(tmp_path / "r")
    assert recording.verify().ok
    assert [m.seq for m in recording] == list(range(7000))


class LateSpool(PlainSpool):
    """Writes nothing before it is waited for: the slowest of disks."""

    def __init__(self) -> None:
        super().__init__()
        self._late: list[tuple[int, list[bytes]]] = []
        self._put = 0
        self.broken = False

    @property
    def failed(self) -> bool:
        return self.broken or super().failed

    def put(self, fd: int, pieces: Sequence[Buffer], ahead: int = 0) -> int:
        self._late.append((fd, [bytes(piece) for piece in pieces]))
        self._put += 1
        return self._put

    def wait(self) -> None:
        if self.broken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        late, self._late = self._late, []
        for fd, pieces in late:
            super().put(fd, pieces)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmain.recording._record.writer.Spool", LateSpool)


def test_a_position_is_of_what_is_in_the_file(tmp_path: Path, late: None) -> None:
    writer = RecordingWriter(tmp_path / "r", fsync="never", flush_interval_s=1000)
    done = []
    for number in range(3):
        writer.append("t", 1, ring_batch(number * 1000, 1000, size=2000), written=lambda n=number: done.append(n))
    assert writer.busy
    assert (writer.position, done) == (Position(0, 0), [])
    writer.flush()
    assert not writer.busy
    assert (writer.position, done) == (Position(0, 3000), [0, 1, 2])
    writer.append("t", 1, ring_batch(3000, 0), written=lambda: done.append(3))
    assert done == [0, 1, 2, 3]
    writer.abandon()


@pytest.mark.parametrize("call", ["tick", "flush", "append", "close"])
def test_a_failure_in_the_background_is_told_by_the_next_call(tmp_path: Path, late: None, call: str) -> None:
    """With how many messages are not in the recording, those that are just being appended included; and whatever was
    lent is given back."""
    writer = RecordingWriter(tmp_path / "r", fsync="never", flush_interval_s=1000)
    done = []
    writer.append("t", 1, ring_batch(0, 1000, size=2000))
    writer.settle()
    writer.append("t", 1, ring_batch(1000, 1000, size=2000), written=lambda: done.append(1))
    writer.append("t", 1, ring_batch(2000, 7), written=lambda: done.append(2))
    writer._spool.broken = True
    missing = 1007
    with pytest.raises(RecordingError) as caught:
        if call == "append":
            missing += 100
            writer.append("t", 1, ring_batch(3000, 100))
        else:
            getattr(writer, call)()
    assert f"{missing} messages that were taken are not in it" in str(caught.value)
    assert sorted(done) == [1, 2]
    assert writer.position == Position(0, 1000)


def test_a_topic_in_trouble_is_set_aside_while_its_messages_are_being_written(
    tmp_path: Path, late: None, until: Callable[[Callable[[], object]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are given back first, and the recorder goes on with the others."""
    take, lent = Tap.take, []

    def troubled(tap: Tap, *args: int) -> object:
        if tap.topic == "bad" and lent and lent[-1]:
            lent.append(0)
            raise Corrupt("this ring contradicts itself")
        taken = take(tap, *args)
        if tap.topic == "bad" and taken is not None:
            lent.append(len(taken.in_place))
        return taken

    monkeypatch.setattr(Tap, "take", troubled)
    with rm.Publisher("bad", contract="reliable", capacity="4MiB") as bad, rm.Publisher("good") as good:
        with rm.Recorder(tmp_path / "r", ["bad", "good"], fsync="never") as recorder:
            while 0 not in lent[1:]:
                bad.send(bytes(100_000), timeout=PATIENCE_S)
            good.send(b"still here")
            until(lambda: any(t.topic == "good" and t.messages for t in recorder.status().topics))
            assert recorder.error is None
    assert rm.Recording(tmp_path / "r").verify().ok
