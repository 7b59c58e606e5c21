"""A table's log as we read and write it: the same as other writers do, and each version once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ringmain.errors import LakeError
from ringmain.lake import Lake
from ringmain.lake._log import CHECKPOINT_EVERY
from ringmain.lake._objects import LocalObjects, open_objects
from ringmain.lake._tables import Change

NAME = "silver/a"


def rows(*numbers: int) -> pa.Table:
    times = pa.array([1_700_000_000_000_000 + n for n in numbers], pa.timestamp("us", "UTC"))
    return pa.table({"seq": pa.array(numbers, pa.int64()), "publish_time": times})


def append(lake: Lake, batch: int) -> bool:
    written = lake.write(NAME, batch, rows(batch))
    return lake.commit(NAME, batch, lambda found: Change(written_schema, [written]), as_known=True)


written_schema = rows(0).schema


def numbers(lake: Lake) -> list[int]:
    """As deltalake reads them."""
    found: list[int] = sorted(lake.to_arrow(NAME)["seq"].to_pylist())
    return found


def same(lake: Lake) -> Lake:
    """As another process has it."""
    return Lake(lake.uri, lake.storage_options)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def test_ours_and_deltalakes_are_one(lake: Lake) -> None:
    """Both read the checkpoints and versions of both, and see the same files, bounds, columns and transactions."""
    made = range(2 * CHECKPOINT_EVERY + 5)
    for batch in made:
        assert append(lake, batch)
        if batch == CHECKPOINT_EVERY + 2:
            lake.compact(NAME, at_least=2)
    theirs, ours = DeltaTable(f"{lake.uri}/{NAME}"), same(lake).snapshot(NAME)
    assert ours is not None
    assert ours.version == theirs.version()
    listed = pa.table(theirs.get_add_actions()).to_pylist()
    expected = sorted((r["path"], r["size_bytes"], r["num_records"], r["min"], r["max"]) for r in listed)
    assert sorted(map(tuple, ours.files())) == expected
    assert ours.schema == pa.schema(theirs.schema().to_arrow())
    assert theirs.transaction_version("ringmain.pipeline") == made[-1]
    assert ours.has(made[-1], "ringmain.pipeline")
    assert not ours.has(len(made), "ringmain.pipeline")
    assert numbers(lake) == [*made]
    theirs.create_checkpoint()
    again = same(lake).snapshot(NAME)
    assert again is not None
    assert (again.added.keys(), again.version) == (ours.added.keys(), ours.version)
    assert append(same(lake), len(made))
    assert not append(lake, len(made))
    assert theirs.history(1)[0]["operation"] == "WRITE"
    assert [entry.get("ringmain.batch") for entry in lake.history(NAME, 1)] == [str(len(made))]


READS_A_LOG = """
import os, sys
import pyarrow.parquet
from ringmain.lake import Lake
lake = Lake(sys.argv[1])
before = set(os.listdir("/proc/self/task"))
assert lake.snapshot(sys.argv[2]).version > 0
print(len(set(os.listdir("/proc/self/task")) - before))
"""


def test_a_log_is_read_in_one_thread(lake: Lake) -> None:
    """A thread of Arrow that still has bytes of Python when the interpreter ends aborts the process."""
    for batch in range(CHECKPOINT_EVERY + 1):
        append(lake, batch)
    assert list(Path(lake.uri).glob(f"{NAME}/_delta_log/*.checkpoint.parquet"))
    done = subprocess.run([sys.executable, "-c", READS_A_LOG, lake.uri, NAME], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_removed_files_stay_in_checkpoints(lake: Lake) -> None:
    """Without that, upkeep would delete files that versions of the last week have."""
    for batch in range(CHECKPOINT_EVERY):
        append(lake, batch)
    lake.compact(NAME, at_least=2)
    for batch in range(CHECKPOINT_EVERY, 2 * CHECKPOINT_EVERY + 2):
        append(lake, batch)
    table = lake.table(NAME)
    assert not table.vacuum(168, dry_run=True, full=True)
    assert len(table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)) == CHECKPOINT_EVERY


def test_a_lost_answer_is_no_other_writer(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version was made, its answer was lost, and the store refuses the second try: it is ours all the same, and its
    files are not deleted."""
    append(lake, 0)
    put_new = LocalObjects.put_new
    monkeypatch.setattr(LocalObjects, "put_new", lambda self, *args: put_new(self, *args) and False)
    assert append(lake, 1)
    monkeypatch.undo()
    assert append(lake, 2)
    assert numbers(lake) == [0, 1, 2]


def test_what_is_known_may_be_old(lake: Lake) -> None:
    """Another process has added rows, joined files, and deleted the versions that this one has not seen."""
    append(lake, 0)
    follower = same(lake)
    append(follower, 1)
    assert all(append(lake, n) for n in range(2, 4 + CHECKPOINT_EVERY))
    lake.compact(NAME, at_least=2)
    lake.vacuum(NAME, 0)
    log = Path(lake.uri) / NAME / "_delta_log"
    assert not (log / f"{3:020}.json").exists()
    assert not append(follower, 13)
    assert append(follower, 14)
    assert numbers(lake) == [*range(15)]
    assert len({one.name for one in log.glob("*.json")}) == len(list(log.glob("*.json")))


def test_upkeep_between_two_changes_that_remove_files(lake: Lake) -> None:
    """What is known has files that are not there any more: the change is made of what there is."""
    follower = same(lake)
    for batch in range(3):
        append(follower, batch)
    lake.compact(NAME, at_least=2)
    lake.vacuum(NAME, 0)
    built = []

    def build(found: object) -> Change:
        files = follower.snapshot(NAME, known=True)
        assert files is not None
        hit = files.files()
        built.append([one.name for one in hit])
        kept = pa.concat_tables([*follower.read_files(NAME, built[-1]), rows(3)])
        return Change(written_schema, [follower.write(NAME, 3, kept)], hit)

    assert follower.commit(NAME, 3, build, as_known=True)
    assert [len(names) for names in built] == [3, 1]
    assert numbers(lake) == [0, 1, 2, 3]


def test_a_log_that_needs_more_is_not_written(lake: Lake) -> None:
    append(lake, 0)
    version = Path(lake.uri) / NAME / "_delta_log" / f"{2:020}.json"
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["rowTracking"]}
    version.write_text(json.dumps({"protocol": protocol}))
    with pytest.raises(LakeError, match=r"silver/a was changed by another program, .*: rowTracking"):
        append(same(lake), 1)
    assert not version.with_name(f"{3:020}.json").exists()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    return tmp_path / ".aws"


def test_keys_of_a_profile(s3: dict[str, str], home: Path, tmp_path: Path) -> None:
    (home / "credentials").write_text("[field]\naws_access_key_id = key\naws_secret_access_key = secret\n")
    (home / "config").write_text("[profile far]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = field\n")
    options = {key: value for key, value in s3.items() if "ACCESS" not in key}
    objects = open_objects(f"s3://lakes/{tmp_path.name}", {**options, "AWS_PROFILE": "field"})
    assert objects.put_new("a", b"x")
    assert not objects.put_new("a", b"y")
    assert (objects.get("a"), objects.get("b")) == (b"x", None)
    with pytest.raises(LakeError, match=r"profile 'far' in ~/\.aws has no keys of its own"):
        open_objects("s3://lakes/x", {**options, "AWS_PROFILE": "far"})
