"""What a pipeline asks of a store: the requests that its server has logged. It follows what is new, and not how many
recordings there are; and a recording that nothing was added to is not opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringmain.lake import Lake
from ringmain.pipeline import Pipeline, _recordings
from tests.spark.recordings import START_NS, rows, writer
from tests.store import Request, RequestLog

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
        _recordings.Tracker, "hold", lambda self, infos=None: (opened.append(self.key), hold(self, infos))[1]
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
    costs: list[int] = []
    topics = [f"imu{n}" for n in range(5)]

    def add(number: int) -> None:
        made = writer(tmp_path / str(number), sealed_uri=f"{uri}/{number}", storage_options=s3)
        for topic in topics:
            made.append(topic, 1 + number, rows(0, 5, start_ns=START_NS + number * APART_NS))
        made.close()

    def until(summary: Any) -> bool:
        noted = contexts.pop()
        noted.__exit__(None, None, None)
        costs.append(len(asked.pop()))
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
    later = sorted(costs[1:])
    assert later[len(later) // 2] <= 50
    assert later[-1] <= 60, "each table has a checkpoint every ten versions"
