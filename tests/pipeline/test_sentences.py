"""What the pipeline says when something is wrong: one sentence about what was given or what cannot be read, with the
exit code of a usage error, of something that is not there, or of a failure."""

from __future__ import annotations

import pickle
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ringmain._cli.main import main
from ringmain.errors import InvalidArgument, NotAllowed, RecordingError, RingmainError
from ringmain.lake import Lake
from ringmain.pipeline import Align, Pipeline
from ringmain.recording import Recording, RecordingWriter
from ringmain.recording._segment.parquet_segment import ROW_GROUP_BYTES
from ringmain.spark._tasks import _Reported
from tests.recording.conftest import ring_batch
from tests.spark.recordings import record, rows
from tests.store import Door, storage_options


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (("--window", "7"), 2, "divide 60"),
        (("--window", "nan"), 2, "seconds are wanted"),
        (("--batch-bytes", "10x"), 2, "a size is wanted, like 64MiB or 10GB, not '10x'"),
        (("--interval", "-1"), 2, "seconds are wanted"),
        (("--align", "camera"), 2, "say LEAD:TOPIC,...@SECONDS"),
        (("--align", "camera:imu@0.1.2"), 2, "say LEAD:TOPIC,...@SECONDS"),
        (("--align", "camera:imu@0"), 2, "more than 0 seconds"),
        (("--align", "nosuch:a"), 3, "there is no topic 'nosuch' to align: the recordings have a"),
        (("--align", "a:nosuch"), 3, "there is no topic 'nosuch' to align: the recordings have a"),
        (("--master", "spark://127.0.0.1:1"), 1, "no Spark answers at spark://127.0.0.1:1"),
        (("--engine", "local", "--master", "local[1]"), 2, "takes no --master"),
    ],
)
def test_each_mistake_is_a_sentence(
    given: tuple[str, ...], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    record(tmp_path / "rec", ("a", 1, rows(0, 5)))
    command = ["pipeline", "run", str(tmp_path / "rec"), "--lake", str(tmp_path / "lake"), *given]
    if "--master" in given:  # in a process of its own: this one may have a session of another test
        done = subprocess.run([sys.executable, "-m", "ringmain", *command], capture_output=True, text=True, timeout=120)
        assert done.returncode == code
        text = done.stderr
    else:
        assert main(command) == code
        text = capsys.readouterr().err
    assert said in text
    assert text.count("\n") == 1
    assert not (tmp_path / "lake").exists()


@pytest.mark.spark
def test_a_master_that_listens_and_does_not_answer_is_a_sentence(tmp_path: Path) -> None:
    """As where the port is that of another program. Spark asks for a minute."""
    record(tmp_path / "rec", ("a", 1, rows(0, 5)))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        master = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        command = ["pipeline", "run", str(tmp_path / "rec"), "--lake", str(tmp_path / "lake"), "--master", master]
        done = subprocess.run([sys.executable, "-m", "ringmain", *command], capture_output=True, text=True, timeout=600)
    said = f"ringmain pipeline: Spark does not start on {master}: what listens there does not answer as a master"
    ours = [line for line in done.stderr.splitlines() if not line.startswith("WARNING: Using incubator modules")]
    assert (done.returncode, ours) == (1, [said]), "Java's own line comes before Spark begins"
    assert not (tmp_path / "lake").exists()


def test_the_library_says_them_too() -> None:
    for wrong in (lambda: Pipeline(window_s=7), lambda: Pipeline(bronze="x"), lambda: Align.parse("camera:imu@.")):
        with pytest.raises(InvalidArgument):
            wrong()


@pytest.fixture
def door(s3_endpoint: str) -> Iterator[Door]:
    with Door(s3_endpoint) as made:
        yield made


def test_recordings_that_cannot_be_read_are_not_the_lake(door: Door, tmp_path: Path, s3: dict[str, str]) -> None:
    uri, options = f"s3://lakes/{tmp_path.name}", {**storage_options(door.endpoint), "max_retries": "1"}
    with RecordingWriter(tmp_path / "drive", sealed_uri=uri, storage_options=s3) as writer:
        writer.append("a", 1, ring_batch(0, 10))
    door.fail(403)
    with pytest.raises(RecordingError, match=f"recording {uri} cannot be read: ") as said:
        Pipeline(storage_options=options).run(uri, tmp_path / "lake", engine="local")
    assert "\n" not in str(said.value)


def test_credentials_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is asked for them, unless a setting says where they are."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for ask in (lambda: Lake("s3://lakes/x").tables(), lambda: Recording("s3://lakes/x")):
        with pytest.raises(NotAllowed, match="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are missing"):
            ask()
    with pytest.raises(NotAllowed, match="and AWS_SECRET_ACCESS_KEY is missing"):
        Lake("s3://lakes/x", {"aws_access_key_id": "key"}).tables()
    record(tmp_path / "rec", ("a", 1, rows(0, 5)))
    assert main(["pipeline", "run", str(tmp_path / "rec"), "--lake", "s3://lakes/x", "--engine", "local"]) == 1
    assert "AWS_SECRET_ACCESS_KEY are missing" in capsys.readouterr().err


def test_colours_are_left_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from ringmain._cli.commands import pipeline

    def fail(args: Any) -> int:
        raise OSError("\x1b[31mno answer\x1b[0m\nfrom the store")

    monkeypatch.setattr(pipeline, "run", fail)
    assert main(["pipeline", "run", "x"]) == 1
    assert capsys.readouterr().err == "ringmain pipeline: no answer from the store\n"


def test_errors_of_ours_come_from_a_worker_as_they_are() -> None:
    """With class and fields, as a row that Spark carries. Others are left to Spark, which tries again."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
        yield 1
        raise InvalidArgument("of ours", topic="imu")

    first, last = _Reported(work)(iter(()))
    assert (first.column("error")[0].as_py(), last.column("report")[0].as_py()) == (None, None)
    error = pickle.loads(last.column("error")[0].as_py())
    assert (type(error), str(error), error.topic) == (InvalidArgument, "of ours", "imu")

    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
        raise OSError("not ours")
        yield

    with pytest.raises(OSError, match="not ours") as said:
        list(_Reported(fails)(iter(())))
    assert not isinstance(said.value, RingmainError)


def test_damage_costs_a_small_row_group(tmp_path: Path) -> None:
    """Five kilobytes in the middle of 40 MB."""
    with RecordingWriter(tmp_path / "r") as writer:
        for part in range(40):
            data = [random.Random(part * 10 + n).randbytes(100_000) for n in range(10)]
            batch = ring_batch(part * 10, 10)
            writer.append("a", 1, batch.set_column(batch.num_columns - 1, batch.schema.field(-1), pa.array(data)))
    (segment,) = (tmp_path / "r").glob("*.parquet")
    content = bytearray(segment.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 5000] = bytes(5000)
    segment.write_bytes(content)
    kept = len(list(Recording(tmp_path / "r", skip_damage=True)))
    assert 400 - 2 * (ROW_GROUP_BYTES // 100_000) - 2 <= kept < 400
