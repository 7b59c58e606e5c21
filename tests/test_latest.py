"""Latest: the newest of many topics with one wait, and honest about which of them are alive, on time and whole."""

from __future__ import annotations

import math
import time

import msgspec
import numpy as np
import pytest

import ringmain as rm
from ringmain import _latest as latest_module
from ringmain.testing import fake
from tests.conftest import PATIENCE_S


class Imu(msgspec.Struct):
    x: float


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock that Latest sees, moved by hand."""
    now = [1000.0]
    monkeypatch.setattr(latest_module.time, "monotonic", lambda: now[0])
    return now


def test_newest_of_each() -> None:
    with rm.Latest({"imu": None, "gps": None}) as latest:
        assert not latest.update(timeout=0)
        assert latest["imu"] is None
        assert dict(latest.seen) == {"imu": False, "gps": False}
        assert latest.age_s["imu"] == math.inf
        with rm.Publisher("imu") as imu, rm.Publisher("gps") as gps:
            imu.send(b"1")
            imu.send(b"2")
            assert latest.update(timeout=PATIENCE_S)
            assert (latest["imu"], latest.updated["imu"], latest.updated["gps"]) == (b"2", True, False)
            assert latest.lost["imu"] == 0, "it read the first, and has a newer one"
            gps.send(b"g")
            assert latest.update(timeout=PATIENCE_S)
            assert (latest["gps"], latest.updated["imu"]) == (b"g", False)
            assert latest["imu"] == b"2"
            assert latest.message["imu"].seq == 1  # type: ignore[union-attr]
            assert latest.all_alive


def test_typed_by_class_or_by_schema() -> None:
    with (
        rm.Publisher("imu", type=Imu) as pub,
        rm.Latest({"imu": None}, types={"imu": Imu}) as by_class,
        rm.Latest({"imu": None}) as by_schema,
    ):
        pub.send(Imu(1.5))
        assert by_class.update(PATIENCE_S)
        assert by_schema.update(PATIENCE_S)
        assert by_class["imu"] == Imu(1.5)
        decoded = by_schema["imu"]
        assert (decoded["x"] if isinstance(decoded, dict) else decoded.x) == 1.5


def test_what_does_not_decode_says_so() -> None:
    with rm.Publisher("imu", type=Imu) as pub, rm.Latest({"imu": None}, types={"imu": Imu}) as latest:
        with pub.reserve(3) as raw:
            raw[:] = b"\xff\xff\xff"
        assert latest.update(PATIENCE_S)
        with pytest.raises(rm.DecodeError, match="message 0 of topic 'imu'"):
            latest["imu"]
        pub.send(Imu(2.0))
        assert latest.update(PATIENCE_S)
        assert latest["imu"] == Imu(2.0)


def test_alive_within_ten_periods(clock: list[float]) -> None:
    with rm.Publisher("imu") as pub, rm.Latest({"imu": 100.0}) as latest:
        assert not latest.alive["imu"]
        pub.send(b"1")
        latest.update(PATIENCE_S)
        assert latest.alive["imu"]
        clock[0] += 0.09
        assert latest.alive["imu"]
        assert latest.age_s["imu"] == pytest.approx(0.09)
        clock[0] += 0.02
        assert not latest.alive["imu"]
        assert not latest.rate_ok["imu"]


@pytest.mark.parametrize(("period_ms", "ok"), [(10, True), (11, True), (20, False), (5, False)])
def test_rate(clock: list[float], period_ms: int, ok: bool) -> None:
    with rm.Publisher("imu") as pub, rm.Latest({"imu": 100.0}) as latest:
        for _ in range(50):
            clock[0] += period_ms / 1000
            pub.send(b"")
            latest.update(PATIENCE_S)
        assert latest.rate_ok["imu"] is ok


def test_a_rate_that_goes_wrong_is_noticed(clock: list[float]) -> None:
    with rm.Publisher("imu") as pub, rm.Latest({"imu": 100.0}) as latest:
        for _ in range(1000):
            clock[0] += 0.01
            pub.send(b"")
            latest.update(PATIENCE_S)
        assert latest.rate_ok["imu"]
        for _ in range(40):
            clock[0] += 0.03
            pub.send(b"")
            latest.update(PATIENCE_S)
        assert not latest.rate_ok["imu"]


def test_a_rate_is_measured_between_publish_times_not_looks(clock: list[float]) -> None:
    """A message that waited for a late look counts from when it was sent."""
    with rm.Publisher("gps") as pub, rm.Latest({"gps": 1.0}) as latest:
        for i in range(40):
            clock[0] += 1
            waits_s = 0.4 * (i % 3)
            pub._send_as(b"", i, time.time_ns() - int(waits_s * 1e9))
            clock[0] += waits_s
            latest.update(PATIENCE_S)
            clock[0] -= waits_s
        entry = latest._entries["gps"]
        assert entry.newest is not None
        assert entry.mark is not None
        span_s = entry.newest.sent_s - entry.mark.sent_s
        assert span_s == pytest.approx(entry.newest.seq - entry.mark.seq, abs=0.2)


@pytest.mark.parametrize("step_s", [-3600, 3600, -50])
def test_a_rate_stays_right_when_the_wall_clock_is_set(clock: list[float], step_s: int) -> None:
    """Also that of a publisher on another machine, or of a recording that is played."""
    with rm.Publisher("gps") as pub, rm.Latest({"gps": 1.0}) as latest:
        for i in range(100):
            clock[0] += 1
            pub._send_as(b"", i, time.time_ns() + (step_s * 10**9 if i >= 50 else 0))
            latest.update(PATIENCE_S)
            assert latest.rate_ok["gps"] or i == 0, i


def test_lost_is_counted() -> None:
    with rm.Publisher("imu", capacity=4096) as pub, rm.Latest({"imu": None}) as latest:
        for i in range(1000):
            pub.send(b"%d" % i)
        pub.send(b"last")
        taken = 0
        while latest.update(timeout=0):
            taken += 1
        pub.send(b"after")
        assert latest.update(PATIENCE_S)
        assert latest["imu"] == b"after"
        assert 0 < latest.lost["imu"] <= 1001


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="Hz"):
        rm.Latest({"imu": -1.0})
    with pytest.raises(ValueError, match="not watched"):
        rm.Latest({"imu": None}, types={"gps": Imu})
    with pytest.raises(TypeError, match=r"Latest takes a dict of topics and their expected rates.*\['imu'\]"):
        rm.Latest(["imu"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a topic's name"):
        rm.Latest({"no spaces": None})


def test_a_frame_topic_gives_its_newest_frame() -> None:
    with rm.FramePublisher("cam", (2, 2), buffers=2) as cam, rm.Latest({"cam": None, "imu": None}) as latest:
        for number in range(3):
            cam.send(np.full((2, 2), number, "u1"))
            assert latest.update(timeout=PATIENCE_S)
            frame = latest["cam"]
            assert isinstance(frame, rm.Frame)
            assert set(frame.array.flat) == {number}
            assert latest.message["cam"] is frame
            assert frame.held
        assert (frame.seq, latest.lost["cam"]) == (2, 0)
        latest.close()
        assert not frame.held


def test_a_topic_may_turn_out_to_be_a_frame_topic_and_back() -> None:
    with rm.Latest({"cam": None}) as latest:
        with rm.FramePublisher("cam", 4) as cam:
            assert latest.update(timeout=0) is False
            cam.send(np.full(4, 7, "u1"))
            assert latest.update(timeout=PATIENCE_S)
            assert set(latest["cam"].array) == {7}
        with rm.Publisher("cam") as cam:
            cam.send(b"plain")
            while not latest.update(timeout=PATIENCE_S):
                pass
            assert latest["cam"] == b"plain"
        assert latest.lost["cam"] == 0


def test_one_that_starts_late_has_the_newest_of_each() -> None:
    with rm.Publisher("a") as a, rm.Publisher("b") as b:
        a.send(b"old")
        a.send(b"new")
        b.send(b"only")
        with rm.Latest({"a": None, "b": None}, start="oldest") as late, rm.Latest({"a": None}) as usual:
            assert late.update(timeout=0)
            assert (late["a"], late["b"]) == (b"new", b"only")
            assert not usual.update(timeout=0)


def test_how_long_a_topic_is_alive_can_be_said() -> None:
    with rm.Publisher("a") as a:
        topics = {"a": 1e6}
        with rm.Latest(topics, alive_periods=1e9) as patient, rm.Latest(topics, alive_periods=1e-9) as strict:
            a.send(b"x")
            assert patient.update(timeout=5)
            assert strict.update(timeout=5)
            assert patient.alive["a"]
            assert not strict.alive["a"]
    with pytest.raises(ValueError, match="above 0"):
        rm.Latest({"a": 1.0}, alive_periods=0)


def test_a_loop_at_a_fixed_rate_tells_how_late_it_was() -> None:
    """In a fake world, where time passes only while the loop sleeps."""
    with fake(), rm.Publisher("imu") as pub, rm.Latest({"imu": None}) as latest:
        spent = [0.0, 0.004, 0.0125, 0.035, 0.0]  # in each round, of a period of 0.01
        ticks = []
        for tick in latest.rate(100):
            ticks.append(tick)
            if tick.number == 1:
                pub.send(b"1")
            if len(ticks) == len(spent):
                break
            time.sleep(spent[len(ticks) - 1])
        assert [tick.number for tick in ticks] == [0, 1, 2, 3, 6]
        assert [tick.missed for tick in ticks] == [0, 0, 0, 0, 2]
        assert [round(tick.late_s, 6) for tick in ticks] == [0, 0, 0, 0.0025, 0.0075]
        assert [tick.updated for tick in ticks] == [False, False, True, False, False]
        assert latest["imu"] == b"1"


def test_the_loop_ends_when_it_is_closed_and_refuses_nonsense() -> None:
    latest = rm.Latest({"imu": None})
    ticks = latest.rate(1000)
    assert next(ticks).number == 0
    latest.close()
    assert list(ticks) == []
    with pytest.raises(ValueError, match="rate_hz is a number of Hz above 0, not 0"):
        latest.rate(0)
