"""The wall clock may be set: by NTP, by a person, when a virtual machine resumes. No interval is measured by it, so
nothing comes early or late.

How: a preload moves the wall clock of real processes by an hour, while they run or before they start. What would come
an hour late never comes within the patience of these tests; what would expire does.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ringmain as rm
from tests import preloads
from tests.conftest import PATIENCE_S

HOUR_S = 3600
BOTH_WAYS = pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S], ids=["set back", "set forward"])


class WallClock:
    """Of the children that are started with `env`."""

    def __init__(self, directory: Path, preload: Path) -> None:
        self._file = directory / "ahead"
        self.env = {"LD_PRELOAD": str(preload), "WALL_CLOCK_AHEAD": str(self._file)}
        self._file.write_bytes(struct.pack("q", 0))

    def set(self, ahead_s: int) -> None:
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", ahead_s))


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return preloads.build("wall_clock", tmp_path_factory.mktemp("preload"))


@pytest.fixture
def wall_clock(tmp_path: Path, preload: Path) -> WallClock:
    return WallClock(tmp_path, preload)


def test_the_preload_moves_the_wall_clock_alone(child: Callable[..., Any], wall_clock: WallClock) -> None:
    wall_clock.set(HOUR_S)
    there = child("say(time.time(), time.monotonic())", env=wall_clock.env)
    wall_s, monotonic_s = map(float, there.line().split())
    assert abs(wall_s - HOUR_S - time.time()) < PATIENCE_S
    assert abs(monotonic_s - time.monotonic()) < PATIENCE_S
    there.finish()


STEPPED = """
with rm.Publisher("t", capacity=4096, contract="reliable") as pub, rm.Subscriber("t") as sub:
    say("ready")
    while hear() == "again":
        for i in range(20):
            pub.send(b"x"); time.sleep(0.0001)
        times = [sub.recv_message(timeout=60).time_ns for _ in range(20)]
        try: sub.recv(timeout=0.01); say("something came")
        except rm.Timeout: say("ok", times[-1] // 10**9, int(time.time()), sub.lost)
"""


def test_publish_times_follow_the_clock_and_waits_do_not(child: Callable[..., Any], wall_clock: WallClock) -> None:
    stepped = child(STEPPED, env=wall_clock.env)
    assert stepped.line() == "ready"
    published = []
    for ahead_s in (0, HOUR_S, -HOUR_S, 0, -365 * 24 * HOUR_S):
        wall_clock.set(ahead_s)
        stepped.tell("again")
        word, sent_s, now_s, lost = stepped.line().split()
        assert (word, lost) == ("ok", "0")
        assert abs(int(now_s) - int(sent_s)) <= PATIENCE_S  # of the stepped clock, however slow the machine
        published.append(int(sent_s) - ahead_s)
    assert max(published) - min(published) < 600  # without the steps: the time that the test took
    stepped.tell("enough")
    stepped.finish()


WORKER = """
with rm.Subscriber("jobs", name=sys.argv[1]) as jobs:
    say("ready")
    for job in jobs:
        say(job.decode())
        if sys.argv[1] == "victim":
            hear()
        if job == b"end":
            break
"""


@BOTH_WAYS
def test_what_a_dead_worker_had_is_given_back(child: Callable[..., Any], wall_clock: WallClock, step_s: int) -> None:
    with rm.Publisher("jobs", contract="work") as jobs:
        victim = child(WORKER, "victim", env=wall_clock.env)
        assert victim.line() == "ready"
        jobs.send(b"first")
        assert victim.line() == "first"
        heir = child(WORKER, "heir", env=wall_clock.env)
        assert heir.line() == "ready"
        jobs.send(b"second")
        assert heir.line() == "second"
        wall_clock.set(step_s)
        jobs.send(b"third")  # it looks for dead workers, by a clock that has been set
        assert heir.line() == "third"
        victim.kill()
        assert heir.line() == "first"
        jobs.send(b"end")
        assert heir.finish() == ["end"]


SERVER = """
with rm.Server("svc") as server:
    say("ready")
    for request in server:
        request.reply(request.data)
        if request.data == b"end":
            break
"""


@BOTH_WAYS
def test_a_server_goes_on_with_its_upkeep(
    child: Callable[..., Any], wall_clock: WallClock, until: Callable[..., None], step_s: int
) -> None:
    there = child(SERVER, env=wall_clock.env)
    assert there.line() == "ready"
    with rm.Client("svc") as client:
        client.call(b"x", timeout=PATIENCE_S)
        until(lambda: rm.service("svc").requests == 1)
        wall_clock.set(step_s)
        client.call(b"x", timeout=PATIENCE_S)
        until(lambda: rm.service("svc").requests == 2)
        assert rm.service("svc").rate_hz > 0, "a report just made is not stale"
        client.call(b"end", timeout=PATIENCE_S)
        there.finish()


@BOTH_WAYS
def test_no_request_expires_because_the_clock_was_set(
    child: Callable[..., Any], wall_clock: WallClock, step_s: int
) -> None:
    with rm.Client("svc") as client:
        futures = [client.submit(b"%d" % i, timeout=PATIENCE_S) for i in range(5)]
        wall_clock.set(step_s)
        there = child(SERVER, env=wall_clock.env)
        assert [future.result() for future in futures] == [b"%d" % i for i in range(5)]
        client.call(b"end", timeout=PATIENCE_S)
        there.finish()


@BOTH_WAYS
def test_nor_does_one_stay_that_has(child: Callable[..., Any], wall_clock: WallClock, step_s: int) -> None:
    with rm.Client("svc") as client:
        with pytest.raises(rm.Timeout):
            client.call(b"late", timeout=0.01)
        wall_clock.set(step_s)
        there = child(
            """
            with rm.Server("svc") as server:
                request = next(server)
                say(request.data.decode(), request.deadline_ns > time.monotonic_ns(), request.expired)
                request.reply(b"")
            """,
            env=wall_clock.env,
        )
        client.call(b"in time", timeout=PATIENCE_S)
        assert there.finish() == ["in time True False"]


@BOTH_WAYS
def test_the_rate_of_a_topic_stays_right(child: Callable[..., Any], wall_clock: WallClock, step_s: int) -> None:
    there = child(
        """
        import threading
        over = threading.Event()
        def send():
            first_s, number = time.monotonic(), 0
            while not over.wait(max(0.0, first_s + number / 20 - time.monotonic())):
                pub.send(b"")
                number += 1
        def becomes_right():
            while not latest.rate_ok["imu"]:
                latest.update()
        with rm.Publisher("imu") as pub, rm.Latest({"imu": 20.0}) as latest:
            sender = threading.Thread(target=send)
            sender.start()
            becomes_right()
            say("right")
            hear()
            for _ in range(10):
                latest.update()
            becomes_right()
            say("still right")
            over.set()
            sender.join()
        """,
        env=wall_clock.env,
    )
    assert there.line() == "right"
    wall_clock.set(step_s)
    there.tell()
    assert there.line() == "still right"
    there.finish()


def test_frames_keep_their_rate(child: Callable[..., Any], wall_clock: WallClock) -> None:
    there = child(
        """
        with rm.FramePublisher("camera", size=16) as camera:
            for _ in range(8):
                with camera.frame(): pass
                time.sleep(0.05)
            say("half")
            hear()
            with camera.frame(): pass
            say("all")
            hear()
        """,
        env=wall_clock.env,
    )
    assert there.line() == "half"
    wall_clock.set(HOUR_S)
    there.tell()
    assert there.line() == "all"
    assert rm.frames.frame_topic("camera").rate > 1 / PATIENCE_S
    there.tell()
    there.finish()


def test_a_recorder_counts_from_the_first_message_of_a_topic_made_after_it(
    child: Callable[..., Any], wall_clock: WallClock, tmp_path: Path, until: Callable[..., None]
) -> None:
    pytest.importorskip("pyarrow", reason="there is no pyarrow, so nothing can be recorded")
    wall_clock.set(-HOUR_S)
    with rm.Recorder(tmp_path / "r", "*") as recorder:
        there = child(
            """
            with rm.Publisher("t", capacity=4096) as pub:
                pub.send_many([bytes(16)] * 1000)
                say("sent")
                hear()
            """,
            env=wall_clock.env,
        )
        assert there.line() == "sent"
        until(lambda: recorder.status().messages + recorder.status().lost == 1000)
        there.tell()
        there.finish()
