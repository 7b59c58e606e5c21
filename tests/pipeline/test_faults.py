"""The driver dies at every labelled step, on disk and on S3, or two pipelines work at once: each message is in the lake
once, or there is a sentence that says why not. Counted with DuckDB over the snapshots."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs as pafs

from ringmain.errors import LakeError, RecordingNotFound
from ringmain.lake import Lake
from ringmain.lake._ledger import BEGUN, DONE, Ledger
from ringmain.pipeline import Pipeline
from ringmain.pipeline import _batch as batch_module
from ringmain.pipeline import _run as run_module
from ringmain.pipeline._work import Report, Work
from ringmain.testing import crash_points, die_at
from tests import forked, samples
from tests.spark.recordings import Imu, imu, rows, schema_of, writer

DRIVER = """
import json, sys
from ringmain.pipeline import run
recordings, lake, options = sys.argv[1:]
print(run(recordings, lake, storage_options=json.loads(options), max_bytes_per_batch="20KiB", engine="local"))
"""


def record_two(folder: Path) -> None:
    """Two recorders of one topic that overlap, and a topic each."""
    for name, first in (("one", 0), ("two", 100)):
        made = writer(folder / name)
        made.declare("imu", epoch=1, schema=schema_of(Imu))
        made.declare(name, epoch=1)
        for part in range(3):
            made.append("imu", 1, rows(first + part * 100, 100, encode=imu, step_ns=10**8, lost=int(part == 1)))
            made.append(name, 1, rows(part * 50, 50, step_ns=10**8))
        made.close()


def check(lake: Lake) -> None:
    database = lake.to_duckdb()
    assert database.sql(
        "select count(*), count(distinct rm_seq), min(rm_seq), max(rm_seq) from silver.imu"
    ).fetchall() == [(400, 400, 0, 399)]
    for name in ("one", "two"):
        assert database.sql(f"select count(*), count(distinct rm_seq) from silver.{name}").fetchall() == [(150, 150)]
    health = database.sql("select topic, sum(messages), sum(lost) from gold.topic_health group by 1 order by 1")
    assert health.fetchall() == [("imu", 600, 2), ("one", 150, 0), ("two", 150, 0)]
    assert database.sql("select sum(messages) from gold.senders").fetchall() == [(900,)]
    assert database.sql("select count(*) from gold.gaps").fetchall() == [(2,)]
    batches = Ledger(lake).batches()
    assert [batch.batch for batch in batches] == list(range(len(batches)))
    counted = [count for batch in batches for count in batch.topics]
    assert sum(count.rows_in for count in counted) == 900
    assert sum(count.rows_out for count in counted) == 700
    assert sum(count.duplicates for count in counted) == 200


POINTS = crash_points("pipeline")
# Every step on disk; on S3 first those between a table's files and what comes after them.
DEATHS = [*((point, "disk") for point in POINTS), *((point, "s3") for point in (*POINTS[1:], POINTS[0]))]


@pytest.mark.parametrize("death", samples.some(DEATHS, len(POINTS) + 2), ids=" on ".join)
def test_a_driver_that_is_killed(death: tuple[str, str], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    point, where = death
    record_two(tmp_path / "recs")
    options = request.getfixturevalue("s3") if where == "s3" else {}
    uri = f"s3://lakes/{tmp_path.name}" if where == "s3" else str(tmp_path / "lake")
    died = forked.run(
        [sys.executable, "-c", DRIVER, str(tmp_path / "recs"), uri, json.dumps(options)],
        env={**os.environ, **die_at(point)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL, died.stderr
    lake = Lake(uri, options)
    last = Ledger(lake).last()
    assert last is not None
    assert (last.batch, last.state) == (0, DONE if point.startswith("batch: done") else BEGUN)
    Pipeline().run(tmp_path / "recs", lake, engine="local")
    check(lake)


def test_one_that_follows_goes_on_with_a_batch_that_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record_two(tmp_path / "recs")

    def dies(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(run_module.BatchRun, "process", dies)
        with pytest.raises(SystemExit):
            Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local")
    lake = Lake(str(tmp_path / "lake"))
    begun = Ledger(lake).last()
    assert begun is not None
    assert begun.state == BEGUN
    Pipeline().run(
        tmp_path / "recs", lake, engine="local", follow=True, interval_s=0.01, until=lambda done: bool(done.batches)
    )
    check(lake)


def test_two_pipelines_at_once(tmp_path: Path) -> None:
    """Both in one process, so that neither can be told that the other is alive: the race decides, table by table."""
    record_two(tmp_path / "recs")
    ended: list[Any] = []
    barrier = threading.Barrier(2)

    def work() -> None:
        barrier.wait()
        try:
            ended.append(
                Pipeline().run(tmp_path / "recs", tmp_path / "lake", max_bytes_per_batch="20KiB", engine="local")
            )
        except LakeError as error:
            ended.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == 2
    for one in ended:
        assert not isinstance(one, LakeError) or "a lake takes one pipeline at a time" in str(one), one
    Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local")  # what both left undone
    check(Lake(str(tmp_path / "lake")))


def test_a_file_deleted_by_hand_is_named(tmp_path: Path) -> None:
    record_two(tmp_path / "recs")
    Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local")
    lake = Lake(str(tmp_path / "lake"))
    (gone,) = lake.files("silver/one")
    (tmp_path / "lake" / "silver" / "one" / gone.name).unlink()
    with pytest.raises(FileNotFoundError, match=gone.name):
        lake.to_arrow("silver/one")


def test_workers_that_do_not_share_the_lake_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have a directory of the same name, on a disk of their own."""
    record_two(tmp_path / "recs")

    class Elsewhere(batch_module.Work):
        def run(self, number: int) -> Report:
            return Work.run(replace(self, lake=Lake(str(tmp_path / "other"))), number)

    with monkeypatch.context() as patched:
        patched.setattr(batch_module, "Work", Elsewhere)
        with pytest.raises(LakeError, match="put the lake on a file system that all of them share"):
            Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local")
    Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local")
    check(Lake(str(tmp_path / "lake")))


