"""The flight recorder: an incident is the slice of a full recording, row by row, whatever retention deletes around it,
and whenever the recorder dies; and it is kept exactly once.

Where times matter they are chosen by the test, which asks the triggers about batches of its own. Kills are of real
recorders at labelled points.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pytest

import ringmain as rm
from ringmain import typed
from ringmain._cli.expression import Filter, FilterError
from ringmain.errors import RecordingError, RecordingNotFound
from ringmain.recording import RecordingWriter, _checksum, forget, list_segments
from ringmain.recording._format import FIRST
from ringmain.recording._locations import find_recordings
from ringmain.recording._plan import between, plan_all
from ringmain.recording._record.flight import Flight
from ringmain.recording._record.predicate import Predicate
from ringmain.recording._record.tap import Tap
from ringmain.recording._scan import Scan, source_schema
from ringmain.recording._segment.store import Store
from ringmain.recording._upkeep.incidents import Request
from tests import forked, samples
from tests.conftest import PATIENCE_S
from tests.recording.test_crash import INCIDENTS
from tests.recording.test_replay import START_NS, batch

Until = Callable[[Callable[[], object]], None]
SECOND_NS = 1_000_000_000


def seen(path: Path, incident: str | None = None) -> list[tuple[str, int, bytes]]:
    return [(m.topic, m.seq, m.data) for m in rm.Recording(path, incident=incident)]


def planned(path: Path, incident: str, *, all_in_it: bool = True) -> list[tuple[str, int, bytes]]:
    (found,) = find_recordings(str(path), incident=incident).values()
    scan = Scan(source_schema(None, False, False, True))
    ranges = between("", plan_all(found, lambda ref, error: None), FIRST, None, 1 << 10, scan.filter(found.kept))
    rows = [row for item in ranges for batch in scan.read(item) for row in batch.to_pylist()]
    assert not all_in_it or all(incident in row["incidents"] for row in rows)
    return [(row["topic"], row["seq"], row["payload"]) for row in rows]


@pytest.mark.parametrize("kept_bytes", [1, 60_000])
@pytest.mark.parametrize("seed", samples.some(range(4), 2))
def test_incidents_are_slices_of_the_whole_under_overlapping_triggers_and_retention(
    tmp_path: Path, seed: int, kept_bytes: int
) -> None:
    """Two topics, segments of random length, a recorder that keeps nothing, or little more than a window, and triggers
    whose windows overlap: each incident has exactly the rows of its window, or says from when on; and all else that is
    old is deleted."""
    chance = random.Random(seed)
    triggers = [
        rm.Trigger(kind="a: k0", before_s=3, after_s=2, cooldown_s=7, name="even"),
        rm.Trigger(loss="b", before_s=1, after_s=6, cooldown_s=0, name="lost"),
    ]
    whole: list[tuple[int, str, int, bytes]] = []
    path = tmp_path / "flight"
    writer = RecordingWriter(path, fsync="never", flush_interval_s=1000, keep_bytes=kept_bytes)
    flight = Flight(writer, triggers, recorder="recorder", sync=False)
    for step in range(60):
        topic = chance.choice("ab")
        times = sorted(step * SECOND_NS + chance.randrange(SECOND_NS) for _ in range(chance.randrange(1, 9)))
        ring = batch(step * 10, times)
        if topic == "b" and chance.random() < 0.1:
            lost = pa.array([3] + [0] * (len(times) - 1), pa.uint64())
            ring = ring.set_column(4, ring.schema.field(4), lost)
        flight.see(topic, ring, b"")
        writer.append(topic, 1, ring)
        whole += [(t, topic, step * 10 + n, str(t).encode()) for n, t in enumerate(times)]
        over = [incident for incident in flight.open if incident.end_ns <= START_NS + step * SECOND_NS]
        flight.close(over)
        if chance.random() < 0.3:
            writer.rotate()
    flight.close()
    writer.close()
    kept = rm.Recording(path).incidents()
    assert len(kept) == flight.count > 3
    pinned: set[int] = set()
    in_window: dict[tuple[str, bytes], list[str]] = {}
    rows_of = {one.id: {(topic, data) for topic, _, data in seen(path, one.id)} for one in kept}
    for incident in kept:
        start, end = incident.start_ns - START_NS, incident.end_ns - START_NS
        whole_from = max(start, incident.whole_from_ns - START_NS)
        assert whole_from <= incident.trigger_ns - START_NS
        expected = [(topic, seq, data) for t, topic, seq, data in whole if start <= t < end]
        found = seen(path, incident.id)
        assert set(found) <= set(expected)
        assert [row for row in found if int(row[2]) >= whole_from] == [r for r in expected if int(r[2]) >= whole_from]
        if not incident.whole_from_ns:
            assert found == expected
        recording = rm.Recording(path, incident=incident.id)
        assert len(recording) == len(found)
        assert sum(stats.rows for stats in recording.topics().values()) == len(found)
        assert planned(path, incident.id) == found, "as Spark and the pipeline read it"
        column = recording.to_arrow(columns=("topic", "payload", "incidents")).to_pylist()
        assert all(incident.id in row["incidents"] for row in column)
        for row in column:
            in_window[row["topic"], row["payload"]] = row["incidents"]
        pinned |= set(range(*incident.segments))
    several = {key: sorted(one.id for one in kept if key in rows_of[one.id]) for key in in_window}
    assert {key: sorted(ids) for key, ids in in_window.items()} == several
    here = {int(file.name[:9]) for file in path.glob("0*.parquet")}
    assert here <= pinned | {ref.number for ref in list_segments(Store(path))}, "nothing else is kept"
    for incident in kept:
        forget(path, incident.id)
    with RecordingWriter(path, keep_bytes=1) as writer:
        writer.append("a", 1, batch(0, [0]))
    assert len(list(path.glob("0*.parquet"))) <= 2, "the next recorder deletes what nothing pins any more"


def test_a_trigger_rests_for_its_cooldown_also_that_of_the_recorder_before(tmp_path: Path) -> None:
    """A message of the kind each second, and a recorder that is followed by another after the fifth."""
    triggers = [
        rm.Trigger(kind="a: k0", before_s=0, after_s=0, cooldown_s=3, name="three"),
        rm.Trigger(kind="a: k0", before_s=0, after_s=2, name="as long as after_s"),
        rm.Trigger(kind="a: k0", before_s=0, after_s=0, name="a second at least"),
    ]
    for seconds in (range(5), range(5, 10)):
        with RecordingWriter(tmp_path / "flight", fsync="never") as writer:
            flight = Flight(writer, triggers, recorder="recorder", sync=False)
            for second in seconds:
                flight.see("a", batch(2 * second, [second * SECOND_NS, second * SECOND_NS + SECOND_NS // 2]), b"")
    fired: dict[str, list[int]] = {}
    for incident in rm.Recording(tmp_path / "flight").incidents():
        fired.setdefault(incident.name, []).append((incident.trigger_ns - START_NS) // SECOND_NS)
    assert fired["three"] == [0, 3, 6, 9]
    assert fired["as long as after_s"] == [0, 2, 4, 6, 8]
    assert fired["a second at least"] == list(range(10))


def test_a_trigger_fires_again_after_the_wall_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an hour. It rests for its cooldown, and not until the clock has come as far again."""
    now_s = [0.0]
    monkeypatch.setattr(f"{Flight.__module__}.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    with RecordingWriter(tmp_path / "flight", fsync="never") as writer:
        trigger = rm.Trigger(kind="a: k0", before_s=0, after_s=0, cooldown_s=3)
        flight = Flight(writer, [trigger], recorder="recorder", sync=False)
        for second in range(12):
            now_s[0] = float(second)
            at_s = second if second < 5 else second - 3600
            flight.see("a", batch(second, [at_s * SECOND_NS]), b"")
    found = [(one.trigger_ns - START_NS) // SECOND_NS for one in rm.Recording(tmp_path / "flight").incidents()]
    assert found == [6 - 3600, 9 - 3600, 0, 3]


def test_an_incident_has_what_only_another_one_had_kept_and_says_what_was_deleted(tmp_path: Path, until: Until) -> None:
    """Retention by size counts segments as deleted, and leaves the files of those that another incident pins."""
    path = tmp_path / "flight"
    triggers = [
        rm.Trigger(kind="a: k1", before_s=3e-9, after_s=1e-9, name="first"),
        rm.Trigger(loss="a", before_s=9e-9, after_s=1e-9, name="second"),
        rm.Trigger(loss="a", before_s=11e-9, after_s=1e-9, name="third"),
    ]
    with RecordingWriter(path, fsync="never", keep_bytes=1) as writer:
        flight = Flight(writer, triggers, recorder="recorder", sync=False)
        for n, time_ns in enumerate([0, 2, 4, 7, 8, 12]):
            ring = batch(n, [time_ns])
            if time_ns == 12:
                ring = ring.set_column(4, ring.schema.field(4), pa.array([1], pa.uint64()))
            flight.see("a", ring, b"")
            writer.append("a", 1, ring)
            if time_ns == 7:
                flight.close()
            writer.rotate()
            until(lambda: not writer.segments_waiting)  # all but the newest have been deleted
        flight.close()
    first, second, third = rm.Recording(path).incidents()
    assert [int(data) for _, _, data in seen(path, first.id)] == [4, 7]
    assert [int(data) for _, _, data in seen(path, second.id)] == [4, 7, 8, 12], "4 and 7 were kept for the first"
    assert [int(data) for _, _, data in seen(path, third.id)] == [4, 7, 8, 12]
    assert (first.whole_from_ns, second.whole_from_ns) == (0, 0)
    assert third.whole_from_ns == START_NS + 3, "2 was of its window, and deleted"


def test_retention_by_age_leaves_what_may_still_be_wanted(tmp_path: Path, until: Until) -> None:
    """All of it is years old. Until a flight recorder has looked, nothing is deleted; then what was published before
    the oldest message that is not recorded yet, less the window before it; and all, once nothing is behind."""
    path = tmp_path / "r"

    def record(seq: int, time_ns: int) -> set[int]:
        writer.append("a", 1, batch(seq, [time_ns]))
        writer.rotate()
        until(lambda: not writer.segments_waiting)
        return {int(file.name[:9]) for file in path.glob("0*.parquet")}

    with (
        rm.Publisher("a", contract="reliable") as pub,
        Tap("a", start="next", observe=False, name="recorder") as tap,
        RecordingWriter(path, fsync="never", keep_age_s=1, leave_from_ns=0) as writer,
    ):
        pub.send(b"not recorded yet")
        triggers = [rm.Trigger(kind="a: bad", before_s=3e-9)]
        flight = Flight(writer, triggers, recorder="recorder", before_s=0, sync=False)
        for seq, time_ns in enumerate([0, 2, 4, 6]):
            here = record(seq, time_ns)
        assert here == {0, 1, 2, 3}
        flight.see("a", batch(3, [6]), b"")
        flight.tick(lambda: [tap])
        assert record(4, 8) == {2, 3, 4}, "from 3 ns on"
        tap.recv(timeout=0)
        Flight(writer, triggers, recorder="recorder", before_s=0, sync=False).tick(lambda: [tap])
        assert record(5, 10) == {5}


def test_a_request_that_a_recorder_left_has_what_is_too_old_by_now(tmp_path: Path, until: Until) -> None:
    """Its successor seals what it left, and deletes nothing before it has done the request."""
    path = tmp_path / "r"
    writer = RecordingWriter(path, fsync="never")
    for n in range(4):
        writer.append("a", 1, batch(n, [n]))
        writer.flush() if n == 3 else writer.rotate()
    asked = rm.trigger(path, "just before it died")
    file = path / "triggers" / f"{asked}.json"
    request = _checksum.load_json(file.read_bytes(), Request)
    assert request is not None
    file.write_bytes(_checksum.dump_json(msgspec.structs.replace(request, time_ns=START_NS + 3)))
    writer.abandon()
    with rm.Recorder(path, "b", keep_age_s=1, before_s=1, fsync="never") as recorder:
        until(lambda: recorder.status().incidents == 1)
    (incident,) = rm.Recording(path).incidents()
    assert incident.whole_from_ns == 0
    assert [int(data) for _, _, data in seen(path, incident.id)] == [0, 1, 2, 3]


def test_a_request_just_before_the_recorder_ends_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flight, "tick", lambda *_: None)  # it looks for requests twenty times a second
    path = tmp_path / "r"
    with rm.Publisher("a", contract="reliable") as pub, rm.Recorder(path, "a", fsync="never"):
        pub.send(b"seen")
        asked = rm.trigger(path, "just before the end")
    (incident,) = rm.Recording(path).incidents()
    assert (incident.id, incident.is_open) == (asked, False)
    assert seen(path, asked) == [("a", 0, b"seen")]


class Imu(msgspec.Struct):
    n: int
    ax: float
    tags: list[str] = []
    name: str | None = None


SPEEDS = [-9.5, 0, 0.5, 3, 12.25]
IMUS = [Imu(n, ax, ["x"] * (n % 3), None if n % 4 == 0 else f"Name{n}") for n, ax in enumerate(SPEEDS)]


@pytest.mark.parametrize(
    "text",
    [
        "ax > 9", "ax > 9 or n == 1", "not ax > 0 and n < 3", "0 < ax <= 3", "abs(ax) > 9", "n % 2 == 1",
        "n // 2 == 1", "ax / 2 > 1", "-ax > 9", "n in (1, 3)", "n not in [1, 3]", "len(tags) == 2",
        "max(ax, n) >= 4", "min(ax, n) < 0",
        "n * 2 + 1 > 5", "round(ax) == 12", "n - ax > 5", "message.sender == 's'", "message.kind == 'k1' and n > 0",
        "n", "ax == ax",
    ],
)  # fmt: skip
def test_a_trigger_says_of_a_batch_what_echo_says_of_each_message(text: str) -> None:
    codec = typed.codec_for(Imu)
    rows = [msgspec.structs.asdict(imu) for imu in IMUS]
    envelope = [{"sender": "s", "kind": f"k{n % 2}"} for n in range(len(rows))]
    expected = [Filter(text).matches({**row, "message": each}) for row, each in zip(rows, envelope, strict=True)]
    values, _ = typed.decode_column(pa.array([bytes(codec.encode(imu)) for imu in IMUS], pa.binary()), codec.schema)
    columns = dict(zip((f.name for f in values.type), values.flatten(), strict=True))
    found = Predicate(text).of({**columns, "message": pa.array(envelope)}, len(rows)).to_pylist()
    assert found == expected


@pytest.mark.parametrize("text", ["startswith(name, 'Name')", "endswith(lower(name), '3')", "tags[1] == 'x'"])
def test_where_echo_says_that_a_message_has_no_such_value_a_trigger_does_not_fire(text: str) -> None:
    def by_echo(imu: Imu) -> bool:
        try:
            return Filter(text).matches(msgspec.structs.asdict(imu))
        except FilterError:
            return False

    table = pa.Table.from_pylist([msgspec.structs.asdict(imu) for imu in IMUS]).combine_chunks().to_batches()[0]
    columns = dict(zip(table.schema.names, table.columns, strict=True))
    assert Predicate(text).of(columns, len(IMUS)).to_pylist() == [by_echo(imu) for imu in IMUS]


@pytest.mark.parametrize(
    "text", ["ax >", "open('x')", "ax[1:2]", "x.__class__", "(" * 300 + "1" + ")" * 300, "n in ax"]
)
def test_what_is_no_expression_is_refused_when_the_trigger_is_made(text: str) -> None:
    with pytest.raises(ValueError, match=r"expression|trigger|nested"):
        rm.Trigger(when=f"imu: {text}")


def test_triggers_are_checked() -> None:
    with pytest.raises(ValueError, match="exactly one of"):
        rm.Trigger()
    with pytest.raises(ValueError, match="exactly one of"):
        rm.Trigger(kind="a: b", loss="c")
    with pytest.raises(ValueError, match="written 'TOPIC: "):
        rm.Trigger(when="imu")
    with pytest.raises(ValueError, match="before_s is a number"):
        rm.Trigger(loss="a", before_s=-1)
    with pytest.raises(ValueError, match=r"has the 30 s before its trigger, but only 10 s are kept .*--keep"):
        rm.Recorder("x", triggers=[rm.Trigger(loss="a", before_s=30)], keep_age_s=10)
    with pytest.raises(ValueError, match="has the 20 s before"):
        rm.Recorder("x", before_s=20, keep_age_s=10)
    rm.Recorder("x", triggers=[rm.Trigger(loss="a", before_s=10, after_s=99)], keep_age_s=10)
    assert rm.Trigger(silence="imu: 2s").silent_s == 2


def test_a_trigger_that_does_not_apply_says_so(tmp_path: Path, until: Until) -> None:
    with rm.Publisher("imu", type=Imu) as pub:
        with rm.Recorder(tmp_path / "r", triggers=[rm.Trigger(when="imu: az > 9")]) as recorder:
            pub.send(IMUS[0])
            until(lambda: recorder.status().trigger_problems)
            assert "no field 'az' (there are message, n, ax, tags, name)" in recorder.status().trigger_problems[0]


@pytest.mark.parametrize("what", ["kind", "loss", "silence", "death", "when"])
def test_what_triggers(tmp_path: Path, until: Until, what: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = {"kind": "imu: bad", "silence": "imu: 0.02", "when": "imu: ax > 9"}.get(what, "imu")
    trigger = rm.Trigger(**{what: text}, before_s=1, after_s=0)  # type: ignore[arg-type]
    with rm.Recorder(tmp_path / "r", triggers=[trigger], observe=True) as recorder:
        with rm.Publisher("imu", type=Imu, contract="broadcast", capacity=1 << 16) as pub:
            if what == "loss":
                with rm.Subscriber("imu", name="slow") as slow:
                    for _ in range(4):
                        pub.send_many([IMUS[0]] * 2000)
                    slow.try_recv()
                    until(lambda: recorder.status().incidents)
            elif what == "death":
                program = "import ringmain as rm, os, signal; s = rm.Subscriber('imu', name='doomed'); s.try_recv(); "
                program += "print('in', flush=True); signal.pause()"
                child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
                assert child.stdout is not None
                child.stdout.readline()
                pub.send(IMUS[0])
                until(lambda: recorder.status().messages)
                child.kill()
                child.wait()
                child.stdout.close()
                until(lambda: recorder.status().incidents)
            else:
                pub.send(IMUS[0])
                pub.send(IMUS[4], kind="bad")
                until(lambda: recorder.status().incidents)
    (incident,) = rm.Recording(tmp_path / "r").incidents()[:1]
    assert incident.name == f"{what} {text}"
    assert "imu" in incident.why
    assert not incident.is_open


def test_asked_for_from_anywhere(tmp_path: Path, until: Until) -> None:
    with pytest.raises(RecordingError, match="no recorder runs on"):
        rm.trigger(tmp_path, "unheard")
    with rm.Publisher("t") as pub, rm.Recorder(tmp_path / "r", before_s=60, after_s=0) as recorder:
        for n in range(3):
            pub.send(b"%d" % n)
        until(lambda: recorder.status().messages == 3)
        asked = rm.trigger(tmp_path / "r", "operator pressed", name="By Hand!")
        until(lambda: recorder.status().incidents == 1)
        until(lambda: not recorder.status().incidents_open)
        pub.send(b"later")
    assert asked.endswith("-by-hand")
    assert [data for _, _, data in seen(tmp_path / "r", "by-hand")] == [b"0", b"1", b"2"]
    assert not list((tmp_path / "r" / "triggers").iterdir())
    with pytest.raises(RecordingNotFound, match=f"there is no incident 'x'; there are {asked}"):
        rm.Recording(tmp_path / "r", incident="x")
    assert rm.replay(rm.Recording(tmp_path / "r", incident="by-hand"), rename={"t": "again"}).messages == 3


CHILD = """
import sys, ringmain as rm
triggers = [rm.Trigger(when="t: n == 500", before_s=60, after_s=0.3, name="five hundred")]
rm.Recorder(sys.argv[1], "t", triggers=triggers, before_s=60, after_s=0.3, segment_bytes=4000, keep_bytes=8000,
            flush_interval_s=0.01, fsync="never").run()
"""


class Counted(msgspec.Struct):
    n: int


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("label", INCIDENTS)
def test_a_recorder_killed_before_in_and_after_the_window(
    tmp_path: Path, until: Until, label: str, asked: bool
) -> None:
    """Another recorder goes on: the incident is there once, and has each row of its window once."""
    path = tmp_path / "flight"
    with rm.Publisher("t", type=Counted, contract="reliable", capacity="8MiB") as pub:
        with rm.Recorder(tmp_path / "full", "t", flush_interval_s=0.01):
            environment = {**os.environ, "RINGMAIN_CRASH": label}
            child = forked.Popen([sys.executable, "-c", CHILD, str(path)], env=environment)
            pub.wait_for_readers(2, timeout=PATIENCE_S)
            numbers = iter(range(100_000))
            sent = [next(numbers) for _ in range(400)]
            pub.send_many(list(map(Counted, sent)))
            if asked:
                until(lambda: (path / "lock").exists() and (path / "meta.json").exists())
                rm.trigger(path, "please")
                next_ones = [n for n in (next(numbers) for _ in range(300)) if n != 500]
            else:
                next_ones = [next(numbers) for _ in range(300)]
            for n in next_ones:
                pub.send(Counted(n))
            assert child.wait(PATIENCE_S) == -signal.SIGKILL
            after = [next(numbers) for _ in range(100)]
            pub.send_many(list(map(Counted, after)))  # while no recorder runs
            triggers = [rm.Trigger(when="t: n == 500", before_s=60, after_s=0.3, name="five hundred")]
            options = {"segment_bytes": 4000, "keep_bytes": 8000, "flush_interval_s": 0.01, "fsync": "never"}
            with rm.Recorder(path, "t", triggers=triggers, before_s=60, after_s=0.3, **options) as second:  # type: ignore[arg-type]
                until(lambda: second.status().incidents == 1 and not second.status().incidents_open)
                pub.send(Counted(-1))
    (incident,) = rm.Recording(path).incidents()
    assert incident.why == ("please" if asked else "when t: n == 500 on t")
    whole = rm.Recording(tmp_path / "full").messages(since=incident.start_ns, until=incident.end_ns)
    expected = [(m.seq, m.value.n) for m in whole]
    first = next(iter(rm.Recording(path, incident=incident.id))).seq
    assert first == 0 or asked, "what retention had not deleted yet"
    found = [(m.seq, m.value.n) for m in rm.Recording(path, incident=incident.id)]
    assert found == [row for row in expected if row[0] >= first]
    assert len(found) >= 100


def test_a_disk_without_room_for_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("ringmain.recording._upkeep.incidents.write_incident", full)
    recorder = rm.Recorder(tmp_path / "r", "t", triggers=[rm.Trigger(kind="t: bad")], flush_interval_s=0).start()
    with rm.Publisher("t", contract="reliable") as pub:
        pub.send(b"x")
        until(lambda: recorder.status().messages == 1)
        pub.send(b"y", kind="bad")
        until(lambda: recorder.status().state == "failed")
        assert all(reader.name != "recorder" for reader in rm.info("t").readers), "no publisher waits for it"
    with pytest.raises(RecordingError, match=r"could not write the incident .*No space left on device"):
        recorder.close()
    assert [data for _, _, data in seen(tmp_path / "r")] == [b"x"]


def test_a_damaged_manifest_keeps_everything_until_it_is_repaired(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with RecordingWriter(path, fsync="never", keep_bytes=1) as writer:
        flight = Flight(
            writer, [rm.Trigger(kind="a: k0", before_s=1, after_s=1, cooldown_s=99)], recorder="r", sync=False
        )
        for n in range(6):
            flight.see("a", batch(n, [n * SECOND_NS]), b"")
            writer.append("a", 1, batch(n, [n * SECOND_NS]))
            writer.rotate()
            if n == 0:
                (manifest,) = (path / "incidents").glob("*.json")
                manifest.write_bytes(manifest.read_bytes().replace(b"even", b"odd!").replace(b"k0", b"k1"))
    assert len(list(path.glob("0*.parquet"))) == 6
    report = rm.Recording(path).verify()
    assert report.files == [f"incidents/{manifest.name}"]
    rm.Recording(path).repair()
    assert rm.Recording(path).incidents() == []
    assert (path / "damaged" / manifest.name).exists()


def test_nothing_is_made_for_a_message(tmp_path: Path) -> None:
    """Of a million messages, a trigger looks at columns: it takes a few Python calls a batch."""
    codec = typed.codec_for(Imu)
    payload = bytes(codec.encode(IMUS[1]))
    rows = 20_000
    ring = pa.RecordBatch.from_arrays(
        [
            pa.array(range(rows), pa.uint64()), pa.array(range(rows), pa.int64()), pa.array([""] * rows),
            pa.array([""] * rows), pa.array([0] * rows, pa.uint64()), pa.array([b""] * rows, pa.binary()),
            pa.array([payload] * rows, pa.binary()),
        ],
        schema=batch(0, [0]).schema,
    )  # fmt: skip
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    with RecordingWriter(tmp_path / "r") as writer:
        flight = Flight(writer, [rm.Trigger(when="imu: ax > 9")], recorder="r", sync=False)
        flight.see("imu", ring, codec.schema.to_bytes())
        sys.setprofile(count)
        try:
            flight.see("imu", ring, codec.schema.to_bytes())
        finally:
            sys.setprofile(None)
    assert calls < 1000
