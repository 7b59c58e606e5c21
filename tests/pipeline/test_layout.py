"""Where the rows of a fleet lie: "robot-07, 10:00 to 10:05" after thirty batches of thirty robots touches few files or
few bytes, before and after compaction, although the clock of one robot is a day off; and one robot can be deleted.

Files and bytes are counted as a reader that prunes would touch them: files by the bounds in the table's log, row groups
by those in the files."""

from __future__ import annotations

import datetime as dt
import socket
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow.parquet as pq
import pytest

from ringmain._cli.main import main
from ringmain.errors import LakeError
from ringmain.lake import Lake
from ringmain.lake._ledger import BEGUN, Batch, Ledger
from ringmain.pipeline import Pipeline
from ringmain.pipeline._main_stretch import main_stretch
from ringmain.recording._plan import Range
from tests.spark.recordings import START_NS, rows, schema_of, writer

SECOND = 10**9
ROBOTS, BATCHES, ROWS = 30, 16, 60  # rows of a robot in a batch: one every 5 s, five minutes
STEP_NS, SPAN_NS = 5 * SECOND, 300 * SECOND
ODD = 13  # its clock is a day ahead


class Imu(msgspec.Struct):
    robot: int
    host: str = "a field of this name"


def name(robot: int) -> str:
    return f"robot-{robot:02d}"


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return []


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> Lake:
    path = tmp_path_factory.mktemp("fleet")
    with pytest.MonkeyPatch.context() as patched:
        writers: list[Any] = []
        for robot in range(ROBOTS):
            patched.setattr(socket, "gethostname", lambda robot=robot: name(robot))
            made = writer(path / "recs" / name(robot))
            made.declare("imu", epoch=START_NS + robot, schema=schema_of(Imu))
            writers.append(made)
    for batch in range(BATCHES):
        for robot, made in enumerate(writers):
            start_ns = START_NS + robot * 1000 + (86_400 * SECOND if robot == ODD else 0)
            data = msgspec.msgpack.encode(Imu(robot))
            more = rows(batch * ROWS, ROWS, encode=lambda _, data=data: data, step_ns=STEP_NS, start_ns=start_ns)
            made.append("imu", START_NS + robot, more, record_time_ns=start_ns + (batch + 1) * SPAN_NS)
            made.flush()
        Pipeline().run(path / "recs", path / "lake", engine="local", progress=lines.append)
    for made in writers:
        made.close()
    return Lake(str(path / "lake"))


def touched(lake: Lake, host: str, since: dt.datetime, until: dt.datetime) -> tuple[int, float, int]:
    """Files that a reader opens, the share of the table's bytes that it reads, and the rows it finds."""
    files, read, every, found = 0, 0, 0, 0
    for one in lake.files("silver/imu"):
        every += one.size
        if not (one.least["rm_host"] <= host <= one.most["rm_host"]):
            continue
        if one.most["rm_publish_time"] < since or one.least["rm_publish_time"] >= until:
            continue
        files += 1
        file = pq.ParquetFile(f"{lake.uri}/silver/imu/{one.name}")
        columns = {file.metadata.schema.column(i).name: i for i in range(file.metadata.num_columns)}
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            hosts = group.column(columns["rm_host"]).statistics
            times = group.column(columns["rm_publish_time"]).statistics
            if hosts.min <= host <= hosts.max and times.max >= since and times.min < until:
                read += sum(group.column(i).total_compressed_size for i in range(group.num_columns))
    selected = pl.scan_delta(f"{lake.uri}/silver/imu").filter(
        (pl.col("rm_host") == host) & (pl.col("rm_publish_time") >= since) & (pl.col("rm_publish_time") < until)
    )
    found = selected.select(pl.len()).collect().item()
    return files, read / every, found


