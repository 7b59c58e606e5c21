"""The lake's tables and ledger: a table has each batch once, whoever commits and however often; a lake knows how far it
has come; it can be read, compacted and cleaned. On disk and on S3 (moto, on loopback), by the same code. No Spark."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import fs as pafs

from ringmain.errors import LakeError
from ringmain.lake import Lake, report
from ringmain.lake._ledger import BEGUN, DONE, LAKE_VERSION, Batch, Ledger, Source, TopicCount, totals
from ringmain.lake._log import Snapshot
from ringmain.lake._tables import Change
from ringmain.pipeline import Pipeline
from tests.spark.recordings import record
from tests.spark.recordings import rows as sent

SCHEMA = pa.schema([("seq", pa.int64()), ("publish_time", pa.timestamp("us", "UTC"))])


@pytest.fixture(params=["disk", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    if request.param == "disk":
        return Lake(str(tmp_path / "a lake"))
    return Lake(f"s3://lakes/{tmp_path.name}", request.getfixturevalue("s3"))


def same(lake: Lake) -> Lake:
    """As another process has it."""
    return Lake(lake.uri, lake.storage_options)


def rows(*numbers: int, **more: Any) -> pa.Table:
    times = pa.array([1_700_000_000_000_000 + n for n in numbers], pa.timestamp("us", "UTC"))
    return pa.table({"seq": pa.array(numbers, pa.int64()), "publish_time": times, **more})


def append(lake: Lake, batch: int, table: pa.Table, name: str = "silver/a") -> bool:
    written = lake.write(name, batch, table)
    return lake.commit(name, batch, lambda found: Change(table.schema, [written]))


def test_a_table_has_a_batch_once(lake: Lake) -> None:
    assert append(lake, 0, rows(0, 1))
    assert not append(lake, 0, rows(0, 1))
    assert append(lake, 1, rows(2))
    assert not append(same(lake), 1, rows(2))  # a fresh handle would accept it; `commit` asks first
    assert not append(same(lake), 0, rows(0, 1))
    assert sorted(lake.to_arrow("silver/a")["seq"].to_pylist()) == [0, 1, 2]
    (first, second) = sorted(lake.files("silver/a"), key=lambda one: one.least["seq"])
    assert (first.rows, first.least["seq"], first.most["seq"], second.rows) == (2, 0, 1, 1)


def test_of_two_writers_one_commits(lake: Lake) -> None:
    """Both have loaded the table without the batch; the other commits in between."""
    other = same(lake)
    assert append(lake, 0, rows(0))

    def build(found: Snapshot | None) -> Change:
        assert append(other, 1, rows(1))
        return Change(SCHEMA, [lake.write("silver/a", 1, rows(1))])

    assert not lake.commit("silver/a", 1, build)
    assert lake.to_arrow("silver/a")["seq"].to_pylist().count(1) == 1

    def stranger(found: Snapshot | None) -> Change:
        assert found is not None
        hit = found.files()
        same(lake).table("silver/a").delete()
        write_deltalake(same(lake).table("silver/a"), rows(3), mode="append")
        return Change(SCHEMA, [lake.write("silver/a", 2, rows(2))], hit)

    with pytest.raises(LakeError, match="another writer changed silver/a"):
        lake.commit("silver/a", 2, stranger)


def test_of_two_writers_one_makes_the_table(lake: Lake) -> None:
    def build(found: Snapshot | None) -> Change:
        assert append(same(lake), 0, rows(0))
        return Change(SCHEMA, [lake.write("silver/a", 0, rows(0))])

    assert not lake.commit("silver/a", 0, build)
    assert lake.to_arrow("silver/a").num_rows == 1


def test_of_many_writers_that_make_a_table_one_commits(tmp_path: Path) -> None:
    """All at the same moment, from no table at all."""
    for n in range(20):
        barrier, ended = threading.Barrier(4), list[object]()

        def work(name: str = f"silver/t{n}", barrier: threading.Barrier = barrier, ended: list[object] = ended) -> None:
            mine = Lake(str(tmp_path))
            barrier.wait()
            try:
                ended.append(append(mine, 0, rows(1), name))
            except LakeError as error:
                ended.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(ended) == 4
        assert ended.count(True) == Lake(str(tmp_path)).to_arrow(f"silver/t{n}").num_rows <= 1


def test_tables_gain_columns_and_are_read_every_way(lake: Lake) -> None:
    append(lake, 0, rows(0, 1))
    append(lake, 1, rows(2, note=["new"]))
    append(lake, 1, rows(7), "gold/b~c")
    assert lake.tables() == ["gold/b~c", "silver/a"]
    found = lake.to_arrow("silver/a").sort_by("seq").to_pydict()
    assert (found["seq"], found["note"]) == ([0, 1, 2], [None, None, "new"])
    assert lake.to_arrow("silver/a", version=1).num_rows == 2
    database = lake.to_duckdb()
    assert database.sql('select count(*), max(note) from silver.a, gold."b~c" b').fetchall() == [(3, "new")]
    assert [entry["operation"] for entry in lake.history("silver/a")][-1] in ("CREATE TABLE", "WRITE")
    with pytest.raises(LakeError, match="has no table silver/x; it has gold/b~c, silver/a"):
        lake.to_arrow("silver/x")


def test_pyarrow_reads_files_of_its_own(lake: Lake) -> None:
    """A thread of Arrow that still has a file of Python when the interpreter ends aborts the process."""
    append(lake, 0, rows(0, 1))
    files = lake.dataset("silver/a").filesystem
    assert (files.type_name, files.base_fs.type_name) == ("subtree", "local" if lake.is_local else "s3")
    assert lake.dataset("silver/a", 1).to_table().num_rows == 2


def test_the_one_liners_of_the_guide(tmp_path: Path) -> None:
    """Those of libraries that are installed; DuckDB's and Spark's own Delta need an extension or a jar."""
    lake = Lake(str(tmp_path))
    append(lake, 0, rows(0, 1))
    append(lake, 1, rows(2))
    lake.write("silver/a", 2, rows(3))  # a try that died: a pattern of file names would find it
    assert len(lake.to_arrow("silver/a").to_pandas()) == 3
    assert lake.to_duckdb().sql("select count(*) from silver.a").fetchall() == [(3,)]
    polars = pytest.importorskip("polars")
    assert len(lake.to_polars("silver/a").collect()) == 3
    assert len(polars.scan_delta(f"{lake.uri}/silver/a").collect()) == 3


def test_small_files_are_compacted_and_old_ones_vacuumed(lake: Lake) -> None:
    for batch in range(6):
        append(lake, batch, rows(batch))
    assert lake.compact("silver/a") == 0
    assert lake.compact("silver/a", at_least=2) == 6
    assert len(lake.files("silver/a")) == 1
    assert not append(lake, 5, rows(5))  # what the table has is not forgotten
    lake.write("silver/a", 6, rows(6))  # a try that died
    assert lake.vacuum("silver/a", 0) == 8
    assert sorted(lake.to_arrow("silver/a")["seq"].to_pylist()) == list(range(6))


def test_what_a_commit_reads_of_the_log_does_not_grow(lake: Lake) -> None:
    for batch in range(45):
        append(lake, batch, rows(batch))
    names = [info.base_name for info in lake.filesystem().get_file_info(pafs.FileSelector("silver/a/_delta_log"))]
    checkpoints = [int(name.partition(".")[0]) for name in names if name.endswith(".checkpoint.parquet")]
    assert lake.table("silver/a").version() - max(checkpoints) < 10


def test_maintenance_deletes_the_log_of_old_versions(lake: Lake) -> None:
    for batch in range(12):
        append(lake, batch, rows(batch))
    lake.vacuum("silver/a", 168)
    assert len(lake.history("silver/a")) > 12
    lake.vacuum("silver/a", 0)
    assert len(lake.history("silver/a")) < 6
    assert not append(same(lake), 11, rows(11))  # what the table has is not forgotten
    assert append(same(lake), 12, rows(12))
    assert sorted(same(lake).to_arrow("silver/a")["seq"].to_pylist()) == list(range(13))


def test_old_rows_are_deleted_by_table(lake: Lake) -> None:
    now = int(time.time() * 1e6)
    for batch, ages in enumerate(([10, 9], [3, 1])):
        days = pa.array([now - int(age * 86_400e6) for age in ages], pa.timestamp("us", "UTC"))
        for name in ("silver/a", "silver/b", "bronze"):
            append(lake, batch, pa.table({"age": pa.array(ages, pa.int64()), "publish_time": days}), name)
    append(lake, 0, pa.table({"n": [1]}), "steps/timeless")
    Ledger(lake).begin(batch_of(0, "000000000:7"))
    assert any("so all rows and files stay" in line for line in lake.maintain(retain={"*": 2}))
    Ledger(lake).done(batch_of(0, "000000000:7", DONE))
    lines = list(lake.maintain(retain={"silver/a": 5, "silver/*": 2, "ops/*": 0.001}))
    assert [line for line in lines if "rows deleted" in line] == [
        "silver/a: 2 rows deleted, 0 files joined, 0 deleted", "silver/b: 3 rows deleted, 0 files joined, 0 deleted",
    ]  # fmt: skip
    assert [sorted(lake.to_arrow(name)["age"].to_pylist()) for name in ("silver/a", "silver/b", "bronze")] == [
        [1, 3], [1], [1, 3, 9, 10],
    ]  # fmt: skip
    assert not append(lake, 1, rows(5))  # what the table has is not forgotten
    assert len(Ledger(lake).batches()) == 1
    with pytest.raises(LakeError, match="steps/timeless has no column of times"):
        list(lake.maintain(retain={"steps/*": 1}))


def batch_of(number: int, end: str, state: str = BEGUN) -> Batch:
    sources = [Source("one", "/recs/one", "id", end, "000000000:0", 4, 0, 5, 9)]
    return Batch(number, state, 10.0, "lake-1", topics=[TopicCount("a", 3, 2, 1)], recordings=sources)


def test_the_ledger_says_how_far_the_lake_has_come(lake: Lake) -> None:
    ledger = Ledger(lake)
    assert ledger.last() is None
    for number in range(3):
        ledger.begin(batch_of(number, f"{number:09d}:7"))
        found = Ledger(same(lake)).last()
        assert found is not None
        assert (found.batch, found.state, found.recordings[0].end) == (number, BEGUN, f"{number:09d}:7")
        with pytest.raises(LakeError, match=f"another pipeline has begun batch {number}"):
            Ledger(same(lake)).begin(batch_of(number, "000000009:9"))
        assert ledger.done(batch_of(number, f"{number:09d}:7", DONE))
        assert not Ledger(same(lake)).done(batch_of(number, "000000009:9", DONE))
    assert [(one.batch, one.state) for one in ledger.batches()] == [(0, DONE), (1, DONE), (2, DONE)]
    sums = totals(count for batch in ledger.batches() for count in batch.topics)["a"]
    assert (sums.rows_in, sums.rows_out, sums.quarantined) == (9, 6, 3)


def test_a_begun_batch_may_be_compacted(lake: Lake) -> None:
    ledger = Ledger(lake)
    ledger.begin(batch_of(0, "000000000:7"))
    assert ledger.done(batch_of(0, "000000000:7", DONE))
    ledger.begin(batch_of(1, "000000001:7"))
    assert lake.compact("ops/batches", at_least=2) == 2
    assert ledger.done(batch_of(1, "000000001:7", DONE))
    last = ledger.last()
    assert last is not None
    assert (last.batch, last.state) == (1, DONE)
    assert [one.batch for one in ledger.batches()] == [0, 1]


def test_a_second_pipeline_is_told_who_is_first(tmp_path: Path) -> None:
    ledger = Ledger(Lake(str(tmp_path)))
    ledger.begin(batch_of(0, "000000000:7"))
    begun = ledger.last()
    assert begun is not None
    ledger.refuse_second(begun)  # it is this very process
    script = "import sys; print('there', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        from ringmain.lake._ledger import _process

        begun.process = _process(other.pid)
        with pytest.raises(LakeError, match=f"process {other.pid} on this machine is writing batch 0"):
            ledger.refuse_second(begun)
        other.kill()
    ledger.refuse_second(begun)  # it is gone


NEXT = LAKE_VERSION + 1


def test_a_lake_of_another_version_can_be_read_and_is_not_continued(tmp_path: Path) -> None:
    """In version 1 the ledger had no version, and silver's columns had no prefix."""
    record(tmp_path / "rec", ("a", 1, sent(0, 5)))
    Pipeline().run(tmp_path / "rec", tmp_path / "lake", engine="local")
    lake = Lake(str(tmp_path / "lake"))
    ledger = lake.to_arrow("ops/batches")
    for version, advice in ((1, "build a new lake from the recordings"), (NEXT, "use the ringmain that wrote it")):
        old = ledger.drop_columns("lake_version")
        if version == NEXT:
            old = old.append_column("lake_version", pa.array([version]))
        write_deltalake(f"{lake.uri}/ops/batches", old, mode="overwrite", schema_mode="overwrite")
        for use in (
            lambda: Pipeline().run(tmp_path / "rec", tmp_path / "lake", engine="local"),
            lambda: report(tmp_path / "lake", tmp_path / "page.html"),
        ):
            with pytest.raises(LakeError, match=rf"version {version}, and this .* version {LAKE_VERSION}.*{advice}"):
                use()
        assert Lake(str(tmp_path / "lake")).to_duckdb().sql("select count(*) from silver.a").fetchall() == [(5,)]
    assert any("silver/a" in line for line in lake.maintain())


def test_credentials_are_not_shown() -> None:
    assert "hidden" not in repr(Lake("s3://lakes/x", {"AWS_SECRET_ACCESS_KEY": "hidden"}))
