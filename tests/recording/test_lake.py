"""Sealed segments in an object store: recorders of several hosts feed one bucket, and what is there is read without the
directories of the recorders. The store is a real server that speaks S3, in a process of its own on the loopback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import fs as pafs

import ringmain as rm
from ringmain.recording import RecordingWriter, register
from ringmain.recording._format import Position
from tests.recording.conftest import payload_of, ring_batch


@pytest.fixture
def lake(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """The address of a place in a bucket of the test's own."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    bucket = request.node.name.replace("_", "-").lower()[:50]
    options = {"endpoint_override": s3_endpoint, "scheme": "http", "region": "us-east-1"}
    pafs.S3FileSystem(**options, allow_bucket_creation=True).create_dir(bucket)
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return lambda path: f"s3://{bucket}/{path}?{query}"


def names(uri: str) -> list[str]:
    filesystem, path = pafs.FileSystem.from_uri(uri)
    return sorted(info.base_name for info in filesystem.get_file_info(pafs.FileSelector(path)))


def test_a_live_recorder_fills_a_bucket(
    tmp_path: Path, lake: Callable[[str], str], until: Callable[[Callable[[], object]], None]
) -> None:
    with rm.Publisher("t", contract="reliable") as pub:
        options = {"sealed_uri": lake("drive"), "segment_bytes": 20_000, "flush_interval_s": 0}
        with rm.Recorder(tmp_path / "r", "t", **options) as recorder:  # type: ignore[arg-type]
            for number in range(300):
                pub.send(payload_of(number, 500))
                if number % 60 == 59:
                    until(lambda number=number: recorder.status().messages == number + 1)
    assert not list((tmp_path / "r").glob("*.arrows"))
    assert not list((tmp_path / "r").glob("*.parquet")), "all of it is in the bucket"
    for recording in (rm.Recording(tmp_path / "r"), rm.Recording(lake("drive"))):
        assert [m.data for m in recording] == [payload_of(number, 500) for number in range(300)]
        assert recording.verify().ok
        assert len(recording.segments()) > 3
    assert "meta.json" in names(lake("drive"))


def test_two_hosts_feed_one_lake(tmp_path: Path, lake: Callable[[str], str]) -> None:
    for host in ("left", "right"):
        with RecordingWriter(tmp_path / host, recorder=host, sealed_uri=lake(f"robots/{host}")) as writer:
            writer.append("t", 1, ring_batch(0, 10))
    found = {host: {m.data for m in rm.Recording(lake(f"robots/{host}"))} for host in ("left", "right")}
    assert found["left"] == found["right"] == {payload_of(n) for n in range(10)}
    assert rm.Recording(lake("robots/left")).to_arrow()["recorder"].unique().to_pylist() == ["left"]


def test_positions_and_retention_are_the_same_as_in_a_directory(tmp_path: Path, lake: Callable[[str], str]) -> None:
    path = tmp_path / "r"
    with RecordingWriter(path, sealed_uri=lake("kept"), keep_bytes=1) as writer:
        register(path, "spark", Position(1, 0))
        for first in range(0, 40, 10):
            writer.append("t", 1, ring_batch(first, 10))
            writer.rotate()
    assert [ref.number for ref in rm.Recording(path).segments()] == [1, 2, 3], "the consumer still needs 1"
    assert [m.seq for m in rm.Recording(path).messages(start=Position(2, 5))] == list(range(25, 40))
    assert sorted(name[:9] for name in names(lake("kept"))) == ["000000001", "000000002", "000000003", "meta.json"]
