"""Values that topics keep for readers that join late, in incidents: an incident begins with what was latched when its
window began, whenever that was published; marked, and beside the slice of the whole recording.

What is latched is compared with a plain model of it: of all rows recorded before the window, the last of each kind, of
the newest life of each topic.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import ringmain as rm
from ringmain.recording import RecordingWriter, list_segments
from ringmain.recording._format import LATCHED, Position
from ringmain.recording._meta import Properties
from ringmain.recording._record import latched_so_far
from ringmain.recording._record.flight import Flight
from ringmain.recording._record.row_builder import RowBuilder, ring_rows
from ringmain.recording._segment import latched, store
from tests import forked, samples
from tests.conftest import PATIENCE_S
from tests.recording.conftest import START_NS
from tests.recording.test_crash import INCIDENTS
from tests.recording.test_flight import planned

Until = Callable[[Callable[[], object]], None]
Row = tuple[int, str, int, int, str, bytes]  # time, topic, epoch, sequence, kind, payload
SECOND_NS = 1_000_000_000
KINDS = 3


def rows_of(path: Path, incident: str, *, of_latched: bool) -> list[Row]:
    columns = ("topic", "epoch", "seq", "publish_time", "publish_ns", "kind", "payload", "latched")
    table = rm.Recording(path, incident=incident).to_arrow(columns=columns).to_pylist()
    return [
        (round(row["publish_time"].timestamp() * 1_000_000) * 1000 + row["publish_ns"] - START_NS,
         row["topic"], row["epoch"], row["seq"], row["kind"], row["payload"])
        for row in table
        if row["latched"] == of_latched
    ]  # fmt: skip


def latched_before(whole: list[Row], before: int) -> list[Row]:
    found: dict[str, tuple[int, dict[str, Row]]] = {}
    for row in whole:
        time, topic, epoch, _, kind, _ = row
        if time < before and topic != "plain":
            if found.get(topic, (None,))[0] != epoch:
                found[topic] = (epoch, {})
            known = found[topic][1]
            if kind in known or len(known) < KINDS:
                known[kind] = row
    return sorted((row for _, known in found.values() for row in known.values()), key=lambda r: (r[0], r[1], r[3]))


@pytest.mark.parametrize("seed", samples.some(range(6), 2))
def test_what_is_latched_is_the_last_of_each_kind_before_the_window(tmp_path: Path, seed: int) -> None:
    """Three topics of which two keep kinds, more kinds than they keep, lives that end, segments of random length, a
    recorder that is followed by another, retention that deletes all it may, and windows that overlap."""
    chance = random.Random(seed)
    triggers = [rm.Trigger(kind="*: bad", before_s=3, after_s=2, cooldown_s=4)]
    path, whole = tmp_path / "flight", list[Row]()
    epochs, seqs = {"a": 1, "b": 1, "plain": 1}, {"a": 0, "b": 0, "plain": 0}
    options = {"fsync": "never", "flush_interval_s": 1000, "keep_age_s": 1, "leave_from_ns": START_NS}

    def begin() -> tuple[RecordingWriter, Flight]:
        writer = RecordingWriter(path, **options)  # type: ignore[arg-type]
        return writer, Flight(writer, triggers, recorder="recorder", sync=False)

    writer, flight = begin()
    for step in range(80):
        topic = chance.choice(["a", "b", "b", "plain"])
        if chance.random() < 0.05:
            epochs[topic], seqs[topic] = epochs[topic] + 1, 0
        times = sorted(step * SECOND_NS + chance.randrange(SECOND_NS) for _ in range(chance.randrange(1, 9)))
        kinds = [chance.choice(["k0", "k1", "k2", "k3", "k4"] + ["bad"] * (step % 5 == 4)) for _ in times]
        first = seqs[topic]
        ring = ring_rows(
            len(times), seq=range(first, first + len(times)), time_ns=[START_NS + t for t in times], kind=kinds,
            data=[f"{topic} {t}".encode() for t in times],
        )  # fmt: skip
        kept = Properties(kept_kinds=KINDS) if topic != "plain" else Properties()
        writer.declare(topic, epoch=epochs[topic], contract="broadcast", properties=kept)
        flight.see(topic, ring, b"")
        writer.append(topic, epochs[topic], ring)
        whole += [
            (t, topic, epochs[topic], first + n, kind, f"{topic} {t}".encode())
            for n, (t, kind) in enumerate(zip(times, kinds, strict=True))
        ]
        seqs[topic] += len(times)
        writer.leave_from_ns = START_NS + (step - 4) * SECOND_NS
        flight.close([incident for incident in flight.open if incident.end_ns <= START_NS + step * SECOND_NS])
        if chance.random() < 0.3:
            writer.rotate()
        if chance.random() < 0.05:
            writer.close()
            writer, flight = begin()
    flight.close()
    writer.close()
    known = rm.Recording(path).incidents()
    assert len(known) > 3
    assert len(list(path.glob("0*.parquet"))) < 60, "retention has deleted some"
    for incident in known:
        start, end = incident.start_ns - START_NS, incident.end_ns - START_NS
        assert rows_of(path, incident.id, of_latched=True) == latched_before(whole, start)
        window = [row for row in whole if start <= row[0] < end]
        assert rows_of(path, incident.id, of_latched=False) == window, "the slice of the whole"
        recording = rm.Recording(path, incident=incident.id)
        assert len(recording) == len(list(recording))
        assert sum(len(batch) for _, batch in recording.batches(latched=False)) == len(window)
        assert recording.time_range_ns is not None
        assert recording.time_range_ns[0] >= incident.start_ns
        assert all(message.lost == 0 for message in recording if message.position.segment == LATCHED)
        assert all(ref.open().sealed for ref in list_segments(recording.store))


def test_spark_and_the_pipeline_plan_them_too(tmp_path: Path) -> None:
    path = tmp_path / "flight"
    with RecordingWriter(path, fsync="never", keep_bytes=1) as writer:
        flight = Flight(writer, [rm.Trigger(kind="a: bad", before_s=1e-9, after_s=5e-9)], recorder="r", sync=False)
        writer.declare("a", epoch=1, properties=Properties(kept_kinds=9))
        for n, kind in enumerate(["one", "two", "one", "bad", "two"]):
            ring = ring_rows(1, seq=[n], time_ns=[START_NS + 2 * n], kind=[kind], data=[b"%d" % n], lost=[n])
            flight.see("a", ring, b"")
            writer.append("a", 1, ring)
            writer.rotate()
        flight.close()
    (incident,) = rm.Recording(path).incidents()
    assert [(m.kind, m.data) for m in rm.Recording(path, incident=incident.id)] == [
        ("two", b"1"), ("one", b"2"), ("bad", b"3"), ("two", b"4"),
    ]  # fmt: skip
    assert [data for _, _, data in planned(path, incident.id, all_in_it=False)] == [b"1", b"2", b"3", b"4"]
    assert [gap.lost for gap in rm.Recording(path, incident=incident.id).gaps()] == [3, 4], "those of the window"
    assert [m.position for m in rm.Recording(path, incident=incident.id)][:2] == [Position(-1, 0), Position(-1, 1)]
    assert Position.parse(str(Position(-1, 1))) == Position(-1, 1)
    assert rm.Recording(path, incident=incident.id).verify().ok


def values(path: Path, incident: str = "") -> list[tuple[str, bytes]]:
    recording = rm.Recording(path, incident=incident)
    return [(m.kind, m.data) for m in recording if m.position.segment == LATCHED]


def test_latched_before_the_recorder_started(tmp_path: Path, until: Until) -> None:
    """The ring has dropped them: its table of kept kinds has them. An incident of a topic that says nothing more has
    them, too, and replayed, readers that join late begin with them."""
    with rm.Publisher("config", capacity="64KiB", keep_last_per_kind=4, contract="broadcast") as pub:
        pub.send(b"map of the yard", kind="map")
        pub.send(b"a first guess", kind="gain")
        for _ in range(3000):
            pub.send(b"17", kind="speed")
        pub.send(b"0.5", kind="gain")
        with rm.Recorder(tmp_path / "r", "*", before_s=0.01, after_s=0, fsync="never") as recorder:
            rm.trigger(tmp_path / "r", "nothing has been said since")
            until(lambda: recorder.status().incidents == 1 and not recorder.status().incidents_open)
            assert recorder.status().messages == 0
    expected = [("map", b"map of the yard"), ("speed", b"17"), ("gain", b"0.5")]
    assert values(tmp_path / "r") == expected
    recording = rm.Recording(tmp_path / "r", incident="request")
    assert [(topic, stats.rows) for topic, stats in recording.topics().items()] == [("config", 3)]
    player = rm.Player(recording, rename={"config": "again"}, speed=1.0).open()
    with rm.Subscriber("again", name="holds the topic"):
        assert player.run().messages == 3
        assert player.status().late_max_s == 0
        assert rm.info("again").max_kept_kinds == 4
        with rm.Subscriber("again", start="newest") as late:
            assert [(m.kind, m.data) for m in late.recv_messages(10)] == expected


def test_they_stay_latched_however_long_ago_that_was(tmp_path: Path, until: Until) -> None:
    """Retention deletes their segments. A topic that is found while recording brings what it had kept; what a topic
    that is removed had kept is not latched any more."""
    options = {"before_s": 1e-6, "after_s": 0, "fsync": "never", "keep_bytes": 1, "flush_interval_s": 0.01}
    path = tmp_path / "r"

    def incidents(count: int) -> None:
        rm.trigger(path, "now")
        until(lambda: recorder.status().incidents == count and not recorder.status().incidents_open)

    with (
        rm.Publisher("a", contract="reliable", keep_last_per_kind=True) as pub,
        rm.Recorder(path, "*", exclude="no", segment_bytes=2000, **options) as recorder,  # type: ignore[arg-type]
    ):
        pub.send(b"latched", kind="rare")
        for n in range(100):
            pub.send(bytes(500))
            until(lambda n=n: recorder.status().messages >= n + 2)
        until(lambda: not rm.Recording(path).to_arrow().filter(pa.compute.field("kind") == "rare"))
        incidents(1)
        pub.send(b"later", kind="rare")
        until(lambda: recorder.status().messages == 102)
        with rm.Publisher("b", keep_last_per_kind=True) as other:
            other.send(b"here", kind="b")
            until(lambda: recorder.status().messages == 103)
            incidents(2)
        rm.unlink("b", force=True)
    one, two = rm.Recording(path).incidents()
    assert [kind for kind, _ in values(path, one.id)] == ["rare", ""]
    assert values(path, one.id)[0] == ("rare", b"latched")
    assert ("rare", b"later") in values(path, two.id)
    assert ("b", b"here") in values(path, two.id)
    with rm.Publisher("a", contract="reliable", keep_last_per_kind=True), rm.Recorder(path, "*", **options) as recorder:  # type: ignore[arg-type]
        incidents(3)
    three = rm.Recording(path).incidents()[-1]
    assert values(path, three.id) == [(kind, data) for kind, data in values(path, two.id) if kind != "b"]


CHILD = """
import sys, ringmain as rm
rm.Recorder(sys.argv[1], "t", before_s=0.01, after_s=0.3, segment_bytes=4000, keep_bytes=8000,
            flush_interval_s=0.01, fsync="never").run()
