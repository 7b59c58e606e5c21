"""What recordings in a store cost: the requests that its server has logged, not the time that they took."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ringmain.recording import Recording, RecordingWriter, Store, list_segments
from ringmain.recording._segment import parquet_segment
from ringmain.recording._segment.parquet_segment import _joined
from tests.recording.conftest import ring_batch
from tests.spark.recordings import rows
from tests.store import Request, RequestLog

pytest.importorskip("deltalake", reason="the storage options are those of deltalake")


def stored(path: Path, s3: dict[str, str], uri: str, *, parts: int) -> None:
    """A recording with one segment at the address, of so many row groups of about 256 KiB."""
    noise = random.Random(parts)
    made = RecordingWriter(path, recorder="r", sealed_uri=uri, storage_options=s3, fsync="never")
    for part in range(parts):
        made.append("camera", 1, rows(part * 4, 4, encode=lambda _: noise.randbytes(64 << 10)))
        made.flush()
    made.close()


def gets(asked: list[Request], ending: str) -> list[Request]:
    return [one for one in asked if one.method == "GET" and one.path.partition("?")[0].endswith(ending)]


def test_each_row_group_is_fetched_once(
    s3: dict[str, str], s3_log: RequestLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the footer with one request more, however it is read."""
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", 1 << 18)
    uri = f"s3://lakes/{tmp_path.name}"
    stored(tmp_path / "r", s3, uri, parts=8)
    (ref,) = list_segments(Store.of(uri, s3))
    recording = Recording(uri, storage_options=s3)
    with s3_log.noted() as asked:
        assert sum(len(message.data) for message in recording) == 32 * (64 << 10)
    spans = gets(asked, ".parquet")
    assert len(spans) == 1 + 8
    assert sum(one.bytes for one in spans) <= ref.size_bytes + parquet_segment._TAIL_BYTES
    for _ in range(2):
        with s3_log.noted() as asked:
            segment = ref.open(known=True)
            segment.read(3, ["payload", "seq"])
            segment.read(3, ["seq"])
            segment.close()
    assert len(gets(asked, ".parquet")) == 2, "the footer is known"


def test_a_known_footer_of_another_file_is_not_used(s3: dict[str, str], tmp_path: Path) -> None:
    """Of an address at which another recording has been put."""
    uri = f"s3://lakes/{tmp_path.name}"
    stored(tmp_path / "r", s3, uri, parts=1)
    (ref,) = list_segments(Store.of(uri, s3))
    assert ref.open(known=True).rows == 4
    filesystem, path = ref.location()
    stored(tmp_path / "other", s3, f"{uri}-other", parts=2)
    (other,) = list_segments(Store.of(f"{uri}-other", s3))
    filesystem.copy_file(other.location()[1], path)
    assert ref.open(known=True).rows == 8


def test_ranges_that_are_near_are_one() -> None:
    assert _joined([(0, 4), (4, 10), (100, 50)]) == [(0, 150)]
    assert _joined([(500_000, 10), (0, 4)]) == [(0, 4), (500_000, 10)]
    assert _joined([(0, 100), (10, 5)]) == [(0, 100)]


def test_a_file_that_does_not_begin_like_parquet(tmp_path: Path) -> None:
    """No checksum covers its first bytes."""
    with RecordingWriter(tmp_path / "r") as made:
        made.append("imu", 1, ring_batch(0, 5))
    (path,) = (tmp_path / "r").glob("*.parquet")
    data = path.read_bytes()
    path.write_bytes(b"QAR1" + data[4:])
    recording = Recording(tmp_path / "r")
    (damage,) = recording.verify().damage
    assert "does not begin like Parquet" in damage.reason
