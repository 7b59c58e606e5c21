"""A live recorder whose disk is full, whose directory goes away, or which may not write: it stops with an error that
says so, what it had flushed stays readable, and the publishers, though they wait for every reader, never notice.

The disk is a real tmpfs of one MiB (mounting needs root, as in CI) or, without it, a limit on the size of files; who
has no permission is another user, in a child."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ringmain as rm
from ringmain.errors import RecordingError
from tests.conftest import PATIENCE_S, Child

Until = Callable[[Callable[[], object]], None]


@pytest.fixture
def disk(small_disk: Path | None, tmp_path: Path) -> Iterator[Path]:
    """A directory in which a file cannot grow beyond two MiB: the topic's own fits."""
    if small_disk is not None:
        yield small_disk
        return
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, before[1]))
    yield tmp_path
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def publish_until_stopped(pub: rm.Publisher, recorder: rm.Recorder, size: int) -> int:
    """Sends until the recorder has stopped, and then as much as fills the ring several times; returns how many."""
    sent = pub.next_sequence
    while recorder.error is None:
        pub.send(b"%d " % sent + bytes(size), timeout=PATIENCE_S)
        sent += 1
    for _ in range(5 * pub.capacity // (size + 1)):
        pub.send(b"%d " % sent + bytes(size), timeout=PATIENCE_S)
        sent += 1
    return sent


def assert_readable(path: Path) -> int:
    """Nothing is damaged, and the rows are the first that were sent; returns how many."""
    recording = rm.Recording(path)
    assert recording.verify().ok
    numbers = [int(m.data.split(b" ")[0]) for m in recording]
    assert numbers == list(range(len(numbers)))
    return len(numbers)


@pytest.mark.parametrize("size", [500, 100_000])
def test_a_full_disk(disk: Path, size: int, until: Until) -> None:
    """Small messages are gathered and large ones written from where they lie: in both ways the disk may be full."""
    with rm.Publisher("t", contract="reliable", capacity="1MiB") as pub:
        recorder = rm.Recorder(disk / "r", "t", fsync="never", flush_interval_s=0.001).start()
        pub.send(b"0 ")
        until(lambda: len(rm.Recording(disk / "r")) == 1)
        publish_until_stopped(pub, recorder, size)
        assert rm.info("t").readers == []
        with pytest.raises(RecordingError, match="Recording has stopped") as caught:
            recorder.close()
        status = recorder.status()
        assert caught.value.errno in (errno.ENOSPC, errno.EFBIG)
        assert "messages that were taken are not in it" in str(caught.value)
        assert status.state == "failed"
        assert status.error == str(caught.value)
        assert 0 < assert_readable(disk / "r") <= status.messages


@pytest.mark.privileged
def test_room_again_and_the_next_recorder_goes_on(small_disk: Path | None) -> None:
    assert small_disk is not None, "root can mount"
    with rm.Publisher("t", contract="reliable", capacity="64KiB") as pub:
        recorder = rm.Recorder(small_disk / "r", "t", fsync="never", flush_interval_s=0.001).start()
        sent = publish_until_stopped(pub, recorder, 500)
        with pytest.raises(RecordingError):
            recorder.close()
        assert os.system(f"mount -o remount,size=64m {small_disk}") == 0
        with rm.Recorder(small_disk / "r", "t"):
            pub.send(b"%d " % sent)
    recording = rm.Recording(small_disk / "r")
    seen = -1
    for message in recording:
        assert message.seq - seen - 1 == message.lost, "what nobody recorded meanwhile is counted"
        seen = message.seq
    assert seen == sent
    assert all(ref.sealed for ref in recording.segments())


def test_the_directory_is_deleted(tmp_path: Path, until: Until) -> None:
    path = tmp_path / "r"
    with rm.Publisher("t", contract="reliable", capacity="64KiB") as pub:
        recorder = rm.Recorder(path, "t", fsync="never", flush_interval_s=0.01).start()
        pub.send(b"0 ")
        until(lambda: len(rm.Recording(path)) == 1)
        shutil.rmtree(path)
        publish_until_stopped(pub, recorder, 100)
        with pytest.raises(RecordingError, match=r"No such file or directory|was deleted"):
            recorder.close()


@pytest.mark.not_as_root
def test_the_permission_is_taken_away(tmp_path: Path, runtime_dir: Path, child: Callable[..., Child]) -> None:
    """Another user's recorder, as root is refused nothing, in a directory that turns read-only: the next segment cannot
    be made."""
    path = tmp_path / "r"
    path.mkdir()
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(0o755)
    if os.geteuid() == 0:
        for owned in (path, runtime_dir):
            os.chown(owned, 65534, 65534)
    script = """
    rm.Recorder, rm.Recording  # imported while it may read where Python is installed
    if os.geteuid() == 0: os.setuid(65534)
    with rm.Publisher("t", contract="reliable", capacity="64KiB") as pub:
        recorder = rm.Recorder(sys.argv[1], "t", fsync="never", flush_interval_s=0.01, segment_bytes=10_000).start()
        pub.send(b"0 ")
        while not len(rm.Recording(sys.argv[1])): time.sleep(0.002)
        say("recording"); hear()
        sent = 1
        while recorder.error is None or sent < 3000:
            pub.send(b"%d " % sent + bytes(100), timeout=30)
            sent += 1
        say(recorder.error)
        say(len(rm.info("t").readers))
    """
    process = child(script, path)
    assert process.line() == "recording"
    path.chmod(0o555)
    process.tell()
    error = process.line()
    assert "Permission denied" in error
    assert "Recording has stopped" in error
    assert process.line() == "0"
    process.finish()
    path.chmod(0o755)
    assert assert_readable(path) > 0


def test_the_command_says_it_in_one_sentence(disk: Path, child: Callable[..., Child]) -> None:
    script = """
    with rm.Publisher("t", contract="reliable", capacity="64KiB") as pub:
        say("ready")
        pub.wait_for_readers(1, timeout=30)
        i = 0
        while rm.info("t").readers:
            pub.send(b"%d " % i + bytes(500), timeout=30)
            i += 1
    """
    command = """
    import subprocess
    command = [sys.executable, "-m", "ringmain", "record", "t", "-o", sys.argv[1], "--flush-interval", "0.01"]
    done = subprocess.run(command, capture_output=True, text=True)
    say(done.returncode)
    say(done.stderr.strip().splitlines()[-1])
    """
    publisher = child(script)
    publisher.line()
    recorder = child(command, disk / "r")
    assert recorder.line() == "1"
    assert "No space left on device" in (said := recorder.line()) or "File too large" in said
    assert "Recording has stopped" in said
    recorder.finish()
    publisher.finish()
    assert assert_readable(disk / "r") > 0