"""


@pytest.mark.parametrize("label", INCIDENTS)
def test_a_recorder_that_is_killed_leaves_what_was_latched_to_the_next(
    tmp_path: Path, until: Until, label: str
) -> None:
    path = tmp_path / "flight"
    with rm.Publisher("t", contract="reliable", capacity="1MiB", keep_last_per_kind=True) as pub:
        pub.send(b"before there was a recorder", kind="first")
        environment = {**os.environ, "RINGMAIN_CRASH": label}
        child = forked.Popen([sys.executable, "-c", CHILD, str(path)], env=environment)
        pub.wait_for_readers(1, timeout=PATIENCE_S)
        pub.send(b"recorded", kind="second")
        for n in range(300):
            pub.send(b"%d" % n)
        until(lambda: (path / "lock").exists() and (path / "meta.json").exists())
        rm.trigger(path, "please")
        assert child.wait(PATIENCE_S) == -signal.SIGKILL
        with rm.Recorder(path, "t", before_s=0.01, after_s=0.3, fsync="never") as second:
            until(lambda: second.status().incidents == 1 and not second.status().incidents_open)
            second_id = rm.trigger(path, "once more")
            until(lambda: second.status().incidents == 2 and not second.status().incidents_open)
    for incident in rm.Recording(path).incidents():
        found = dict(values(path, incident.id))
        assert found["first"] == b"before there was a recorder"
        assert found.get("second", b"recorded") == b"recorded"
    assert dict(values(path, second_id))["second"] == b"recorded"


def test_uploaded_incidents_have_them(tmp_path: Path, until: Until) -> None:
    path, uri = tmp_path / "r", (tmp_path / "store").as_uri()
    with rm.Publisher("t", keep_last_per_kind=True) as pub:
        pub.send(b"kept", kind="config")
        options = {"before_s": 1e-6, "after_s": 0, "sealed_uri": uri, "upload": "incidents"}
        with rm.Recorder(path, "t", fsync="never", **options) as recorder:  # type: ignore[arg-type]
            pub.send(b"1")
            rm.trigger(path, "please")
            until(lambda: recorder.status().incidents == 1 and not recorder.status().incidents_open)
            until(lambda: (tmp_path / "store" / "incidents").exists())
    (incident,) = rm.Recording(uri).incidents()
    found = [(m.kind, m.data) for m in rm.Recording(uri, incident=incident.id) if m.position.segment == LATCHED]
    assert found[0] == ("config", b"kept")
    assert values(path, incident.id) == found


def test_large_values_are_carried_as_they_were_and_too_many_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    """Payloads that are recorded without a copy are copied here; and of what is too much the smallest are carried."""
    large = os.urandom(200_000)

    def keep(path: Path) -> list[tuple[str, bytes]]:
        with rm.Recorder(path, "m", before_s=1e-6, after_s=0, fsync="never") as recorder:
            for n in range(40):
                pub.send(large[n:], kind="large")
            pub.send(b"small", kind="small")
            until(lambda: recorder.status().messages == 41)
            rm.trigger(path, "please")
            until(lambda: recorder.status().incidents == 1 and not recorder.status().incidents_open)
        return values(path)

    with rm.Publisher("m", contract="reliable", capacity="256MiB", keep_last_per_kind=8) as pub:
        assert keep(tmp_path / "r") == [("large", large[39:]), ("small", b"small")]
        for module in (latched, latched_so_far):
            monkeypatch.setattr(module, "MOST_BYTES", 100_000)
        with pytest.warns(RuntimeWarning, match="1 messages that topics keep .* are not in incidents"):
            keep(tmp_path / "s")


def test_large_values_that_were_replaced_are_let_go() -> None:
    """What a recorder holds is what is latched, however the kinds came together."""
    kinds, size = 16, 1 << 20
    found, before = latched.Latched(), pa.total_allocated_bytes()
    for first in range(kinds):  # each batch has fewer kinds than the one before
        numbers = range(first, kinds)
        values, named = [os.urandom(size) for _ in numbers], [f"k{n}" for n in numbers]
        rows = ring_rows(len(values), seq=numbers, time_ns=[START_NS] * len(values), kind=named, data=values)
        found.add(("t", 1), kinds, RowBuilder("r").build("t", 1, rows, [(len(rows), START_NS)]).batch)
    del rows
    held = pa.total_allocated_bytes() - before
    assert len(found.rows()) == kinds
    assert held < 1.5 * kinds * size


def test_footers_that_carry_much_are_not_all_kept(
    tmp_path: Path, s3: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the files of a store those opened last are kept, by their size; and one that is opened again is the last."""
    uri = f"s3://lakes/{tmp_path.name}"
    for number in range(4):
        with RecordingWriter(tmp_path / str(number), sealed_uri=f"{uri}/{number}", storage_options=s3) as writer:
            writer.declare("t", epoch=1, properties=Properties(kept_kinds=2))
            value = os.urandom(300_000)
            writer.latch("t", 1, ring_rows(1, seq=[0], time_ns=[START_NS], kind=["map"], data=[value]))
            writer.append("t", 1, ring_rows(1, seq=[1], time_ns=[START_NS], kind=["x"], data=[b"1"]))
    refs = [list_segments(rm.Recording(f"{uri}/{number}", storage_options=s3).store)[0] for number in range(4)]
    monkeypatch.setattr(store, "_FOOTERS", {})
    monkeypatch.setattr(store, "_FOOTERS_BYTES", 1_000_000)
    for number in (0, 1, 0, 2):
        refs[number].open(known=True).close()
    assert [key[1].split("/")[-2] for key in store._FOOTERS] == ["0", "2"]
    assert all(footer.metadata.serialized_size > 400_000 for footer in store._FOOTERS.values())
    monkeypatch.setattr(store, "_FOOTERS_BYTES", 100_000)
    assert refs[3].open(known=True).latched
    assert not store._FOOTERS