def five_minutes(robot: int) -> tuple[dt.datetime, dt.datetime]:
    """In the middle of what a robot recorded."""
    since = dt.datetime.fromtimestamp(START_NS // SECOND, dt.UTC) + dt.timedelta(minutes=5 * (BATCHES // 2))
    since += dt.timedelta(days=1 if robot == ODD else 0)
    return since, since + dt.timedelta(minutes=5)


def test_a_robot_and_five_minutes(fleet: Lake, lines: list[str]) -> None:
    """Also of the robot whose clock is off: its rows are in files apart, and every batch says so."""
    for robot in (7, ODD):
        files, _, found = touched(fleet, name(robot), *five_minutes(robot))
        assert files <= 2
        assert found == ROWS
    kinds = {"-apart-" in one.name for one in fleet.files("silver/imu")}
    assert kinds == {True, False}
    assert len(fleet.files("silver/imu")) <= 3 * BATCHES, "not one for each robot"
    told = [line for line in lines if f"far from those of the others: {name(ODD)} (60 rows)" in line]
    assert len(told) == BATCHES
    newest = Ledger(fleet).last()
    assert newest is not None
    assert [(one.host, one.rows) for one in newest.apart] == [(name(ODD), ROWS)]


def test_after_compaction_few_bytes_are_read(fleet: Lake, tmp_path: Path) -> None:
    for _ in fleet.maintain():
        pass
    for robot in (7, ODD):
        files, share, found = touched(fleet, name(robot), *five_minutes(robot))
        assert (files <= 2 or share <= 0.05, found) == (True, ROWS)
    files = fleet.files("silver/imu")
    assert sum(one.rows for one in files) == ROBOTS * BATCHES * ROWS
    assert all(one.least["rm_host"] == one.most["rm_host"] == name(ODD) for one in files if "apart" in one.name)
    assert fleet.history("silver/imu", 1)[0]["ringmain.upkeep"] == "small files joined"


def test_rows_of_one_robot_are_a_row_group_of_their_own(tmp_path: Path) -> None:
    """As soon as it has some thousands: then a twentieth of a file is read, whatever its size."""
    lake = Lake(str(tmp_path / "lake"))
    one = Pipeline()
    with pytest.MonkeyPatch.context() as patched:
        for part in range(2):
            for robot in range(25):
                patched.setattr(socket, "gethostname", lambda robot=robot: name(robot))
                made = writer(tmp_path / "recs" / f"{part}-{name(robot)}")
                made.append("imu", START_NS + robot * 10 + part, rows(part * 2500, 2500, start_ns=START_NS))
                made.close()
            one.run(tmp_path / "recs", lake, engine="local")
    assert lake.compact("silver/imu", at_least=2) == 2
    since = dt.datetime.fromtimestamp(START_NS // SECOND, dt.UTC)
    files, share, found = touched(lake, name(7), since, since + dt.timedelta(minutes=5))
    assert (files, found) == (1, 5000)
    assert share <= 0.05


def test_one_robot_is_forgotten(fleet: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """In every table and in the ledger; the others stay."""

    def hosts(table: str, column: str = "host") -> set[str]:
        return set(fleet.to_arrow(table, columns=[column]).column(0).to_pylist())

    assert main(["pipeline", "forget", name(7), "--lake", fleet.uri]) == 0
    said = capsys.readouterr().out
    assert f"silver/imu: {BATCHES * ROWS} rows of {name(7)} deleted" in said
    assert f"ops/batches: 1 recordings of {name(7)} deleted" in said
    others = {name(robot) for robot in range(ROBOTS)} - {name(7)}
    assert hosts("silver/imu", "rm_host") == hosts("gold/topic_health") == hosts("gold/fields") == others
    assert fleet.to_arrow("silver/imu").num_rows == (ROBOTS - 1) * BATCHES * ROWS
    assert not any(name(7) in one.identity for batch in Ledger(fleet).batches() for one in batch.recordings)
    assert fleet.history("silver/imu", 1)[0]["ringmain.upkeep"] == "a host deleted"
    assert main(["pipeline", "forget", name(7), "--lake", fleet.uri]) == 3
    assert "has nothing of a host robot-07" in capsys.readouterr().err
    assert main(["pipeline", "forget", name(7)]) == 2


def test_nobody_is_forgotten_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    with pytest.raises(LakeError, match="is not a lake"):
        lake.delete_host("robot-01")
    Ledger(lake).begin(Batch(0, BEGUN, 10.0, "c"))
    with pytest.raises(LakeError, match=r"batch 0 of .* is not done"):
        lake.delete_host("robot-01")


def test_the_history_names_the_batch(fleet: Lake) -> None:
    named = {one.get("ringmain.batch") for one in fleet.history("gold/topic_health")}
    assert named >= {str(number) for number in range(BATCHES)}


HOUR = 3600 * 10**6
NOW = START_NS // 1000


def stretch(*spans: tuple[int, int]) -> tuple[int, int] | None:
    """Of recordings, each from and to so many hours from now."""
    ranges = [
        Range(str(key), None, 0, 1, 0, (NOW + a * HOUR) * 1000, (NOW + b * HOUR) * 1000)  # type: ignore[arg-type]
        for key, (a, b) in enumerate(spans)
    ]
    found = main_stretch(ranges, NOW)
    return None if found is None else ((found[0] - NOW) // HOUR, (found[1] - NOW) // HOUR)


def test_where_most_recordings_are() -> None:
    to_2000, one_day = (946_684_800 * 10**6 - NOW) // HOUR, 24
    to_1970 = -NOW // HOUR
    assert stretch((-3, -2), (-2, -1), (21, 22)) == (-4, 0)
    assert stretch((-3, -2), (-9, -8), (21, 22)) == (to_2000, one_day), "most of them agree, or it is not told"
    assert stretch((to_1970, -1)) == (to_2000, one_day), "a clock that was set while it was recording"
    assert stretch((to_1970 + 1, to_1970 + 2)) is None, "simulated time"
    assert stretch() is None
