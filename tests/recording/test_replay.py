"""Replay: what was recorded is published again, in the order and at the pace of its first publication.

Recordings are made with times chosen by the test, so that "in order" and "at the right moment" can be said exactly.
Moments are judged by the Player's own account (it sleeps until a message is due) and by order, never by the wall clock.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy
import pyarrow as pa
import pytest

import ringmain as rm
from ringmain import _native
from ringmain.errors import RecordingNotFound
from ringmain.recording import RecordingWriter
from ringmain.recording._format import RING_SCHEMA, STORED
from ringmain.recording._record.row_builder import RowBuilder
from ringmain.recording._replay.merge import NEVER, track_of
from ringmain.recording._replay.player import Player, _Current
from tests.conftest import PATIENCE_S

InThread = Callable[..., Callable[[], object]]
START_NS = 1_700_000_000_000_000_000
TRACK = ("seq", "publish_time", "publish_ns", "sender", "kind", "extension", "payload")


def batch(first: int, times_ns: list[int], *, sender: str = "", size: int = 0) -> pa.RecordBatch:
    rows = len(times_ns)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(first, first + rows), pa.uint64()),
            pa.array([START_NS + t for t in times_ns], pa.int64()),
            pa.array([sender] * rows, pa.string()),
            pa.array([f"k{t % 2}" for t in times_ns], pa.string()),
            pa.array([0] * rows, pa.uint64()),
            pa.array([b""] * rows, pa.binary()),
            pa.array([str(t).encode().ljust(size) for t in times_ns], pa.binary()),
        ],
        schema=RING_SCHEMA,
    )


@pytest.fixture
def two_topics(tmp_path: Path) -> Path:
    """a: even microseconds, b: odd ones, recorded in long runs; one segment sealed, one growing."""
    path = tmp_path / "two"
    writer = RecordingWriter(path, fsync="never", flush_interval_s=1000)
    writer.declare("a", epoch=1, contract="reliable")
    writer.declare("b", epoch=1, contract="broadcast")
    for part in range(4):
        micros = range(part * 1000, (part + 1) * 1000)
        writer.append("a", 1, batch(part * 500, [1000 * t for t in micros if t % 2 == 0], sender="A"))
        writer.flush()
        writer.append("b", 1, batch(part * 500, [1000 * t for t in micros if t % 2], sender="B"))
        writer.flush()
        if part == 1:
            writer.rotate()
    writer.abandon()
    return path


def received(topic: str, count: int) -> Callable[[], list[rm.Message]]:
    """Joins now; the function it returns receives."""
    sub = rm.Subscriber(topic)

    def receive() -> list[rm.Message]:
        with sub:
            return [sub.recv_message(timeout=PATIENCE_S) for _ in range(count)]

    return receive


class Listed(rm.Player):
    """Lists the messages in place of publishing them."""

    def open(self) -> Listed:
        self.listed: list[tuple[str, int, int]] = []
        self._publishers = dict.fromkeys(self._recording.topics())  # type: ignore[arg-type]
        return self

    def _publish_here(self, current: _Current) -> int:
        part, track = current
        assert track.time_ns is not None
        self.listed.append((part.topic, part.rows.column("seq")[track.at].as_py(), track.time_ns - START_NS))
        track.skip()
        return 1

    def close(self) -> None:
        self._publishers.clear()


def order_of(path: Path) -> list[tuple[str, int, int]]:
    player = Listed(path, speed=math.inf)
    player.run()
    return player.listed


def test_topics_are_merged_by_publish_time(two_topics: Path) -> None:
    assert [time_ns for _, _, time_ns in order_of(two_topics)] == [1000 * t for t in range(4000)]


def test_rows_of_many_topics_that_are_mixed_keep_their_order(tmp_path: Path) -> None:
    """As an imported bag has them: hardly two rows of one topic follow each other."""
    with RecordingWriter(tmp_path / "r") as writer:
        for n in range(300):
            writer.append(f"t{n % 7}", n % 3, batch(n, [n]))
    assert [seq for _, seq, _ in order_of(tmp_path / "r")] == list(range(300))


@pytest.mark.parametrize("seed", range(20))
def test_the_native_merge_publishes_exactly_the_first_messages(seed: int) -> None:
    """Tracks with equal times, times that go back, and changing senders and kinds: after any number of messages,
    exactly as many of the merged order, from its beginning, are published, each once."""
    chance = random.Random(seed)
    times = [[chance.randrange(60) for _ in range(chance.randrange(1, 60))] for _ in range(4)]
    ahead = [list(times[n]) for n in range(4)]
    expected = []
    while any(ahead):
        expected.append(min((track[0], n) for n, track in enumerate(ahead) if track)[1])
        ahead[expected[-1]].pop(0)
    tracks, subs = [], []
    with contextlib.ExitStack() as stack:
        for n, of in enumerate(times):
            rows = RowBuilder("r").build(f"t{n}", 1, batch(0, of, sender="S" * chance.randrange(3)), [(len(of), 0)])
            first = chance.randrange(3)  # rows that are a slice of others, as most are
            padded = pa.concat_batches([rows.batch.slice(0, first), rows.batch])
            tracks.append(track_of(padded.slice(min(first, len(rows.batch)))))
            tracks[-1].set_publisher(stack.enter_context(rm.Publisher(f"t{n}", contract="reliable")))
            subs.append(stack.enter_context(rm.Subscriber(f"t{n}")))
        done = 0
        before_ns = START_NS + chance.randrange(80)
        while True:
            most = chance.randrange(1, 30)
            why, _, messages, *_ = _native.replay(tracks, before_ns, 0, 0, math.inf, most, False, 1.0)
            done += messages
            assert [track.at for track in tracks] == [expected[:done].count(n) for n in range(4)]
            if why == "before":
                before_ns = NEVER
            if all(track.time_ns is None for track in tracks):
                break
        assert done == len(expected)
        for sub, of in zip(subs, times, strict=True):
            got = sub.recv_messages(len(of) + 1)
            assert [(int(m.data), m.kind) for m in got] == [(t, f"k{t % 2}") for t in of]


def test_a_track_refuses_columns_that_do_not_hold_its_rows() -> None:
    rows = RowBuilder("r").build("t", 1, batch(0, [1, 2, 3]), [(3, 0)]).batch
    columns = [(c.offset, *c.buffers()[1:]) for c in (rows.column(name) for name in STORED.names if name in TRACK)]
    _native.Track(3, *columns)
    with pytest.raises(ValueError, match="columns that hold all"):
        _native.Track(0, *columns)
    for at, column in enumerate(columns):
        for wrong in ((column[0] + 1, *column[1:]), (-1, *column[1:]), (column[0], column[1][:8], *column[2:])):
            with pytest.raises(ValueError, match="columns that hold all"):
                _native.Track(4, *columns[:at], wrong, *columns[at + 1 :])
    falling = pa.py_buffer(struct.pack("4i", 0, 2, 1, 3))
    with pytest.raises(ValueError, match="offsets in their data"):
        _native.Track(3, *columns[:6], (0, falling, columns[6][2]))


def test_a_topic_keeps_its_order_when_the_clock_went_back(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r") as writer:
        writer.append("a", 1, batch(0, [0, 10, 5, 20]))
        writer.append("b", 1, batch(0, [7]))
    order = [(topic, seq) for topic, seq, _ in order_of(tmp_path / "r")]
    assert [seq for topic, seq in order if topic == "a"] == [0, 1, 2, 3]
    assert order.index(("b", 0)) == 1


def test_everything_comes_back_on_topics_of_the_same_kind(two_topics: Path, in_thread: InThread) -> None:
    with rm.Player(two_topics, speed=math.inf) as player:
        assert (rm.info("a").contract, rm.info("b").contract) == ("reliable", "broadcast")
        a, b = in_thread(received("a", 2000)), in_thread(received("b", 2000))
        for pub in player._publishers.values():
            pub.wait_for_readers(1, timeout=PATIENCE_S)
        status = player.run()
        got: list[rm.Message] = a()  # type: ignore[assignment]
        other: list[rm.Message] = b()  # type: ignore[assignment]
    assert status.messages == 4000
    assert [int(m.data) for m in got] == [1000 * t for t in range(0, 4000, 2)]
    assert [int(m.data) for m in other] == [1000 * t for t in range(1, 4000, 2)]
    assert {m.sender for m in got} == {"A"}
    assert [m.seq for m in got] == list(range(2000)), "fresh numbers"
    assert got[0].time_ns > START_NS + 10**15, "the time of now"


def test_original_numbers_and_times(tmp_path: Path, in_thread: InThread) -> None:
    with RecordingWriter(tmp_path / "r") as writer:
        writer.append("t", 1, batch(5, [0, 100]))
        writer.append("t", 1, batch(10, [200]))
    player = rm.Player(tmp_path / "r", original=True, readers=1, rename={"t": "again"})
    player.open()
    receive = in_thread(received("again", 3))
    player.run()
    got: list[rm.Message] = receive()  # type: ignore[assignment]
    assert [(m.seq, m.time_ns - START_NS, m.lost) for m in got] == [(5, 0, 5), (6, 100, 0), (10, 200, 3)] or [
        (m.seq, m.time_ns - START_NS, m.lost) for m in got
    ] == [(5, 0, 0), (6, 100, 0), (10, 200, 3)]
    with pytest.raises(ValueError, match="loop would repeat"):
        rm.Player(tmp_path / "r", original=True, loop=True)


def test_selection_by_topic_and_time_and_loops(two_topics: Path) -> None:
    options = {"topics": ["a"], "since": START_NS + 1_000_000, "until": START_NS + 2_000_000, "speed": math.inf}
    assert rm.replay(two_topics, **options).messages == 500
    status = rm.replay(two_topics, **options, loop=3)
    assert (status.messages, status.loops) == (1500, 3)
    with pytest.raises(RecordingNotFound, match="no message matches"):
        rm.replay(two_topics, topics="nothing/*")


def test_no_message_is_early(two_topics: Path) -> None:
    """Four milliseconds of recording, at a tenth of the speed: the last is not out before its time."""
    player = rm.Player(two_topics, speed=0.1)
    status = player.run()
    assert status.messages == 4000
    published_s = player._base_s + (status.time_ns - status.first_ns) / 1e9 / 0.1
    assert published_s - player._base_s == pytest.approx(0.03999)
    assert status.late_max_s >= 0


def test_the_first_message_is_not_late(two_topics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All others are counted from it. In virtual time, where each look at the clock takes 40 us."""
    now_s = itertools.count(1000.0, 40e-6)
    late_s: list[float] = []

    def asked(tracks: list[Any], before_ns: int, first_ns: int, base_ns: int, *rest: Any) -> Any:
        late_s.append(next(now_s) - base_ns / 1e9)
        return _native.replay(tracks, before_ns, first_ns, 0, *rest)  # 0 is long ago: all are due

    monkeypatch.setattr(f"{Player.__module__}.time", SimpleNamespace(monotonic=lambda: next(now_s)))
    monkeypatch.setattr(f"{Player.__module__}._native", SimpleNamespace(replay=asked))
    assert rm.replay(two_topics, speed=1.0).messages == 4000
    assert late_s[0] < 0


