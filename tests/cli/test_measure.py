"""`hz`, `bw`, `delay`: what they measure, and that they are in nobody's way. Rates are checked against the counters
that were moved, never against the clock."""

from __future__ import annotations

import json

import pytest

import ringmain as rm
from ringmain._cli.commands.delay import delay_ns, percentile
from ringmain._cli.observe import Flow, Reading, flow
from tests.cli.conftest import PATIENCE_S


def reading(seconds, count, *, epoch=1, ring=0, written=None):
    return Reading(int(seconds * 1e9), epoch, count, ring, written or {})


def test_flow_between_two_readings():
    before = reading(10, 100, written={(0, 1): (100, 1000)})
    now = reading(12, 300, written={(0, 1): (300, 3000)})
    assert flow(before, now) == Flow(2.0, 200, 2000.0)
    assert flow(before, now).rate_hz == 100
    assert flow(before, now).bytes_per_s == 1000


def test_flow_when_a_writer_came_and_another_left():
    """The one that left took its counters along: the mean size of those that stayed stands for all."""
    before = reading(0, 100, written={(0, 1): (100, 1000)})
    now = reading(1, 140, written={(1, 1): (20, 400)})
    assert flow(before, now) == Flow(1.0, 40, 800.0)


def test_flow_without_writers_goes_by_the_ring():
    assert flow(reading(0, 0), reading(1, 10, ring=10 * (24 + 8))) == Flow(1.0, 10, 80)


def test_a_frame_counts_with_its_pixels():
    before = reading(0, 0, written={(0, 1): (0, 0)})
    now = Reading(int(1e9), 1, 10, 0, {(0, 1): (10, 640)}, frame_bytes=1000)
    assert flow(before, now) == Flow(1.0, 10, 10 * (64 + 1000))


def test_flow_of_a_topic_made_anew():
    assert flow(reading(0, 1000), reading(1, 5, epoch=2, ring=5 * 32)) == Flow(1.0, 5, 40)


def test_hz_and_bw(started, ringmain):
    with rm.Publisher("t") as pub:
        process = started("hz", "t", "--count", "1", "--interval", "0.5", "--json")
        while process.poll() is None:
            pub.send(b"12345678")
        told = json.loads(process.stdout.read())
        assert told["topic"] == "t"
        assert told["rate_hz"] == pytest.approx(told["messages"] / told["seconds"])
        assert told["messages"] > 0
        process = started("bw", "--count", "1", "--interval", "0.5", "--json")
        while process.poll() is None:
            pub.send(b"12345678")
        assert json.loads(process.stdout.read())["mean_bytes"] == 8
        shown = ringmain("hz", "--count", "1", "--interval", "0.01").out.splitlines()
        assert shown[0].split() == ["TOPIC", "HZ", "MESSAGES"]
        assert shown[1].split() == ["t", "0", "0"]


def test_hz_takes_no_slot_in_the_topic(started):
    with rm.Publisher("t") as pub:
        process = started("hz", "t", "--interval", "0.05", "--count", "5", "--json")
        assert process.stdout.readline()
        assert rm.info("t").readers == []
        pub.send(b"x")
        assert process.wait(PATIENCE_S) == 0


def test_delay(started, until):
    with rm.Publisher("t") as pub:
        process = started("delay", "t", "--interval", "0.05", "--count", "1", "--json")
        until(lambda: rm.info("t").readers)
        pub.send(b"x")
        told = json.loads(process.stdout.read())
        assert told["messages"] == 1
        assert 0 < told["p50_ns"] == told["max_ns"]


def test_delay_of_messages_from_the_future(started, until):
    with rm.Publisher("t") as pub:
        process = started("delay", "t", "--interval", "0.05", "--count", "1")
        until(lambda: rm.info("t").readers)
        pub._send_as(b"x", pub.next_sequence, 1 << 62)
        assert process.wait(PATIENCE_S) == 1
        assert "from the future" in process.stderr.read()


def test_the_noise_of_two_clocks_is_no_future():
    assert [delay_ns(10**18, 10**18 + passed) for passed in (700, -700)] == [700, 0]
    assert delay_ns(10**18, 10**18 - 10**6) == -(10**6)


def test_percentile():
    ordered = list(range(1, 101))
    assert [percentile(ordered, p) for p in (50, 90, 99, 100)] == [50, 90, 99, 100]
    assert percentile([7], 50) == 7
