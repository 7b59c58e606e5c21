"""C++ programs die at the crash points that the lab's topics have not: those of frames, of kept kinds, and of a task
that a dead worker had; Python goes on, and the other way round. The lab has all the others
(tests/lab/test_killed_everywhere.py)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import ringmain as rm
from ringmain.testing import crash_points, die_at
from tests.conftest import PATIENCE_S
from tests.cpp.compiling import Participant, hexed

PATIENCE_MS = int(PATIENCE_S * 1000)
FRAMES = [label for label in crash_points() if label.startswith("frame:")]
OF_READERS = ("frame: lease announced", "frame: hold changed, bell not rung")
KEEPS = [label for label in crash_points() if label.startswith("keep:")]
CAMERA = {"topic": "camera", "bytes": 6, "buffers": 2}


def died(participant: Participant, *commands: tuple[str, dict[str, object]], before_last: Callable[[], object]) -> bool:
    """Did it die of one of them?"""
    for number, (command, words) in enumerate(commands):
        if number == len(commands) - 1:
            before_last()
        with suppress(BrokenPipeError):
            if participant.answers(command, **words):
                continue
        return participant.end() == -signal.SIGKILL
    return False


@pytest.mark.parametrize("label", FRAMES)
def test_python_goes_on_where_frames_of_cpp_end(program: Path, runtime_dir: Path, label: str) -> None:
    victim = Participant(program, crash=label)
    with rm.FrameSubscriber("camera", name="survivor") as sub:
        with rm.FramePublisher("camera", size=6, buffers=2) as pub:  # its pool stays for the next one to replace
            pub.send(b"before")
            sub.recv(timeout=PATIENCE_S).release()
            if label in OF_READERS:
                commands = [("frames-subscriber", {"topic": "camera"}), ("frames-receive", {"timeout": PATIENCE_MS})]
                assert died(victim, *commands, before_last=lambda: pub.send(b"victim"))
        if label not in OF_READERS:
            commands = [("frames-publisher", CAMERA), ("frames-begin", {"fill": 1}), ("frames-commit", {})]
            assert died(victim, *commands, before_last=lambda: None)
        with rm.FramePublisher("camera", size=6, buffers=2) as pub:
            for number in range(5):  # more than there are buffers
                pub.send(b"%06d" % number, timeout=PATIENCE_S)
                frame = sub.recv(timeout=PATIENCE_S)
                if frame.data == b"victim":
                    frame.release()
                    frame = sub.recv(timeout=PATIENCE_S)
                assert bytes(frame.data) == b"%06d" % number
                frame.release()


PYTHON = {
    "publisher": "with rm.FramePublisher('camera', size=6, buffers=2) as pub:\n pub.send(b'victim')\n",
    "reader": "with rm.FrameSubscriber('camera') as sub:\n print('there', flush=True)\n sub.recv().release()\n",
}


@pytest.mark.parametrize("label", FRAMES)
def test_cpp_goes_on_where_frames_of_python_end(cpp: Participant, label: str) -> None:
    role = "reader" if label in OF_READERS else "publisher"
    assert cpp("frames-subscriber", topic="camera", name="survivor") == "ok"
    assert cpp("frames-publisher", **CAMERA) == "ok"
    words = [sys.executable, "-c", f"import ringmain as rm\n{PYTHON[role]}"]
    if role == "publisher":
        assert cpp("frames-close-publisher") == "ok"  # its pool stays, for the next one to replace
        assert subprocess.run(words, env={**os.environ, **die_at(label)}).returncode == -signal.SIGKILL
        assert cpp("frames-publisher", **CAMERA) == "ok"
    else:
        with subprocess.Popen(words, env={**os.environ, **die_at(label)}, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout
            assert child.stdout.readline() == "there\n"
            assert cpp("frames-begin", fill=1, timeout=PATIENCE_MS) == "ok 6"
            assert cpp("frames-commit").startswith("ok ")
            assert child.wait() == -signal.SIGKILL
        assert cpp("frames-receive", timeout=PATIENCE_MS).startswith("frame ")
        assert cpp("frames-release") == "ok"
    for number in range(5):
        assert cpp("frames-begin", fill=number, timeout=PATIENCE_MS) == "ok 6"
        assert cpp("frames-commit").startswith("ok ")
        assert cpp("frames-receive", timeout=PATIENCE_MS).endswith(f":6:1:{number}")
        assert cpp("frames-release") == "ok"
    assert cpp("close") == "ok"


@pytest.mark.parametrize("label", KEEPS)
def test_a_cpp_writer_dies_while_it_keeps_a_message(program: Path, runtime_dir: Path, label: str) -> None:
    victim = Participant(program, crash=label)
    with rm.Subscriber("t", on_lap="oldest") as sub:
        opening = {"topic": "t", "contract": "bus", "keep": 4, "capacity": 4096}
        assert victim("publisher", **opening) == "ok"
        sends = [("send", {"data": hexed(b"%04d" % number), "kind": "k"}) for number in range(1000)]
        assert died(victim, ("publisher", opening), *sends, before_last=lambda: None)
        with rm.Publisher("t", contract="bus", keep_last_per_kind=4) as pub:
            for _ in range(200):
                pub.send(b"other", kind="o", timeout=PATIENCE_S)
            with rm.Subscriber("t", start="newest") as late:
                kept = {late.recv_message(timeout=PATIENCE_S).kind: 1 for _ in range(2)}
            assert kept == {"k": 1, "o": 1}
            assert sub.recv(timeout=PATIENCE_S) in (b"other", *(b"%04d" % number for number in range(1000)))


def test_a_cpp_worker_dies_while_it_gives_back_what_a_dead_one_had(program: Path, runtime_dir: Path) -> None:
    first, second = Participant(program), Participant(program, crash="reap: message given back, hold kept")
    with rm.Publisher("t", contract="work") as pub:
        assert first("subscriber", topic="t") == "ok"
        pub.send(b"task")
        assert first("borrow").startswith("message 0 ")
        assert second("subscriber", topic="t") == "ok"
        first.kill()
        assert second.dies("borrow", timeout=PATIENCE_MS)
        with rm.Subscriber("t") as sub:
            assert sub.recv(timeout=PATIENCE_S) == b"task"