def test_pause_step_and_resume(two_topics: Path, in_thread: InThread) -> None:
    player = rm.Player(two_topics, topics="a", paused=True).open()
    with rm.Subscriber("a") as sub:
        done = in_thread(player.run)
        for n in range(3):
            player.step()
            assert int(sub.recv(timeout=PATIENCE_S)) == 2000 * n
        assert player.paused
        assert player.status().messages == 3
        player.step(10)
        assert [int(sub.recv(timeout=PATIENCE_S)) for _ in range(10)] == [2000 * n for n in range(3, 13)]
        player.resume()
        assert [int(sub.recv(timeout=PATIENCE_S)) for _ in range(1987)] == [2000 * n for n in range(13, 2000)]
        done()


def test_stop_ends_it_also_while_a_reader_holds_everything_up(two_topics: Path, in_thread: InThread) -> None:
    player = rm.Player(two_topics, topics="a", speed=math.inf, capacity=4096).open()
    with rm.Subscriber("a"):  # reads nothing, and `a` is reliable
        done = in_thread(player.run)
        while not any(p.waits_for for p in rm.info("a").writers):
            pass
        player.stop()
        done()
    assert 0 < player.status().messages < 2000


def test_lockstep_waits_for_the_readers(two_topics: Path, in_thread: InThread) -> None:
    """`b` is a broadcast in a ring that holds 30 messages: in lockstep a slow reader misses none of 2000."""
    player = rm.Player(two_topics, topics="b", lockstep=True, readers=1, capacity=4096).open()
    receive = in_thread(received("b", 2000))
    player.run()
    got: list[rm.Message] = receive()  # type: ignore[assignment]
    assert [int(m.data) for m in got] == [1000 * t for t in range(1, 4000, 2)]
    assert sum(m.lost for m in got) == 0


