"""`--storage-option`: recordings on an object store, with nothing in the environment. The server is a real one, which
speaks S3 (moto, on loopback)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ringmain as rm
from ringmain.recording import RecordingWriter
from tests.recording.conftest import ring_batch


def test_every_command_that_reads_a_recording_takes_it(ringmain, s3: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    lake, uri = "s3://lakes/of-drive", "s3://lakes/drive"
    with RecordingWriter(tmp_path / "drive", sealed_uri=uri, storage_options=s3) as writer:
        writer.append("t", 1, ring_batch(0, 10))
    assert not list((tmp_path / "drive").glob("*.parquet")), "all of it is in the bucket"
    assert len(list(rm.Recording(uri, storage_options=s3))) == 10
    given = [word for name, value in s3.items() for word in ("--storage-option", f"{name}={value}")]

    def run(*words: str) -> str:
        ended = ringmain(*words, *given, patience_s=120)
        assert ended.code == 0, ended.err
        return str(ended.out)

    assert json.loads(run("info", uri, "--json"))["messages"] == 10
    assert json.loads(run("query", uri, "select count(*) as n from t", "--format", "json")) == [{"n": 10}]
    assert "10 messages" in run("export", uri, str(tmp_path / "t.parquet"))
    assert json.loads(run("play", uri, "--speed", "inf", "--json"))["messages"] == 10
    assert json.loads(run("record", "--upload", str(tmp_path / "drive"), "--json")) == {"uploaded": 0}
    run("pipeline", "run", uri, "--lake", lake, "--engine", "local")
    assert "ops/batches: " in run("pipeline", "maintain", lake, "--retain", "silver/*=30")
    sql = "select recordings[1].location as location from ops.batches"
    found = json.loads(run("query", lake, sql, "--format", "json"))
    assert found == [{"location": uri}]


def test_a_wrong_option_is_not_shown(ringmain) -> None:
    ended = ringmain("info", "s3://recordings/drive", "--storage-option", "hidden")
    assert (ended.code, "NAME=VALUE" in ended.err, "hidden" in ended.err) == (2, True, False)
