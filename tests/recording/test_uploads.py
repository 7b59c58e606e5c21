"""A recorder never stops for the store of its sealed segments: they wait on disk and are uploaded when it answers, by
this recorder, the next one, or `ringmain record upload`. The store is a real server that speaks S3; a door before it
fails as the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyarrow import fs as pafs

import ringmain as rm
from ringmain._metrics import metrics
from ringmain.recording import RecordingWriter, upload
from ringmain.recording._format import Position, sealed_name
from ringmain.recording._record import writer as writer_module
from ringmain.recording._segment.store import Store, list_here
from ringmain.recording._segment.uploads import Uploader, read_uploaded
from tests.recording.conftest import payload_of, ring_batch
from tests.store import Door

pytestmark = pytest.mark.long
Until = Callable[[Callable[[], object]], None]


@pytest.fixture
def door(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(
        writer_module, "Uploader", lambda store, **options: Uploader(store, **options, first_pause_s=0.05)
    )
    with Door(s3_endpoint) as made:
        yield made


@pytest.fixture
def uri(door: Door, tmp_path: Path) -> str:
    return f"s3://lakes/{tmp_path.name}?endpoint_override={door.endpoint}&scheme=http&region=us-east-1"


def names(uri: str) -> list[str]:
    filesystem, path = pafs.FileSystem.from_uri(uri)
    found = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True))
    return sorted(info.base_name for info in found)


def record(path: Path, first: int, segments: int, uri: str = "") -> RecordingWriter:
    writer = RecordingWriter(path, sealed_uri=uri, fsync="never")
    for n in range(segments):
        writer.append("t", 1, ring_batch(first + n * 10, 10))
        writer.rotate()
    return writer


@pytest.mark.parametrize("answer", [503, "gone"])
def test_recording_goes_on_while_the_store_fails(
    tmp_path: Path, door: Door, uri: str, answer: int | str, until: Until
) -> None:
    """It starts, records, seals and can be read without the store; then everything is uploaded by itself."""
    door.fail(answer)
    writer = record(tmp_path / "r", 0, 3, uri)
    until(lambda: writer.uploads_waiting == 3 and writer.upload_problem)
    assert "secret" not in writer.upload_problem
    assert [ref.number for ref in list_here(Store.of(tmp_path / "r")) if ref.waiting] == [0, 1, 2]
    if answer == "gone":
        (waiting,) = metrics([tmp_path / "r"])["ringmain_recording_waiting_uploads"]
        assert waiting["value"] == 3
    door.mend()
    until(lambda: writer.uploads_waiting == 0)
    assert writer.upload_problem == ""
    writer.close()
    assert names(uri) == [*map(sealed_name, range(3)), "meta.json"]
    assert not list((tmp_path / "r").glob("0*"))
    for where in (tmp_path / "r", uri):
        assert [m.seq for m in rm.Recording(where)] == list(range(30))


def test_what_waits_is_uploaded_by_the_next_recorder(tmp_path: Path, door: Door, uri: str) -> None:
    """Which also starts while the store is gone, goes on with the right numbers, and knows what was recorded."""
    record(tmp_path / "r", 0, 2, uri).close()
    door.fail("gone")
    second = record(tmp_path / "r", 20, 2)
    assert [ref.number for ref in list_here(second.store)][-1] == 3
    second.close()
    assert second.uploads_waiting == 2
    door.mend()
    third = record(tmp_path / "r", 40, 1)
    third.close()
    assert (third.uploads_waiting, third.position) == (0, Position(5, 0))
    assert names(uri) == [*map(sealed_name, range(5)), "meta.json"]
    assert [m.seq for m in rm.Recording(uri)] == list(range(50))


def test_a_recorder_resumes_without_the_store(tmp_path: Path, door: Door, uri: str, until: Until) -> None:
    """The last message of every topic that was uploaded is known: those that were missed meanwhile are counted."""
    with rm.Publisher("t", contract="broadcast") as pub:
        with rm.Recorder(tmp_path / "r", "t", sealed_uri=uri):
            for n in range(10):
                pub.send(payload_of(n))
        assert names(uri) == ["000000000.parquet", "meta.json"]
        door.fail("gone")
        for n in range(10, 15):
            pub.send(payload_of(n))
        with rm.Recorder(tmp_path / "r", "t") as recorder:
            pub.send(payload_of(15))
            until(lambda: recorder.status().messages == 6)
        status = recorder.status()
        assert (status.uploads_waiting, status.lost) == (1, 0)
        door.mend()
    assert [m.data for m in rm.Recording(tmp_path / "r")] == [payload_of(n) for n in range(16)]


def test_upload_by_hand(tmp_path: Path, door: Door, uri: str) -> None:
    door.fail(503)
    record(tmp_path / "r", 0, 3, uri).close()
    with pytest.raises(rm.RingmainError, match=r"does not take the segments.*3 wait in"):
        upload(tmp_path / "r")
    door.mend()
    assert upload(tmp_path / "r") == 3
    assert upload(tmp_path / "r") == 0
    assert [m.seq for m in rm.Recording(uri)] == list(range(30))
    record(tmp_path / "here", 0, 1).close()
    with pytest.raises(ValueError, match="has no sealed_uri"):
        upload(tmp_path / "here")


def test_a_store_that_does_not_answer_does_not_slow_recording(
    tmp_path: Path, door: Door, uri: str, until: Until
) -> None:
    door.slow(3600)
    writer = record(tmp_path / "r", 0, 4, uri)
    until(lambda: writer.uploads_waiting == 4)
    door.mend()
    until(lambda: writer.uploads_waiting == 0)
    writer.close()
    assert [m.seq for m in rm.Recording(uri)] == list(range(40))


def test_a_recorder_that_died_after_an_upload(tmp_path: Path, door: Door, uri: str) -> None:
    """The segment is in both places, with and without its note: it is there once."""
    record(tmp_path / "r", 0, 2, uri).close()
    filesystem, path = pafs.FileSystem.from_uri(uri)
    with filesystem.open_input_stream(f"{path}/{sealed_name(1)}") as source:
        (tmp_path / "r" / sealed_name(1)).write_bytes(source.read())
    assert [m.seq for m in rm.Recording(tmp_path / "r")] == list(range(20))
    assert upload(tmp_path / "r") == 1
    (tmp_path / "r" / "uploaded.json").unlink()
    with RecordingWriter(tmp_path / "r") as writer:
        assert writer.position == Position(2, 0)
    uploaded = read_uploaded(Store.of(tmp_path / "r"))
    assert uploaded is not None
    assert (uploaded.next_segment, uploaded.lives[0].last_seq) == (2, 19)
    assert [m.seq for m in rm.Recording(uri)] == list(range(20))


def test_another_recording_is_not_overwritten(tmp_path: Path, door: Door, uri: str, until: Until) -> None:
    record(tmp_path / "one", 0, 1, uri).close()
    second = record(tmp_path / "two", 100, 1, uri)
    until(lambda: "has the recording of" in second.upload_problem)
    second.close()
    assert second.uploads_waiting == 1
    assert [m.seq for m in rm.Recording(uri)] == list(range(10))
    pafs.FileSystem.from_uri(uri)[0].delete_file(f"lakes/{tmp_path.name}/meta.json")
    with pytest.raises(rm.RingmainError, match=r"has another 000000000\.parquet"):
        upload(tmp_path / "two")


def test_credentials_in_an_address_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="set them in the environment") as said:
        RecordingWriter(tmp_path / "r", sealed_uri="s3://name:hidden@lake/drive")
    assert "hidden" not in str(said.value)
    assert not (tmp_path / "r" / "meta.json").exists()
