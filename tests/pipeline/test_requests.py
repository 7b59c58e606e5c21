"""What a pipeline asks of a store: the requests that its server has logged. It follows what is new, and not how many
recordings there are; and a recording that nothing was added to is not opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ringmain.lake import Lake
from ringmain.lake._positions import POSITIONS, SCHEMA
from ringmain.pipeline import Pipeline, _recordings
from ringmain.recording._locations import look_for
from tests.spark.recordings import START_NS, rows, writer
from tests.store import Request, RequestLog, make_bucket, s3_server_with_copies, storage_options

APART_NS = 10**12


def store(path: Path, uri: str, s3: dict[str, str], numbers: range) -> None:
    """Recordings below an address, with a message each."""
    for number in numbers:
        made = writer(path / str(number), sealed_uri=f"{uri}/{number}", storage_options=s3)
        made.append("imu", 1 + number, rows(0, 1, start_ns=START_NS + number * APART_NS))
        made.close()


def of(asked: list[Request], part: str) -> list[Request]:
    return [one for one in asked if part in one.path]


@pytest.mark.parametrize("count", [2, 8])
def test_with_nothing_to_do_recordings_are_listed_and_not_opened(
    s3: dict[str, str], s3_log: RequestLog, tmp_path: Path, count: int
) -> None:
    uri, lake = f"s3://lakes/{tmp_path.name}", Lake(f"s3://lakes/{tmp_path.name}-lake", s3)
    store(tmp_path, uri, s3, range(count))
    pipeline, rounds = Pipeline(), 0

    def until(_: Any) -> bool:
        nonlocal rounds
        rounds += 1
        return rounds == 3

    assert pipeline.run(uri, lake, engine="local").rows_in == count
    with s3_log.noted() as asked:
        assert pipeline.run(uri, lake, engine="local", follow=True, interval_s=0.01, until=until).rows_in == 0
    assert len(of(asked, f"prefix={tmp_path.name}%2F")) == 3, "one listing each time it looks"
    assert not of(asked, f"/lakes/{tmp_path.name}/")
    assert len(asked) <= 3 * 10
    with s3_log.noted() as asked:
        assert Pipeline().run(uri, Lake(lake.uri, s3), engine="local").rows_in == 0
    assert len(asked) <= 9, [one.path for one in asked]
    store(tmp_path, uri, s3, range(count, count + 1))
    with s3_log.noted() as asked:
        assert pipeline.run(uri, lake, engine="local").rows_in == 1
    assert {one.path.split("/")[3] for one in of(asked, f"/lakes/{tmp_path.name}/")} == {str(count)}
    assert len(of(asked, f"prefix={tmp_path.name}%2F")) == 1, "when all of it is read, it does not look again"
    assert lake.to_arrow("silver/imu").num_rows == count + 1


def test_with_a_thousand_recordings(tmp_path: Path) -> None:
    """A lake knows 998 of them as it would if it had read them. Each 1,000 files take one more request."""
    log = RequestLog(tmp_path / "log")
    with s3_server_with_copies(tmp_path / "log") as (endpoint, copy):
        make_bucket(endpoint, "lakes")
        s3, uri = storage_options(endpoint), "s3://lakes/recs"
        store(tmp_path, uri, s3, range(1))
        lake = Lake("s3://lakes/lake", s3)
        assert Pipeline().run(uri, lake, engine="local").rows_in == 1
        copy("lakes", "recs", range(1, 999))
        (file,) = lake.files(POSITIONS)
        ((row,),) = [table.to_pylist() for table in lake.read_files(POSITIONS, [file.name])]
        known = [
            {**row, "recording": key, "location": one.address, "identity": f"{key}:of:1:2", "seen": one.state}
            for key, one in look_for(uri, storage=s3).items()
        ]
        assert len(known) == 999
        made = lake.write(POSITIONS, None, pa.Table.from_pylist(known, schema=SCHEMA))
        lake.exchange(POSITIONS, "as if they were read", [made], [file], data_change=True)
        lake.checkpoint(POSITIONS)

        def run() -> tuple[int, list[Request]]:
            with log.noted() as asked:
                rows_in = Pipeline().run(uri, Lake(lake.uri, s3), engine="local").rows_in
            return rows_in, asked

        rows_in, asked = run()
        assert (rows_in, len(of(asked, "prefix=recs%2F"))) == (0, 2)
        assert len(asked) <= 10, [one.path for one in asked]
        store(tmp_path, uri, s3, range(999, 1000))
        rows_in, asked = run()
        assert (rows_in, {one.path.split("/")[3] for one in of(asked, "/lakes/recs/")}) == (1, {"999"})
        assert len(asked) <= 60, [one.path for one in asked]
        rows_in, asked = run()
        assert (rows_in, len(asked) <= 10) == (0, True), [one.path for one in asked]


def test_recordings_without_new_rows_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk. One that has grown is read on, one that was limited by the size of a batch too; also one that was put
    in the place of another."""
    growing = writer(tmp_path / "recs" / "growing")
    growing.append("imu", 1, rows(0, 50))
    growing.flush()
    for number in range(3):
        made = writer(tmp_path / "recs" / str(number))
        made.append("imu", 2 + number, rows(0, 50, start_ns=START_NS + number * APART_NS))
        made.close()
    opened: list[str] = []
    hold = _recordings.Tracker.hold
    monkeypatch.setattr(
        _recordings.Tracker, "hold", lambda self, *listed: (opened.append(self.key), hold(self, *listed))[1]
    )

    def run(**options: Any) -> int:
        opened.clear()
        return Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local", **options).rows_in

    assert run(max_bytes_per_batch="2KiB", until=lambda _: True) < 200
    assert run() + Lake(str(tmp_path / "lake")).to_arrow("silver/imu").num_rows >= 200
    assert Lake(str(tmp_path / "lake")).to_arrow("silver/imu").num_rows == 200
    assert (run(), opened) == (0, [])
    growing.append("imu", 1, rows(50, 7))
    growing.flush()
    assert run() == 7
    assert {*opened} == {"growing"}
    growing.close()
    assert run() == 0, "it was sealed, and has no new row"
    (tmp_path / "recs" / "1").rename(tmp_path / "other")
    made = writer(tmp_path / "recs" / "1")
    made.append("imu", 9, rows(0, 50, start_ns=START_NS + 9 * APART_NS))
    made.close()
    assert run() == 50
    assert Lake(str(tmp_path / "lake")).to_arrow("silver/imu").num_rows == 257


