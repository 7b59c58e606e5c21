"""History, then live: what a subscriber with `since=` is given and what it counts as lost is what was sent, each
message once and in order, wherever the recording ends, the ring begins, and whoever dies in between.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import ringmain as rm
from ringmain.errors import Unsupported
from ringmain.recording import RecordingWriter
from tests import forked
from tests.conftest import PATIENCE_S
from tests.recording.test_replay import batch

Until = Callable[[Callable[[], object]], None]
InThread = Callable[..., Callable[[], object]]


class Tick(msgspec.Struct):
    n: int


def record(path: Path, pub: rm.Publisher, until: Until, numbers: range) -> None:
    with rm.Recorder(path, "t", flush_interval_s=0.01) as recorder:
        for n in numbers:
            pub.send(b"%d" % n, kind=f"k{n % 3}")
        until(lambda: recorder.status().messages == len(numbers))


def drain(sub: Any, last: int) -> list[rm.Message]:
    got = [sub.recv_message(timeout=PATIENCE_S)]
    while got[-1].seq < last:
        got.append(sub.recv_message(timeout=PATIENCE_S))
    return got


@pytest.mark.parametrize("contract", ["reliable", "broadcast", "bus", "pipe"])
def test_recorded_then_in_the_ring_then_live(tmp_path: Path, until: Until, contract: Any) -> None:
    with rm.Publisher("t", contract=contract) as pub:
        record(tmp_path / "r", pub, until, range(100))
        for n in range(100, 150):  # no recorder runs: the ring alone has them
            pub.send(b"%d" % n)
        with rm.Subscriber("t", since="1h", recording=tmp_path / "r") as sub:
            assert isinstance(sub, rm.Subscriber)
            assert not sub.live
            assert not rm.info("t").readers, "until it joins, no writer waits for it"
            got = drain(sub, 149)
            assert sub.live
            assert sub.try_recv() is None
            pub.send(b"150")
            got.append(sub.recv_message(timeout=PATIENCE_S))
            assert [int(m.data) for m in got] == list(range(151))
            assert [m.seq for m in got] == list(range(151))
            assert sub.lost == sum(m.lost for m in got) == 0
            assert got[1].kind == "k1"
            with pytest.raises(rm.Timeout, match=r"no message on topic 't' within 0\.01 s"):
                sub.recv(timeout=0.01)


def test_what_neither_has_is_counted_at_the_seam(tmp_path: Path, until: Until) -> None:
    with rm.Publisher("t", contract="broadcast", capacity=4096) as pub:
        record(tmp_path / "r", pub, until, range(10))
        for n in range(10, 2000):
            pub.send(b"%d" % n)
        with rm.Subscriber("t", since=timedelta(hours=1), recording=tmp_path / "r") as sub:
            got = drain(sub, 1999)
    assert [int(m.data) for m in got[:10]] == list(range(10))
    assert got[10].lost == got[10].seq - 10 > 1000
    assert len(got) + sum(m.lost for m in got) == 2000
    assert sub.lost == got[10].lost


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("contract", ["reliable", "broadcast"])
def test_a_publisher_at_full_speed_while_segments_are_sealed(
    tmp_path: Path, in_thread: InThread, until: Until, contract: Any, batches: bool
) -> None:
    """sent = replayed + live + lost, each once and in order, on a ring that holds a few thousand messages; also while
    sealed segments are uploaded, and leave the directory."""
    last = 30_000

    def publish() -> None:
        for first in range(0, last, 100):
            pub.send_many([b"%d" % n for n in range(first, first + 100)])
        while not finished:
            pub.send(b"more")
            time.sleep(0.001)

    finished: list[bool] = []
    with rm.Publisher("t", contract=contract, capacity=1 << 18) as pub:
        uploading: Any = {"sealed_uri": (tmp_path / "store").as_uri()} if batches else {}
        settings: Any = {"segment_bytes": 200_000, "flush_interval_s": 0.01, "fsync": "never", **uploading}
        with rm.Recorder(tmp_path / "r", "t", **settings) as recorder:
            done = in_thread(publish)
            until(lambda: recorder.status().messages > 10_000)
            with rm.Subscriber("t", since="1h", recording=tmp_path / "r") as sub:
                given = lost = expected = 0
                while expected < last:
                    if batches:
                        table = pa.record_batch(sub.recv_batch(timeout=PATIENCE_S))
                        rows = list(zip(table["seq"].to_pylist(), table["lost"].to_pylist(), strict=True))
                    else:
                        message = sub.recv_message(timeout=PATIENCE_S)
                        rows = [(message.seq, message.lost)]
                    for seq, missing in rows:
                        if not given:
                            first = expected = seq  # a broadcast's recorder may have been lapped before it began
                            assert missing == 0
                        assert seq == expected + missing, "each once, in order, and what is missing is counted"
                        given, lost, expected = given + 1, lost + missing, seq + 1
                assert given + lost == expected - first
                assert sub.lost == lost
                while not sub.live:
                    sub.recv_many(10_000)
            finished.append(True)
            done()
    if contract == "reliable":
        assert lost == 0
    assert not batches or list((tmp_path / "store").glob("*.parquet"))


@pytest.mark.parametrize("way", ["recv", "batches", "asyncio"])
def test_a_ring_that_holds_less_than_the_recorder_flushes_at_once(
    tmp_path: Path, in_thread: InThread, until: Until, way: str
) -> None:
    """Nothing is lost: what has left the ring at the seam is in the recording a moment later. The publisher waits for
    the recorder alone, which has each message then, and the ring holds fifty."""

    def publish() -> None:
        sent, last = 0, 1 << 40
        while sent < last:
            pub.send_many([b"x"] * 20)
            sent += 20
            while recorder.status().messages < sent:
                pass
            if not end and any(reader.name == "late" for reader in rm.info("t").readers):
                last = sent + 1000
                end.append(last)

    async def receive(sub: rm.Subscriber[Any]) -> None:
        while not end or given[-1] < end[0] - 1:
            given.append((await sub.arecv_message(timeout=PATIENCE_S)).seq)

    given, end = list[int](), list[int]()
    with rm.Publisher("t", capacity=4096) as pub:
        with rm.Recorder(tmp_path / "r", "t", flush_interval_s=0.2, fsync="never") as recorder:
            done = in_thread(publish)
            until(lambda: recorder.status().messages > 100)
            with rm.Subscriber("t", since="1h", recording=tmp_path / "r", name="late") as sub:
                if way == "asyncio":
                    asyncio.run(receive(sub))
                while not end or given[-1] < end[0] - 1:
                    if way == "batches":
                        given += pa.record_batch(sub.recv_batch(timeout=PATIENCE_S)).column("seq").to_pylist()
                    else:
                        given.append(sub.recv_message(timeout=PATIENCE_S).seq)
                assert sub.try_recv() is None
                assert (given, sub.lost, sub.live) == (list(range(end[0])), 0, True)
            done()


def test_a_message_is_borrowed_once_it_is_live(tmp_path: Path, until: Until) -> None:
    with rm.Publisher("t") as pub:
        record(tmp_path / "r", pub, until, range(3))
        with rm.Subscriber("t", since="1h", recording=tmp_path / "r") as sub:
            with pytest.raises(Unsupported, match="and borrow once"):
                sub.borrow(timeout=0)
            assert len(sub.recv_many(10)) == 3
            assert sub.try_recv() is None
            assert sub.live
            pub.send(b"3")
            with sub.borrow(timeout=PATIENCE_S) as message:
                assert bytes(message.data) == b"3"


READER = """
import sys, ringmain as rm
with rm.Subscriber("t", since="1h", recording=sys.argv[1], name="reader") as sub:
    for _ in range(int(sys.argv[2])):
        seq = sub.recv_message().seq
    print(seq, sub.live, flush=True)
    while True:
        sub.recv()
