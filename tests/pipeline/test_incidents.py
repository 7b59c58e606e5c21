"""What flight recordings keep, in a lake: `gold/incidents` says what there is, whenever it came; and a lake made of
incidents alone has exactly their messages, each once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from ringmain.datasets._of_lake import OfLake
from ringmain.errors import LakeError, RecordingNotFound
from ringmain.lake import Lake
from ringmain.pipeline import Pipeline
from ringmain.recording import Recording, forget
from ringmain.recording._meta import NOT_KNOWN, Properties
from ringmain.recording._upkeep.incidents import Incident, incidents_in, write_incident
from ringmain.view._of_lake import LakeTopics
from ringmain.view._stored import narrow, stored_topics
from tests.spark.recordings import START_NS, Imu, imu, rows, schema_of, writer

STEP_NS = 1_000_000


def flight(path: Path, first: int = 0, count: int = 100, properties: Properties = NOT_KNOWN) -> None:
    """A message a millisecond, in segments of 25."""
    made = writer(path)
    made.declare("imu", epoch=1, schema=schema_of(Imu), properties=properties)
    for number in range(first, first + count, 25):
        made.append("imu", 1, rows(number, 25, encode=imu, step_ns=STEP_NS))
        made.rotate()
    made.close()


def keep(path: Path, name: str, first: int, end: int, over: bool = True) -> None:
    """An incident of the messages [first, end), which ends with the last message of a segment's first ten."""
    start_ns, end_ns = START_NS + first * STEP_NS, START_NS + end * STEP_NS
    where = {"end_segment": end // 25, "end_row": end % 25} if over else {}
    incident = Incident(
        "", f"20231114-{name}", name, f"{name} of imu", end_ns - 1, start_ns, end_ns, first // 25, **where
    )
    write_incident(path, incident, sync=False)


def there(lake: Path) -> list[tuple[str, str, bool]]:
    found = Lake(str(lake)).to_arrow("gold/incidents").sort_by("start_time").to_pylist()
    return [(row["recording"], row["name"], row["open"]) for row in found]


def seqs(table: pa.Table) -> list[int]:
    return sorted(table.column("rm_seq").to_pylist())


def test_incidents_are_in_gold_also_those_that_come_after_their_messages(tmp_path: Path) -> None:
    path, lake = tmp_path / "recs" / "one", tmp_path / "lake"
    flight(path)
    keep(path, "braking", 10, 40, over=False)
    Pipeline().run(tmp_path / "recs", lake, engine="local")
    assert there(lake) == [("one", "braking", True)]
    keep(path, "braking", 10, 40)
    keep(path, "curb", 30, 60)
    assert Pipeline().run(tmp_path / "recs", lake, engine="local").batches == 0
    assert there(lake) == [("one", "braking", False), ("one", "curb", False)]
    versions = Lake(str(lake)).table("gold/incidents").version()
    Pipeline().run(tmp_path / "recs", lake, engine="local")
    assert Lake(str(lake)).table("gold/incidents").version() == versions, "nothing new, no commit"
    row = Lake(str(lake)).to_arrow("gold/incidents").sort_by("start_time").to_pylist()[0]
    (braking, _) = incidents_in(Recording(path).store)
    assert {name: row[name] for name in ("incident", "why", "start_ns", "end_ns", "trigger_ns")} == {
        "incident": braking.id, **{n: getattr(braking, n) for n in ("why", "start_ns", "end_ns", "trigger_ns")},
    }  # fmt: skip
    of_incident = Lake(str(lake)).to_arrow("silver/imu", incident="curb")
    assert seqs(of_incident) == list(range(30, 60))
    assert seqs(of_incident) == [m.seq for m in Recording(path, incident="curb")]
    lake_now = Lake(str(lake))
    source = stored_topics(lake_now)
    assert isinstance(source, LakeTopics)
    narrow(source, "curb")
    assert [*source.take()]
    assert source.counts["imu"].messages == 30
    (host,) = OfLake(lake_now).hosts()
    assert [(one.name, one.start_ns) for one in OfLake(lake_now).incidents(host)] == [
        ("braking", START_NS + 10 * STEP_NS), ("curb", START_NS + 30 * STEP_NS),
    ]  # fmt: skip
    forget(path, "curb")
    Pipeline().run(tmp_path / "recs", lake, engine="local")
    assert len(there(lake)) == 2, "the lake remembers"
    with pytest.raises(RecordingNotFound, match="there is no incident 'x'; there are 20231114-braking, 20231114-curb"):
        Lake(str(lake)).to_arrow("silver/imu", incident="x")
    with pytest.raises(LakeError, match="gold/incidents has no messages"):
        Lake(str(lake)).to_arrow("gold/incidents", incident="curb")


@pytest.mark.parametrize("copy", [False, True])
def test_a_lake_of_incidents_alone(tmp_path: Path, copy: bool) -> None:
    """They overlap, one is not over, and more come: each message of those that are over is there once."""
    path, lake = tmp_path / "recs" / "one", tmp_path / "lake"
    flight(path)
    keep(path, "braking", 10, 40)
    keep(path, "curb", 30, 60)
    keep(path, "later", 70, 90, over=False)
    pipeline = Pipeline(bronze="copy" if copy else "recordings")
    done = pipeline.run(tmp_path / "recs", lake, engine="local", incident="*")
    assert (done.rows_in, done.rows_out, done.duplicates, done.damaged) == (60, 50, 10, 0)
    assert there(lake) == [("one", "braking", False), ("one", "curb", False)]
    assert seqs(Lake(str(lake)).to_arrow("silver/imu")) == list(range(10, 60))
    assert not list((path / "consumers").glob("*")), "what is pinned is kept anyway"
    keep(path, "later", 70, 90)
    done = pipeline.run(tmp_path / "recs", lake, engine="local", incident="*")
    assert (done.batches, done.rows_in, done.damaged) == (1, 20, 0)
    assert pipeline.run(tmp_path / "recs", lake, engine="local", incident="*").batches == 0
    assert seqs(Lake(str(lake)).to_arrow("silver/imu")) == [*range(10, 60), *range(70, 90)]
    bronze = Lake(str(lake)).bronze().read_all()
    assert sorted(bronze.column("seq").to_pylist()) == sorted([*range(10, 40), *range(30, 60), *range(70, 90)])
    with pytest.raises(RecordingNotFound, match="no incident that is over matches 'crash' in one"):
        pipeline.run(tmp_path / "recs", tmp_path / "other", engine="local", incident="crash")


def test_what_was_latched_before_incidents_is_in_their_lake_once(tmp_path: Path) -> None:
    """Two incidents begin with one message, and one with a message that is in the window of another."""
    path, lake = tmp_path / "one", tmp_path / "lake"
    flight(path, properties=Properties(kept_kinds=2))
    for name, first, end in (("early", 20, 40), ("twin", 20, 30), ("later", 35, 60)):
        keep(path, name, first, end)
    latched = {"early": [19], "twin": [19], "later": [34]}
    for name, expected in latched.items():
        table = Recording(path, incident=name).to_arrow("imu", decode=True)
        assert sorted(table.filter(table.column("rm_latched")).column("rm_seq").to_pylist()) == expected
    done = Pipeline(bronze="copy").run(path, lake, engine="local", incident="*")
    assert (done.rows_in, done.rows_out) == (21 + 11 + 26, 41)
    assert seqs(Lake(str(lake)).to_arrow("silver/imu")) == list(range(19, 60))
    assert Pipeline(bronze="copy").run(path, lake, engine="local", incident="*").batches == 0


def test_damage_beside_an_incident_and_in_it(tmp_path: Path) -> None:
    path, lake = tmp_path / "one", tmp_path / "lake"
    flight(path)
    keep(path, "braking", 10, 60)
    segment = path / "000000001.parquet"
    segment.write_bytes(segment.read_bytes()[:-1000])
    done = Pipeline().run(path, lake, engine="local", incident="brak", fail_on_data_loss=False)
    assert (done.rows_in, done.rows_out) == (25, 25), "segment 1 cannot be opened"
    assert seqs(Lake(str(lake)).to_arrow("silver/imu")) == [*range(10, 25), *range(50, 60)]
