"""Windows of what is still being recorded: each episode once, whole, and as soon as it is."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

import ringmain as rm
from ringmain import typed
from ringmain.datasets import Episodes, Grid, Windows, WindowStream, build
from ringmain.lake import Lake
from ringmain.pipeline import run
from ringmain.recording import RecordingWriter
from ringmain.recording._record.row_builder import ring_rows
from tests.conftest import PATIENCE_S
from tests.datasets.recordings import START_NS, Action, End, Task, record
from tests.datasets.test_build import tasks

MS = 1_000_000
GRID = Grid(hz=10, topics={"a": "newest"}, tolerance_s=0.2)
TASKS = Episodes(start="task/begin", end="task/end")
TYPES: dict[str, type] = {"a": Action, "b": Action, "task/begin": Task, "task/end": End}


class Growing:
    """A recording whose rows can be read at once. Moments are numbers of 100 ms."""

    def __init__(self, path: Path, host: str = "robot-1") -> None:
        with patch.object(socket, "gethostname", lambda: host):
            self.writer = RecordingWriter(path, recorder=host, fsync="never", flush_interval_s=0)
        self.epoch = ord(host[-1])
        for topic, type_ in TYPES.items():
            self.writer.declare(topic, epoch=self.epoch, schema=typed.codec_for(type_).schema.to_bytes())
        self._seq = dict.fromkeys(TYPES, 0)

    def add(self, topic: str, *moments: int, lost: int = 0) -> None:
        codec = typed.codec_for(TYPES[topic])
        values: dict[str, Callable[[int], Any]] = {
            "task/begin": lambda n: Task("fold", n), "task/end": lambda n: End(True),
        }  # fmt: skip
        data = [bytes(codec.encode(values.get(topic, Action)(n))) for n in moments]
        first = self._seq[topic] + lost
        self._seq[topic] = first + len(moments)
        batch = ring_rows(
            len(moments), seq=range(first, first + len(moments)), lost=[lost, *[0] * (len(moments) - 1)],
            time_ns=[START_NS + n * 100 * MS for n in moments], data=data,
        )  # fmt: skip
        self.writer.append(topic, self.epoch, batch, record_time_ns=START_NS)
        self.writer.flush()

    def task(self, begin: int, *, steps: int = 10, lost: int = 0) -> None:
        """Its last message comes after its end was recorded."""
        self.add("task/begin", begin)
        self.add("a", *range(begin, begin + steps - 1), lost=lost)
        self.add("task/end", begin + steps)
        self.add("a", begin + steps - 1)


def stream(source: Any, **options: Any) -> WindowStream:
    return WindowStream(source, **{"grid": GRID, "episodes": TASKS, "length": 4, "follow": True} | options)


def steps(found: Iterator[dict[str, Any]]) -> list[int]:
    return [int(window["a.steer"][0]) for window in found]


@pytest.fixture(name="growing")
def _growing(tmp_path: Path) -> Iterator[Growing]:
    made = Growing(tmp_path / "r")
    yield made
    made.writer.close()


def test_an_episode_comes_when_each_topic_is_past_its_end(tmp_path: Path, growing: Growing) -> None:
    """No time passes in which nothing comes: what is given was whole by the times of its messages."""
    growing.task(0)
    found = stream(tmp_path, settle_s=1000)
    loop = iter(found)
    growing.add("a", 10)  # the first message past the end
    assert steps(islice(loop, 7)) == [*range(7)]
    growing.task(20, lost=2)  # refused, as ever
    growing.add("a", 31)
    growing.task(40)
    growing.add("a", 50)
    assert steps(islice(loop, 7)) == [*range(40, 47)]
    whole = Windows(tmp_path / "r", grid=GRID, episodes=TASKS, length=4)
    assert steps(iter(whole)) == [*range(7), *range(40, 47)]


def test_one_that_is_not_whole_is_waited_for(tmp_path: Path, growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its end, and lacks its last message, which comes after two looks at it."""
    growing.add("task/begin", 0)
    growing.add("a", *range(9))
    growing.add("task/end", 10)
    happens = iter([("b", 8), ("a", 9), ("a", 10)])
    between_looks = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: growing.add(*next(happens)))
    monkeypatch.setattr("ringmain.datasets._following.time", between_looks)
    assert steps(islice(stream(tmp_path, settle_s=1000), 7)) == [*range(7)]
    assert not list(happens)


def test_a_topic_that_is_silent_does_not_hold_up_the_others(tmp_path: Path, growing: Growing) -> None:
    growing.task(0)
    growing.add("b", *range(31))
    both = Grid(hz=10, topics={"a": "newest", "b": "newest"}, tolerance_s=0.2)
    assert steps(islice(stream(tmp_path, grid=both, settle_s=1.5), 7)) == [*range(7)]