def test_a_failing_step_leaves_the_batch_to_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silver has the batch when a user's function fails; the next run adds to no table twice."""
    record_two(tmp_path / "recs")

    class Died(Exception):
        pass

    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(run_module._Run, "_more", die)
        with pytest.raises(Died):
            Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local")
    assert Lake(str(tmp_path / "lake")).to_arrow("silver/imu").num_rows == 400
    Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local")
    check(Lake(str(tmp_path / "lake")))


def test_from_one_object_store_to_another(tmp_path: Path, s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings below an address in S3 are found, and a lake in S3 is made of them, without S3 in Spark."""
    record_two(tmp_path / "recs")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3["AWS_ACCESS_KEY_ID"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3["AWS_SECRET_ACCESS_KEY"])
    endpoint = s3["AWS_ENDPOINT_URL"].removeprefix("http://")
    query = f"?endpoint_override={endpoint}&scheme=http&region=us-east-1"
    store, base = pafs.FileSystem.from_uri(f"s3://lakes/{tmp_path.name}/recs{query}")
    for file in (tmp_path / "recs").rglob("*"):
        if file.is_file():
            with store.open_output_stream(f"{base}/{file.relative_to(tmp_path / 'recs')}") as out:
                out.write(file.read_bytes())
    lake = Lake(f"s3://lakes/{tmp_path.name}/lake", s3)
    summary = Pipeline().run(f"s3://lakes/{tmp_path.name}/recs{query}", lake, engine="local")
    assert summary.rows_in == 900
    check(lake)
    assert Pipeline().run(f"s3://lakes/{tmp_path.name}/recs{query}", lake, engine="local").rows_in == 0
    with pytest.raises(RecordingNotFound, match="no recording at s3://lakes/nothing"):
        Pipeline().run(f"s3://lakes/nothing/{query}", lake, engine="local")


INTERRUPTED = """
import sys
from ringmain.pipeline import run
try:
    run(*sys.argv[1:], split_bytes=1)
except KeyboardInterrupt:
    sys.exit(7)
"""


@pytest.mark.spark
def test_ctrl_c_in_a_spark_job_ends_with_a_sentence(tmp_path: Path) -> None:
    """Given to the whole group of processes, as by a terminal, when the first of many tasks has written a file."""
    made = writer(tmp_path / "rec")
    for part in range(300):
        made.append("a", 1, rows(part * 10, 10))
        made.flush()  # a block, hence a task; sealing would join them
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "rec"), str(tmp_path / "lake")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as driver:
        while not list(tmp_path.glob("lake/silver/a/*.parquet")) and driver.poll() is None:
            time.sleep(0.01)
        os.killpg(driver.pid, signal.SIGINT)
        said = driver.communicate()[1]
    made.close()
    assert driver.returncode == 7, said
    assert said.splitlines()[-1] == "interrupted: what was done is in the lake, and the next run goes on with the rest"
    assert "Traceback" not in said
    Pipeline().run(tmp_path / "rec", tmp_path / "lake", engine="local")
    assert Lake(str(tmp_path / "lake")).to_arrow("silver/a").num_rows == 3000