"""


@pytest.mark.parametrize("given", [1, 60, 110])
def test_a_reader_is_killed_before_at_and_after_the_seam(tmp_path: Path, until: Until, given: int) -> None:
    """No writer waits for it longer than for any other reader that died, and the next one is given the same."""
    with rm.Publisher("t", contract="reliable", capacity=4096) as pub:
        record(tmp_path / "r", pub, until, range(50))
        for n in range(50, 60):
            pub.send(b"%d" % n)
        with forked.Popen(
            [sys.executable, "-c", READER, str(tmp_path / "r"), str(given)], stdout=subprocess.PIPE, text=True
        ) as child:
            try:
                assert child.stdout is not None
                if given > 60:
                    until(lambda: rm.info("t").readers)
                    for n in range(60, 110):
                        pub.send(b"%d" % n)
                seq, live = child.stdout.readline().split()
                assert (int(seq), live == "True") == (given - 1, given > 50)
            finally:
                child.kill()
        sent = rm.info("t").next_sequence
        for n in range(sent, sent + 500):  # more than the ring holds: what it had unread is dropped
            pub.send(b"%d" % n, timeout=PATIENCE_S)
        with rm.Subscriber("t", since="1h", recording=tmp_path / "r") as sub:
            got = drain(sub, sent + 499)
            assert [m.seq for m in got[:50]] == list(range(50))
            assert len(got) + sub.lost == sent + 500


def test_wait_with_others_on_both_sides_of_the_seam(tmp_path: Path, until: Until) -> None:
    with rm.Publisher("t") as pub, rm.Publisher("u") as other, rm.Subscriber("u") as plain:
        record(tmp_path / "r", pub, until, range(3))
        with rm.Subscriber("t", since="1h", recording=tmp_path / "r", only_kinds={"k1"}) as sub:
            assert rm.wait([plain, sub], timeout=PATIENCE_S) == [sub]
            assert sub.recv() == b"1"
            assert rm.wait([sub, plain], timeout=0.05) == [], "the rest is screened out"
            other.send(b"x")
            assert rm.wait([sub, plain], timeout=PATIENCE_S) == [plain]
            pub.send(b"3", kind="k0")
            pub.send(b"4", kind="k1")
            assert rm.wait([sub, plain], timeout=PATIENCE_S) == [sub, plain]
            assert (sub.recv(), plain.recv(), sub.live) == (b"4", b"x", True)
            assert rm.wait([sub, plain], timeout=0) == []
            pub.send(b"5", kind="k1")
            other.send(b"y")
            assert rm.wait([sub, plain], timeout=PATIENCE_S) == [sub, plain]
            sub.close()
            with pytest.raises(rm.Closed):
                rm.wait([plain, sub], timeout=0)


def test_the_latest_of_what_was_recorded_and_then_of_the_ring(tmp_path: Path, until: Until) -> None:
    path = tmp_path / "r"
    with rm.Publisher("t", type=Tick) as pub, rm.Publisher("u") as other:
        with rm.Recorder(path, ["t", "u"]) as recorder:
            for n in range(5):
                pub.send(Tick(n))
            other.send(b"old")
            until(lambda: recorder.status().messages == 6)
        pub.send(Tick(5))
        time.sleep(0.01)
        with rm.Latest({"t": None, "u": 1000.0, "v": None}, since="1h", recording=path) as latest:
            assert latest.update(timeout=PATIENCE_S)
            assert (latest["t"].n, latest["u"], latest["v"]) == (5, b"old", None)
            assert latest.age_s["u"] > 0.01, "since it was sent"
            assert not latest.alive["u"]
            assert not latest.update(timeout=0.01)
            other.send(b"new")
            assert latest.update(timeout=PATIENCE_S)
            assert (latest["u"], latest.alive["u"], dict(latest.lost)) == (b"new", True, {"t": 0, "u": 0, "v": 0})
    with pytest.raises(ValueError, match="start= and since= exclude each other"):
        rm.Latest({"t": None}, start="newest", since="1h", recording=path)


def test_what_is_lost_before_a_message_that_is_screened_out_is_told_of_the_next(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r") as writer:
        rows = batch(0, [0, 1, 2, 3, 4])
        seqs = pa.array([0, 2, 4, 7, 8], pa.uint64())
        lost = pa.array([0, 1, 1, 2, 0], pa.uint64())
        writer.append("t", 1, rows.set_column(0, rows.schema.field(0), seqs).set_column(4, rows.schema.field(4), lost))
    kinds = rows.column("kind").to_pylist()
    for batches in (True, False):
        with rm.Subscriber("t", since=5, recording=tmp_path / "r", ignore_kinds={kinds[1], kinds[3]}) as sub:
            if batches:
                told = pa.record_batch(sub.recv_batch(timeout=PATIENCE_S)).to_pylist()
                found = [(row["seq"], row["lost"]) for row in told]
            else:
                found = [(m.seq, m.lost) for m in (sub.recv_message(timeout=PATIENCE_S) for _ in range(3))]
            assert found == [(0, 0), (4, 2), (8, 2)]
            assert sub.lost == 4


def test_a_life_that_ends_in_between(tmp_path: Path, until: Until) -> None:
    """The recorded life ends, unrecorded messages follow in the next one: those that the ring has are given."""
    with rm.Publisher("t", contract="broadcast") as pub:
        record(tmp_path / "r", pub, until, range(5))
    with rm.Publisher("t", contract="broadcast", capacity=4096) as pub:
        for n in range(1000):
            pub.send(b"new %d" % n)
        with rm.Subscriber("t", since="1h", recording=tmp_path / "r") as sub:
            got = [sub.recv_message(timeout=PATIENCE_S) for _ in range(6)]
            assert [m.data for m in got[:5]] == [b"%d" % n for n in range(5)]
            assert got[5].lost == got[5].seq > 0
            rest = drain(sub, 999)
            assert 5 + len(rest) + 1 + sub.lost == 1005


CHILD = """
import sys, ringmain as rm
rm.Recorder(sys.argv[1], "t", flush_interval_s=0.05, segment_bytes=20000, fsync="never").run()
"""


@pytest.mark.parametrize("dies", ["recorder", "publisher"])
def test_somebody_is_killed_at_the_seam(tmp_path: Path, until: Until, dies: str) -> None:
    path = tmp_path / "r"
    publish = "import sys, time, ringmain as rm\npub = rm.Publisher('t', contract='bus', capacity=1 << 16)\n"
    publish += "pub.wait_for_readers(1)\nwhile True: pub.send(b'x' * 20); time.sleep(0.0002)\n"
    recorder = forked.Popen([sys.executable, "-c", CHILD, str(path)])
    publisher = forked.Popen([sys.executable, "-c", publish])
    try:
        until(lambda: path.exists() and (path / "meta.json").exists() and len(rm.Recording(path)) > 300)
        with rm.Subscriber("t", since="1h", recording=path) as sub:
            got = [sub.recv_message(timeout=PATIENCE_S) for _ in range(200)]
            (recorder if dies == "recorder" else publisher).kill()
            while not sub.live or len(got) < 400:
                message = sub.try_recv_message()
                if message is not None:
                    got.append(message)
                elif dies == "publisher" and sub.live:
                    break
            if dies == "publisher":
                while (message := sub.try_recv_message()) is not None:
                    got.append(message)
            expected = 0
            for message in got:
                assert message.seq == expected + message.lost
                expected = message.seq + 1
            assert len(got) + sub.lost == expected
            if dies == "publisher":
                assert expected == rm.info("t").next_sequence
    finally:
        for child in (recorder, publisher):
            child.send_signal(signal.SIGKILL)
            child.wait()
        rm.clean()


def test_typed_screened_and_by_asyncio(tmp_path: Path, until: Until) -> None:
    with rm.Publisher("t", type=Tick) as pub:
        with rm.Recorder(tmp_path / "r", "t") as recorder:
            for n in range(9):
                pub.send(Tick(n), kind=f"k{n % 3}")
            until(lambda: recorder.status().messages == 9)
        for n in range(9, 18):
            pub.send(Tick(n), kind=f"k{n % 3}")

        async def all_of(sub: rm.Subscriber[Tick]) -> list[int]:
            return [(await sub.arecv(timeout=PATIENCE_S)).n for _ in range(12)]

        with rm.Subscriber("t", type=Tick, since="1h", recording=tmp_path / "r", ignore_kinds={"k1"}) as sub:
            assert asyncio.run(all_of(sub)) == [n for n in range(18) if n % 3 != 1]
            assert sub.lost == 0
            pub.send(Tick(18), kind="k1")
            pub.send(Tick(19), kind="k2")
            assert sub.recv(timeout=PATIENCE_S) == Tick(19), "screened in the ring, too"
            sub.ignore_kinds.add("k2")
            pub.send(Tick(20), kind="k2")
            pub.send(Tick(21), kind="k0")
            assert sub.recv(timeout=PATIENCE_S) == Tick(21), "and as it is changed since"
        with rm.Subscriber("t", type=Tick, since=4, recording=rm.Recording(tmp_path / "r")) as sub:
            assert [tick.n for tick in sub.recv_many(100, timeout=PATIENCE_S)][:4] == [5, 6, 7, 8]
        with pytest.raises(rm.SchemaMismatch):
            rm.Subscriber("t", type=dict[str, str], since="1h", recording=tmp_path / "r")


def test_from_when(tmp_path: Path) -> None:
    now_ns = time.time_ns()
    with RecordingWriter(tmp_path / "r") as writer:
        times = [now_ns - hour * 3600 * 10**9 for hour in (5, 4, 3, 2, 1)]
        rows = batch(0, [0, 1, 2, 3, 4])
        writer.append("t", 1, rows.set_column(1, rows.schema.field(1), pa.array(times, pa.int64())))
        writer.rotate()
        writer.append("t", 1, batch(5, [5]))

    def first(since: Any) -> int:
        with rm.Subscriber("t", since=since, recording=tmp_path / "r") as sub:
            return sub.recv_message(timeout=PATIENCE_S).seq

    assert first("150m") == 3
    assert first(datetime.fromtimestamp(now_ns / 1e9, UTC) - timedelta(hours=3.5)) == 2
    assert [first(n) for n in (1, 2, 6, 99)] == [5, 4, 0, 0]
    with pytest.raises(rm.RingmainError, match="there is no incident 'yesterday'"):
        first("yesterday")
    with pytest.raises(ValueError, match="start= and since= exclude each other"):
        rm.Subscriber("t", since="1h", recording=tmp_path / "r", start="oldest")
    with pytest.raises(ValueError, match="since= and recording= belong together"):
        rm.Subscriber("t", since="1h")


def test_from_an_incident_also_when_all_around_it_is_deleted(tmp_path: Path, until: Until) -> None:
    """By its name, or itself: what it has, what is left of the recording, and the ring; the hole between is counted."""
    path, options = tmp_path / "r", {"flush_interval_s": 0.01, "fsync": "never"}
    with rm.Publisher("t", contract="reliable", capacity=4096) as pub:
        with rm.Recorder(path, "t", before_s=60, after_s=0, segment_bytes=500, keep_bytes=2000, **options) as recorder:  # type: ignore[arg-type]
            for n in range(300):
                if n == 10:
                    until(lambda: recorder.status().messages == 10)
                    rm.trigger(path, "early on")
                    until(lambda: recorder.status().incidents == 1 and not recorder.status().incidents_open)
                pub.send(b"%d" % n)
                until(lambda n=n: n % 20 or recorder.status().messages == n + 1)
        pub.send(b"300")
        (incident,) = rm.Recording(path).incidents()
        left = next(iter(rm.Recording(path))).seq
        assert left > 20
        for since in ("request", incident):
            with rm.Subscriber("t", since=since, recording=path) as sub:
                got = drain(sub, 300)
                assert [m.seq for m in got] == [*range(10), *range(left, 301)]
                assert sub.lost == got[10].lost == left - 10


def test_what_has_no_history(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r") as writer:
        writer.declare("jobs", epoch=1, contract="work")
        writer.append("jobs", 1, batch(0, [0]))
    with pytest.raises(Unsupported, match="have no history"):
        rm.Subscriber("jobs", since="1h", recording=tmp_path / "r")
