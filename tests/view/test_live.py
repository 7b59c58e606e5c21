"""Live topics as a source: what is sent is seen, what is left out is counted, what happens to participants is told, and
no publisher notices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import msgspec
import numpy
import pytest

import ringmain as rm
from ringmain.view._counts import sentence
from ringmain.view._live import NAME, LiveTopics
from ringmain.view._shown import Event, Image, Pixels, Series, Shown, Texts
from tests.conftest import PATIENCE_S


class Imu(msgspec.Struct):
    value: float


Taken = list[tuple[str, Shown]]


@pytest.fixture
def live() -> Iterator[LiveTopics]:
    with closing(LiveTopics([], hz=1000, points_hz=1000)) as source:
        yield source


def until(live: LiveTopics, enough: Callable[[Taken], Any]) -> Taken:
    """What it gives until that is enough."""
    taken: Taken = []
    end_s = time.monotonic() + PATIENCE_S
    while not enough(taken):
        assert time.monotonic() < end_s, f"not seen: {taken[-20:]}"
        taken += [(topic, thing) for topic, things in live.take() for thing in things]
        time.sleep(0.01)
    return taken


def joined(live: LiveTopics, *topics: str) -> None:
    until(live, lambda _: set(topics) <= live.counts.keys())


def events(taken: Taken, topic: str) -> list[Event]:
    return [thing for name, thing in taken if name == topic and isinstance(thing, Event)]


def said(part: str, topic: str) -> Callable[[Taken], bool]:
    return lambda taken: any(part in event.text for event in events(taken, topic))


@pytest.mark.parametrize("contract", ["broadcast", "pipe", "bus", "reliable", "work"])
def test_every_message_is_seen_whatever_the_contract(live: LiveTopics, contract: Any) -> None:
    with rm.Publisher("imu", type=Imu, contract=contract) as pub:
        joined(live, "imu")
        assert [each.role for each in rm.info("imu").readers] == ["observer"]
        for number in range(5):
            pub.send(Imu(number))
        taken = until(live, lambda _: live.counts["imu"].messages == 5)
        values = [value for _, thing in taken if isinstance(thing, Series) for value in thing.values.tolist()]
        assert live.counts["imu"].points_left_out == 5 - len(values)
        assert {0.0, 4.0} <= set(values)
        rm.unlink("imu", force=True)  # a pipe keeps what its reader has not read, and it has none


def test_a_topic_that_comes_later_is_seen_with_its_newest_message(live: LiveTopics) -> None:
    until(live, lambda _: True)
    with rm.Publisher("log", type=str) as pub:
        pub.send("started")
        taken = until(live, lambda taken: any(isinstance(thing, Texts) for _, thing in taken))
    assert [thing.texts for _, thing in taken if isinstance(thing, Texts)] == [["started"]]


def test_a_topic_of_another_type_under_the_same_name(live: LiveTopics) -> None:
    with rm.Publisher("it", type=Imu) as pub:
        joined(live, "it")
        pub.send(Imu(1.0))
        until(live, lambda taken: any(isinstance(thing, Series) for _, thing in taken))
    rm.unlink("it", force=True)
    with rm.Publisher("it", type=str) as pub:
        pub.send("another")
        until(live, lambda taken: any(isinstance(thing, Texts) for _, thing in taken))


def test_frames_are_conflated_and_counted(live: LiveTopics) -> None:
    layout = rm.FrameLayout.of_image("rgb", 16, 8)
    with rm.FramePublisher("camera", layout=layout) as pub:
        joined(live, "camera")
        for level in range(7):
            with pub.frame() as frame:
                frame.array[:] = level
        taken = until(live, lambda taken: any(isinstance(thing, Image) for _, thing in taken))
        assert rm.info("camera").readers == []  # a frame is copied without joining
    image = next(thing for _, thing in taken if isinstance(thing, Image))
    assert isinstance(image.picture, Pixels)
    assert (image.picture.format, image.picture.array.shape) == ("rgb", (8, 16, 3))
    assert (image.picture.array == 6).all()


def test_what_is_left_out_is_counted_and_said() -> None:
    with closing(LiveTopics([], hz=1000, points_hz=0.001)) as live, rm.Publisher("imu", type=Imu) as pub:
        joined(live, "imu")
        pub.send_many([Imu(float(number)) for number in range(100)])
        until(live, lambda _: live.counts["imu"].messages == 100)
        counts = live.counts["imu"]
        assert counts.points + counts.points_left_out == 100
        assert counts.points_left_out >= 90
        assert sentence(live.counts) == f"imu: {counts.points_left_out} of 100 points"


def test_a_view_that_is_lapped_says_so(live: LiveTopics) -> None:
    with rm.Publisher("imu", capacity="4KiB") as pub:
        joined(live, "imu")
        for _ in range(1000):
            pub.send(b"x" * 64)
        taken = until(live, said("this view lost", "imu"))
        counts = live.counts["imu"]
        assert counts.lost + counts.messages == 1000
        assert [event.level for event in events(taken, "imu")] == ["WARN"]


def test_losses_of_others_and_who_comes_and_goes(live: LiveTopics) -> None:
    with rm.Publisher("imu", capacity="4KiB", name="sensor") as pub:
        joined(live, "imu")
        with rm.Subscriber("imu", name="slow") as slow:
            taken = until(live, said("reader 'slow'", "imu"))
            for _ in range(1000):
                pub.send(b"x" * 64)
            slow.try_recv()
            lost = slow.lost
            taken += until(
                live, said(f"reader 'slow' (pid {rm.info('imu').writers[0].pid}) lost {lost:,} messages", "imu")
            )
        taken += until(live, said("is gone", "imu"))
    texts = [event.text for event in events(taken, "imu") if "'slow'" in event.text]
    assert "joined" in texts[0]
    assert "is gone" in texts[-1]


def test_a_death_is_an_event(live: LiveTopics, child: Any) -> None:
    with rm.Subscriber("imu", name="reader"):
        sensor = child('pub = rm.Publisher("imu", name="sensor")\npub.send(b"x")\nsay("sent")\nhear()')
        assert sensor.line() == "sent"
        joined(live, "imu")
        sensor.kill()
        taken = until(live, said("writer 'sensor'", "imu"))
        died = next(event for event in events(taken, "imu") if "'sensor'" in event.text)
        assert (died.level, died.text) == ("ERROR", f"writer 'sensor' (pid {sensor.pid}) died")


def test_lag_and_recovery(live: LiveTopics) -> None:
    with rm.Publisher("jobs", contract="reliable", capacity="4KiB") as pub, rm.Subscriber("jobs", name="slow") as slow:
        joined(live, "jobs")
        for _ in range(30):
            pub.send(b"x" * 64)
        until(live, said("30 messages behind", "jobs"))
        slow.recv_many(30)
        until(live, said("has caught up", "jobs"))


def test_it_lets_go_of_a_topic_in_which_it_is_alone(live: LiveTopics) -> None:
    with rm.Publisher("imu"):
        joined(live, "imu")
        assert [each.name for each in rm.info("imu").readers] == [NAME]
    until(live, lambda _: rm.topics() == [])


def test_patterns() -> None:
    with closing(LiveTopics(["a/*", "b"], hz=10, points_hz=10)) as live:
        with rm.Publisher("a/one"), rm.Publisher("b"), rm.Publisher("c"):
            joined(live, "a/one", "b")
            assert live.matching() == ["a/one", "b"]
            assert live.counts.keys() == {"a/one", "b"}


def test_a_full_roster_is_said_once(live: LiveTopics) -> None:
    with rm.Publisher("small", max_participants=2), rm.Subscriber("small"):
        taken = until(live, said("cannot be observed", "small"))
        taken += until(live, lambda _: len(list(live.take())) == 0)
        assert len(events(taken, "small")) == 1


def test_numbers_of_a_topic_without_a_type(live: LiveTopics) -> None:
    with rm.Publisher("raw") as pub:
        joined(live, "raw")
        pub.send(numpy.zeros(5, "u1"))
        taken = until(
            live, lambda taken: {t.path for _, t in taken if isinstance(t, Series)} >= {("size_bytes",), ("rate_hz",)}
        )
    sizes = [t.values.tolist() for _, t in taken if isinstance(t, Series) and t.path == ("size_bytes",)]
    assert sizes == [[5.0]]