class Imu(msgspec.Struct):
    x: float
    n: int


def test_recorded_live_and_replayed_typed(
    tmp_path: Path, in_thread: InThread, until: Callable[[Callable[[], object]], None]
) -> None:
    with rm.Publisher("imu", type=Imu, contract="bus") as pub, rm.Recorder(tmp_path / "r", "imu") as recorder:
        for n in range(20):
            pub.send(Imu(n / 2, n))
        until(lambda: recorder.status().messages == 20)
    player = rm.Player(tmp_path / "r", rename={"imu": "again"}, readers=1, speed=math.inf).open()
    assert rm.info("again").schema is not None

    def receive() -> list[Imu]:
        with rm.Subscriber("again", type=Imu) as sub:
            return [sub.recv(timeout=PATIENCE_S) for _ in range(20)]

    got = in_thread(receive)
    player.run()
    assert got() == [Imu(n / 2, n) for n in range(20)]


def test_a_topic_is_created_as_it_was_recorded(tmp_path: Path) -> None:
    kept = {"capacity": "8MiB", "max_participants": 7, "keep_last_per_kind": 40, "persist": True}
    with rm.Publisher("kept", contract="bus", **kept) as pub:  # type: ignore[arg-type]
        with rm.FramePublisher("camera", (4, 4), "u1", buffers=9) as camera, rm.Recorder(tmp_path / "r"):
            pub.send(b"x", kind="a")
            camera.send(numpy.zeros((4, 4), "u1"))
        before = rm.info("kept")
    rm.unlink("kept")
    with rm.Player(tmp_path / "r"):
        after = rm.info("kept")
        assert _native.inspect_pool(rm._names.runtime_directory(), "camera")["buffers"] == 9
    rm.unlink("kept")
    for name in ("contract", "capacity", "max_participants", "max_kept_kinds", "persist"):
        assert getattr(after, name) == getattr(before, name), name
    with rm.Player(tmp_path / "r", rename={"kept": "small"}, topics="kept", capacity=1 << 16):
        assert rm.info("small").capacity == 1 << 16
    rm.unlink("small")


