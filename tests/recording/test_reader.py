"""The reader: what is in a recording, filters, positions, and following one that grows."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ringmain.errors import RecordingNotFound
from ringmain.recording import COLUMNS, SCHEMA, Position, Recording, RecordingWriter, Store, list_segments
from ringmain.recording._format import HOST
from ringmain.recording._segment.segment_reader import StreamSegment
from tests.recording.conftest import START_NS, payload_of, ring_batch


@pytest.mark.parametrize("leave_unsealed", [False, True])
def test_what_is_in_it(make: Callable[..., Path], leave_unsealed: bool) -> None:
    recording = Recording(make(leave_unsealed=leave_unsealed))
    assert len(recording) == 300
    topics = recording.topics()
    assert list(topics) == ["a", "b"]
    assert (topics["a"].rows, topics["a"].first_seq, topics["a"].last_seq) == (150, 0, 249)
    assert topics["b"].bytes == 150 * 20
    assert recording.time_range_ns == (START_NS, START_NS + 299 * 1001)
    assert recording.end() == Position(2, 100)
    table = recording.to_arrow()
    assert table.schema.equals(SCHEMA.append(HOST))
    assert set(table.column("host").to_pylist()) == {socket.gethostname()}
    assert recording.to_arrow(columns=["host"]).num_rows == 300
    assert table.column("seq").to_pylist() == list(range(300))
    assert recording.to_pandas()["payload"].iloc[-1] == payload_of(299)


def test_lives_of_a_topic_are_kept_apart(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r") as writer:
        for epoch in (5, 6):
            writer.append("t", epoch, ring_batch(0, 10))
    recording = Recording(tmp_path / "r")
    assert [(s.epoch, s.rows) for s in recording.lives()] == [(5, 10), (6, 10)]
    assert recording.topics()["t"].rows == 20


def test_filters(make: Callable[..., Path]) -> None:
    recording = Recording(make())
    assert {m.topic for m in recording.messages(topics="a")} == {"a"}
    assert recording.to_arrow(topics=["[ab]"]).num_rows == 300
    assert recording.to_arrow(topics="c*").num_rows == 0
    assert [m.seq for m in recording.messages(first_seq=48, end_seq=52)] == [48, 49, 50, 51]
    at = START_NS + 100 * 1001
    assert [m.seq for m in recording.messages(since=at, until=at + 2 * 1001)] == [100, 101]
    assert [m.seq for m in recording.messages(since=at + 1, until=at + 1002)] == [101]
    moment = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC) + timedelta(microseconds=123_456)
    assert recording.to_arrow(until=moment).num_rows == 0
    assert recording.to_arrow(since=moment).num_rows == 300
    with pytest.raises(ValueError, match="has no time zone"):
        recording.to_arrow(since=datetime(2023, 1, 1))
    assert recording.to_arrow(topics="b", columns=["seq"]).column_names == ["seq"]


def test_positions_name_the_same_rows_before_and_after_sealing(make: Callable[..., Path], tmp_path: Path) -> None:
    path = make(leave_unsealed=True)
    before = {m.position: m.seq for m in Recording(path)}
    RecordingWriter(path).close()
    assert all(ref.sealed for ref in list_segments(Store(path)))
    assert {m.position: m.seq for m in Recording(path)} == before
    assert [m.seq for m in Recording(path).messages(start=Position(2, 30))] == list(range(230, 300))
    assert [m.position.row for m in Recording(path).messages(start=Position(2, 30), topics="b")] == list(range(50, 100))


def test_positions_parse_and_print() -> None:
    assert Position.parse(str(Position(3, 1500))) == Position(3, 1500)
    assert Position(2, 9) < Position(3, 0)
    with pytest.raises(ValueError, match="expected SEGMENT:ROW"):
        Position.parse("3-4")


@pytest.mark.parametrize("leave_unsealed", [False, True])
def test_rows_of_a_segment_by_number(make: Callable[..., Path], leave_unsealed: bool) -> None:
    ref = list_segments(Store(make(segments=1, leave_unsealed=leave_unsealed)))[0]
    segment = ref.open()
    found = list(segment.batches(45, 55, ["seq", "topic"]))
    assert sum(len(batch) for _, batch in found) == 10
    assert found[0][0] == 45
    assert [s for _, b in found for s in b.column("seq").to_pylist()] == list(range(45, 55))
    assert found[0][1].schema.names == ["seq", "topic"]
    late = START_NS + 60 * 1001
    rows = [n for _, b in segment.batches(min_ns=late) for n in b.column("seq").to_pylist()]
    assert set(range(60, 100)) <= set(rows)
    if leave_unsealed:
        assert rows == list(range(50, 100)), "a block that is wholly too old is not read"


def test_counting_rows_does_not_read_payloads(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "r", flush_interval_s=1000)
    writer.append("t", 1, ring_batch(0, 4, size=100_000))
    writer.flush()
    segment = list_segments(Store(tmp_path / "r"))[0].open()
    assert isinstance(segment, StreamSegment)
    assert segment.end_row == 4
    block = segment.runs[0]
    data = bytearray(segment.path.read_bytes())
    data[block.end - 100] ^= 1  # in a payload
    segment.path.write_bytes(data)
    fresh = list_segments(Store(tmp_path / "r"))[0].open()
    assert fresh.end_row == 4
    assert sum(len(b) for _, b in fresh.batches(columns=COLUMNS[:-1])) == 4, "the envelope does not need them"
    with pytest.raises(ValueError, match="do not pass their checksum"):
        list(fresh.batches())
    writer.abandon()


def test_a_segment_sealed_after_it_was_listed_is_still_found(make: Callable[..., Path]) -> None:
    path = make(segments=1, leave_unsealed=True)
    (ref,) = list_segments(Store(path))
    assert not ref.sealed
    RecordingWriter(path).close()
    assert ref.open().end_row == 100


def test_gaps(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r") as writer:
        writer.append("t", 1, ring_batch(0, 10))
        writer.append("t", 1, ring_batch(15, 10, lost=5))
        writer.flush()
        assert writer.lost == 5
    (gap,) = Recording(tmp_path / "r").gaps()
    assert (gap.topic, gap.seq, gap.lost, gap.time_ns) == ("t", 15, 5, START_NS + 15 * 1001)


def test_follows_through_flushes_rotation_sealing_and_a_new_recorder(tmp_path: Path) -> None:
    """The writer goes on only when the follower has seen what was written, so nothing here depends on
    timing."""
    path = tmp_path / "r"
    seen = threading.Semaphore(0)
    failure: list[BaseException] = []

    def write() -> None:
        try:
            for life in range(2):
                with RecordingWriter(path, flush_interval_s=1000, fsync="never") as writer:
                    for i in range(6):
                        first = (life * 6 + i) * 10
                        writer.append("t", 1, ring_batch(first, 10))
                        writer.flush()
                        assert seen.acquire(timeout=30), "the follower did not see what was flushed"
                        if i % 2:
                            writer.rotate()
        except BaseException as error:
            failure.append(error)

    RecordingWriter(path).close()
    thread = threading.Thread(target=write)
    thread.start()
    numbers = []
    for message in Recording(path).messages(follow=True, idle_timeout_s=30):
        numbers.append(message.seq)
        if len(numbers) % 10 == 0:
            seen.release()
        if len(numbers) == 120:
            break
    thread.join(timeout=30)
    assert not failure
    assert numbers == list(range(120))


def test_a_segment_that_is_sealed_once_it_was_listed_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with RecordingWriter(path, flush_interval_s=1000, fsync="never") as writer:
        writer.append("t", 1, ring_batch(0, 10))
        writer.flush()
        recording = Recording(path)
        (listed,) = recording.segments()
        growing = recording._again(None, listed)
        assert isinstance(growing, StreamSegment)
        assert recording._again(growing, listed) is growing
    sealed = recording._again(growing, listed)
    assert sealed is not None
    assert sealed is not growing
    assert sealed.end_row == 10


def test_following_ends_when_nothing_comes(make: Callable[..., Path]) -> None:
    assert len(list(Recording(make()).messages(follow=True, idle_timeout_s=0.05))) == 300


def test_what_is_not_a_recording_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecordingNotFound, match="no such directory"):
        Recording(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"neither meta.json nor a segment"):
        Recording(tmp_path)


def test_an_empty_recording_is_a_recording(tmp_path: Path) -> None:
    RecordingWriter(tmp_path / "r").close()
    recording = Recording(tmp_path / "r")
    assert len(recording) == 0
    assert recording.time_range_ns is None
    assert recording.to_arrow().num_rows == 0
    assert recording.end() == Position(0, 0)
    assert recording.verify().ok
