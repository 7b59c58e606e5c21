"""`--storage-option`: recordings on an object store, with nothing in the environment. The server is a real one, which
speaks S3 (moto, on loopback)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import ringmain as rm
from ringmain.recording import RecordingWriter
from tests.recording.conftest import ring_batch
from tests.store import make_bucket, s3_server, storage_options


@pytest.fixture
def options() -> Iterator[dict[str, str]]:
    pytest.importorskip("moto", reason="the S3 server of these tests comes with the extra `dev`")
    with s3_server() as endpoint:
        make_bucket(endpoint, "recordings")
        yield storage_options(endpoint)


def test_every_command_that_reads_a_recording_takes_it(ringmain, options: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    uri = "s3://recordings/drive"
    with RecordingWriter(tmp_path / "drive", sealed_uri=uri, storage_options=options) as writer:
        writer.append("t", 1, ring_batch(0, 10))
    assert not list((tmp_path / "drive").glob("*.parquet")), "all of it is in the bucket"
    assert len(list(rm.Recording(uri, storage_options=options))) == 10
    given = [word for name, value in options.items() for word in ("--storage-option", f"{name}={value}")]

    def run(*words: str) -> str:
        ended = ringmain(*words, *given, patience_s=120)
        assert ended.code == 0, ended.err
        return str(ended.out)

    assert json.loads(run("info", uri, "--json"))["messages"] == 10
    assert json.loads(run("query", uri, "select count(*) as n from t", "--format", "json")) == [{"n": 10}]
    assert "10 messages" in run("export", uri, str(tmp_path / "t.parquet"))
    assert json.loads(run("play", uri, "--speed", "inf", "--json"))["messages"] == 10
    assert json.loads(run("record", "upload", str(tmp_path / "drive"), "--json")) == {"uploaded": 0}
    run("pipeline", "run", uri, "--lake", "s3://recordings/lake")
    assert "ops/batches: " in run("pipeline", "maintain", "s3://recordings/lake", "--retain", "silver/*=30")
    sql = "select recordings[1].location as location from ops.batches"
    lake = json.loads(run("query", "s3://recordings/lake", sql, "--format", "json"))
    assert lake == [{"location": uri}]


def test_a_wrong_option_is_not_shown(ringmain) -> None:
    ended = ringmain("info", "s3://recordings/drive", "--storage-option", "hidden")
    assert (ended.code, "NAME=VALUE" in ended.err, "hidden" in ended.err) == (2, True, False)