def test_it_says_what_holds_it_up(two_topics: Path, tmp_path: Path, in_thread: InThread) -> None:
    with rm.Player(two_topics, topics="a", speed=math.inf, capacity=4096) as player:
        with rm.Subscriber("a", name="slow"):  # reads nothing
            done = in_thread(player.run)
            while "slow" not in player.status().waits_for:
                pass
        done()
    with RecordingWriter(tmp_path / "r") as writer:
        writer.declare("jobs", epoch=1, contract="work")
        writer.append("jobs", 1, batch(0, list(range(100)), size=100))
    player = rm.Player(tmp_path / "r", speed=math.inf, capacity=4096)
    done = in_thread(player.run)
    while player.status().waits_for != "a worker to take its messages: none has come yet (topic 'jobs')":
        pass
    with rm.Subscriber("jobs") as worker:
        assert len([worker.recv(timeout=PATIENCE_S) for _ in range(100)]) == 100
    done()
    assert player.status().waits_for == ""


def test_the_speed_can_be_changed_meanwhile(two_topics: Path, in_thread: InThread) -> None:
    player = rm.Player(two_topics, topics="a", speed=1e-9).open()  # the second message would be due in an hour
    with rm.Subscriber("a") as sub:
        done = in_thread(player.run)
        sub.recv(timeout=PATIENCE_S)
        player.set_speed(math.inf)
        assert len([sub.recv(timeout=PATIENCE_S) for _ in range(1999)]) == 1999
        done()
    with pytest.raises(ValueError, match="speed must be above 0"):
        player.set_speed(0)


def test_lives_of_another_kind_are_replayed_as_such(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r") as writer:
        writer.declare("t", epoch=1, contract="broadcast")
        writer.declare("t", epoch=2, contract="reliable")
        writer.append("t", 1, batch(0, [0, 10]))
        writer.append("t", 2, batch(0, [20, 30]))
    player = rm.Player(tmp_path / "r", paused=True).open()
    assert rm.info("t").contract == "broadcast"
    player.resume()
    assert player.run().messages == 4


def test_rings_are_large_enough_for_what_was_recorded(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r") as writer:
        writer.append("t", 1, batch(0, [0, 1], size=5_000_000))
    assert rm.replay(tmp_path / "r").bytes == 10_000_000


def test_bad_arguments(two_topics: Path) -> None:
    with pytest.raises(ValueError, match="speed must be above 0"):
        rm.Player(two_topics, speed=0)
    with pytest.raises(ValueError, match="published on one"):
        rm.Player(two_topics, rename={"a": "b"}).open()
    with rm.Publisher("a", contract="broadcast"), pytest.raises(rm.TopicMismatch):
        rm.Player(two_topics, topics="a").open()


def test_a_message_that_no_topic_can_have_is_left_out_and_reported(tmp_path: Path, in_thread: InThread) -> None:
    """A kind of 255 bytes that are not UTF-8 is recorded as text, and that is longer."""
    with RecordingWriter(tmp_path / "r") as writer:
        for number, sender in enumerate(("", "\ufffd" * 255, "")):
            writer.append("t", 1, batch(number, [number], sender=sender))
    with rm.Player(tmp_path / "r", speed=math.inf, readers=1) as player, rm.Subscriber("t") as sub:
        with pytest.warns(
            RuntimeWarning, match=r"left a message out \(1 so far\): message 1: sender is at most 255 bytes"
        ):
            player.run()
        assert sub.recv_many(9) == [b"0", b"2"]
        assert (player.status().messages, player.status().invalid) == (2, 1)
