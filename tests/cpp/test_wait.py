"""One wait of C++ for several subscribers, whose messages come from Python."""

from __future__ import annotations

import threading

import numpy as np

import ringmain as rm
from tests.conftest import PATIENCE_S
from tests.cpp.compiling import Participant

PATIENCE_MS = int(PATIENCE_S * 1000)


def test_a_wait_says_which_have_a_message(cpp: Participant) -> None:
    dtype = np.dtype([("x", "f4"), ("y", "f4")], align=True)
    assert cpp("subscriber", topic="a") == "ok"
    assert cpp("frames-subscriber", topic="frames") == "ok"
    assert cpp("wait") == "empty"
    assert cpp("wait", timeout=10) == "error 2 no message on any of 'a', 'frames' within 0.01 s"
    assert cpp("stopped-wait", timeout=10) == ("error 4 the wait for a message on one of 'a', 'frames' was stopped")
    with rm.Publisher("a", contract="reliable") as a, rm.FramePublisher("frames", size=8) as frames:
        assert cpp("wait", timeout=10).startswith("error 2 ")
        assert cpp("stopped-wait", timeout=10).startswith("error 4 ")
        later = threading.Timer(0.05, a.send, [b"one"])
        later.start()
        assert cpp("wait", timeout=PATIENCE_MS) == "ready 0"
        later.join()
        frames.send(bytes(8))
        assert cpp("wait", timeout=PATIENCE_MS) == "ready 0 1"
        assert cpp("wait-two", timeout=PATIENCE_MS) == "ok 2"
        assert cpp("receive").startswith("message 0 ")
        assert cpp("wait") == "ready 1"
        assert cpp("frames-receive").startswith("frame 0 ")
        assert cpp("frames-release") == "ok"
        assert cpp("wait") == "empty"
    with rm.Publisher("imu", type=dtype):
        assert cpp("imu-subscriber", topic="other") == "ok"
        with rm.Publisher("other", type=dtype):
            said = cpp("wait", timeout=PATIENCE_MS)
        assert said.startswith("error 11 topic 'other' is written as "), "a life of another type ends the wait"
    assert cpp("close") == "ok"


def test_a_wait_of_workers_ends_with_the_death_of_the_one_that_had_the_task(cpp: Participant, program: object) -> None:
    other = Participant(program)  # type: ignore[arg-type]
    with rm.Publisher("t", contract="work") as pub:
        assert other("subscriber", topic="t") == "ok"
        pub.send(b"task")
        assert other("borrow").startswith("message 0 0 0 ")
        assert cpp("subscriber", topic="t") == "ok"
        assert cpp("frames-subscriber", topic="none") == "ok"
        assert cpp("wait") == "empty"
        killer = threading.Timer(0.05, other.kill)
        killer.start()
        assert cpp("wait", timeout=PATIENCE_MS) == "ready 0"
        killer.join()
        assert cpp("receive") == "message 0 0 1 - - -7461736b"
    assert cpp("close") == "ok"