def test_when_nothing_comes_all_is_whole_but_what_has_no_end(tmp_path: Path, growing: Growing) -> None:
    growing.task(0)
    growing.add("task/begin", 20)
    growing.add("a", *range(20, 25))
    found = stream(tmp_path, settle_s=0.05, idle_timeout_s=0.3)
    assert steps(iter(found)) == [*range(7)]
    assert steps(iter(found)) == []
    growing.add("a", *range(25, 30))
    growing.add("task/end", 30)
    assert steps(iter(found)) == [*range(20, 27)]


def test_it_goes_on_where_it_was(tmp_path: Path, growing: Growing) -> None:
    """Of several hosts, and in the middle of an episode."""
    other = Growing(tmp_path / "other", "robot-2")
    for n in range(3):
        growing.task(20 * n)
        other.task(100 + 20 * n)
    options = {"settle_s": 0.05, "idle_timeout_s": 0.3}
    expected = steps(iter(Windows(tmp_path, grid=GRID, episodes=TASKS, length=4)))
    begun = stream(tmp_path, **options)
    head = steps(islice(begun, 24))
    state = msgspec.json.decode(msgspec.json.encode(begun.state_dict()))
    again = stream(tmp_path, **options)
    again.load_state_dict(state)
    assert sorted(head + steps(iter(again))) == expected  # of each host in order: who comes first is who is whole
    other.task(160)
    assert steps(iter(again)) == [*range(160, 167)]
    with pytest.raises(rm.InvalidArgument, match="another stream"):
        stream(tmp_path, length=5).load_state_dict(state)
    ranks = [steps(iter(stream(tmp_path, rank=rank, ranks=2, **options))) for rank in range(2)]
    assert sorted(chain.from_iterable(ranks)) == sorted([*expected, *range(160, 167)])
    other.writer.close()


def test_it_is_closed_from_another_thread(tmp_path: Path, growing: Growing) -> None:
    growing.task(0)
    found = stream(tmp_path, settle_s=0.05)
    given: list[int] = []
    thread = threading.Thread(target=lambda: given.extend(steps(iter(found))))
    thread.start()
    found.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    rest = stream(tmp_path, settle_s=0.05, idle_timeout_s=0.3)
    assert steps(iter(rest)) == [*range(7)]


def test_a_recorder_that_runs_and_a_topic_that_is_not_there_yet(tmp_path: Path, in_thread: Callable[..., Any]) -> None:
    """By the real recorder, with segments that are sealed meanwhile."""
    with (
        rm.Publisher("a", type=Action, contract="reliable") as a,
        rm.Publisher("task/begin", type=Task, contract="reliable") as begin,
        rm.Publisher("task/end", type=End, contract="reliable") as end,
        rm.Recorder(tmp_path / "r", ["a", "task/*"], segment_bytes=20_000),
    ):
        each_us = Grid(hz=1_000_000, topics={"a": "newest"})
        loop = iter(stream(tmp_path / "r", grid=each_us, settle_s=0.2, length=1, stride=10**9))
        for trial in range(5):
            begin.send(Task("fold", trial))
            for _ in range(300):
                a.send(Action(trial))
            next_one = in_thread(lambda: next(loop))
            end.send(End(True))
            assert next_one()["a.steer"].tolist() == [trial]


def test_a_lake_and_a_table_are_followed(tmp_path: Path) -> None:
    tasks(tmp_path / "all" / "one", 0, 36)
    lake = str(tmp_path / "lake")

    def more() -> None:
        run(tmp_path / "all", lake, engine="local", progress=lambda line: None)
        build(Lake(lake), "pick", GRID, TASKS, engine="local")

    more()
    options = {"settle_s": 0.05, "idle_timeout_s": 0.3}
    streams = [stream(Lake(lake), **options), stream(Lake(lake), table="pick", grid=None, episodes=None, **options)]
    expected = [steps(iter(Windows(Lake(lake), table="pick", length=4)))]
    assert [steps(iter(one)) for one in streams] == expected * 2
    tasks(tmp_path / "all" / "two", 40, 56, epoch=2)
    more()
    assert [steps(iter(one)) for one in streams] == [[*range(40, 52)]] * 2


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    record(tmp_path / "r", {"a": (Action, [])})
    for options in ({"settle_s": 0}, {"idle_timeout_s": -1.0}, {"follow": False, "idle_timeout_s": 1.0}):
        with pytest.raises(rm.InvalidArgument, match="of follow=True"):
            stream(tmp_path, **options)