def test_a_batch_of_a_follower(s3: dict[str, str], s3_log: RequestLog, tmp_path: Path) -> None:
    """One new recording with five topics. Each table takes a file and a version; versions are not read again."""
    uri, lake = f"s3://lakes/{tmp_path.name}", Lake(f"s3://lakes/{tmp_path.name}-lake", s3)
    costs: list[list[Request]] = []
    topics = [f"imu{n}" for n in range(5)]

    def add(number: int) -> None:
        made = writer(tmp_path / str(number), sealed_uri=f"{uri}/{number}", storage_options=s3)
        for topic in topics:
            made.append(topic, 1 + number, rows(0, 5, start_ns=START_NS + number * APART_NS))
        made.close()

    def until(summary: Any) -> bool:
        noted = contexts.pop()
        noted.__exit__(None, None, None)
        costs.append(asked.pop())
        add(summary.batches)
        contexts.append(s3_log.noted())
        asked.append(contexts[-1].__enter__())
        return bool(summary.batches == 13)

    add(0)
    contexts = [s3_log.noted()]
    asked = [contexts[-1].__enter__()]
    Pipeline().run(uri, lake, engine="local", follow=True, interval_s=0, until=until)
    assert lake.to_arrow("silver/imu0").num_rows == 13 * 5
    with s3_log.noted() as fresh:
        assert Pipeline().run(uri, Lake(lake.uri, s3), engine="local").rows_in == 25
    with s3_log.noted() as fresh:
        assert Pipeline().run(uri, Lake(lake.uri, s3), engine="local").rows_in == 0
    assert len(fresh) <= 9, "of a new process with nothing to do; one more for each 1,000 files"
    later = sorted(map(len, costs[1:]))
    assert later[len(later) // 2] <= 44
    assert later[-1] <= 60, "each table has a checkpoint every ten versions"
    for requests in costs:
        assert [one.method for one in of(requests, "/meta.json")] == ["HEAD", "GET"], "it is read once"
