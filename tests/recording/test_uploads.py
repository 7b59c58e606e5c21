"""A recorder never stops for the store of its sealed segments: they wait on disk and are uploaded when it answers, by
this recorder, the next one, or `ringmain record --upload`. The store is a real server that speaks S3; a door before it
fails as the test says."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs as pafs

import ringmain as rm
from ringmain._metrics import metrics
from ringmain.recording import RecordingWriter, forget, upload
from ringmain.recording._format import Position, sealed_name
from ringmain.recording._record import writer as writer_module
from ringmain.recording._record.flight import Flight
from ringmain.recording._segment.store import Store, list_here
from ringmain.recording._upkeep.uploads import Uploader, read_uploaded
from tests import forked, samples
from tests.recording.conftest import payload_of, ring_batch
from tests.recording.test_replay import START_NS as REPLAY_START_NS
from tests.recording.test_replay import batch as replay_batch
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


def stored(path: Path, segments: int) -> list[str]:
    """What a recording of so many segments has in its store."""
    own = Store.of(path).id
    assert len(own) == 8
    return [*(sealed_name(number, own) for number in range(segments)), "meta.json"]


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
    assert names(uri) == stored(tmp_path / "r", 3)
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
    assert names(uri) == stored(tmp_path / "r", 5)
    assert [m.seq for m in rm.Recording(uri)] == list(range(50))


def test_a_recorder_resumes_without_the_store(tmp_path: Path, door: Door, uri: str, until: Until) -> None:
    """The last message of every topic that was uploaded is known: those that were missed meanwhile are counted."""
    with rm.Publisher("t", contract="broadcast") as pub:
        with rm.Recorder(tmp_path / "r", "t", sealed_uri=uri):
            for n in range(10):
                pub.send(payload_of(n))
        assert names(uri) == stored(tmp_path / "r", 1)
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
    with filesystem.open_input_stream(f"{path}/{stored(tmp_path / 'r', 2)[1]}") as source:
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
    assert [m.seq for m in rm.Recording(tmp_path / "two")] == list(range(100, 110))


def test_recordings_that_take_one_address_in_the_same_moment(tmp_path: Path, door: Door, uri: str) -> None:
    """Both have looked before either wrote: here the first one's meta.json is gone when the second looks. No segment
    replaces another, the retention of one deletes none of the other's, and each can be read from its directory."""
    record(tmp_path / "one", 0, 2, uri).close()
    filesystem, path = pafs.FileSystem.from_uri(uri)
    filesystem.delete_file(f"{path}/meta.json")
    record(tmp_path / "two", 100, 2, uri).close()
    assert names(uri) == sorted({*stored(tmp_path / "one", 2), *stored(tmp_path / "two", 2)})
    assert [m.seq for m in rm.Recording(tmp_path / "one")] == list(range(20))
    assert [m.seq for m in rm.Recording(tmp_path / "two")] == list(range(100, 120))
    assert [m.seq for m in rm.Recording(uri)] == list(range(100, 120)), "whose meta.json is there"
    with RecordingWriter(tmp_path / "two", keep_bytes=1) as writer:
        writer.append("t", 1, ring_batch(120, 10))
    assert [m.seq for m in rm.Recording(tmp_path / "two")] == list(range(120, 130))
    assert [m.seq for m in rm.Recording(tmp_path / "one")] == list(range(20))
    continued = record(tmp_path / "one", 20, 1)
    continued.close()
    assert "has the recording of" in continued.upload_problem
    assert [m.seq for m in rm.Recording(tmp_path / "one")] == list(range(30)), "two in the store, one still here"
    filesystem.delete_file(f"{path}/meta.json")
    with pytest.raises(rm.RingmainError, match=r"has segments of 2 recordings and no meta\.json"):
        len(rm.Recording(uri))


def upload_at_once(path: str, ready: Any, go: Any, results: Any) -> None:
    ready.release()
    go.wait()
    try:
        results.put(upload(path))
    except rm.RingmainError as error:
        results.put(str(error))


@pytest.mark.parametrize("attempt", samples.some(range(5), 2))
def test_two_processes_upload_to_one_address_at_once(tmp_path: Path, attempt: int) -> None:
    """On a file system, where both wrote one temporary file: every row of both is there, readable, once."""
    location = tmp_path / "blocked" / "store"
    (tmp_path / "blocked").touch()  # the store does not answer yet
    for first, name in ((0, "one"), (1000, "two")):
        with RecordingWriter(tmp_path / name, sealed_uri=location.as_uri(), fsync="never") as writer:
            for part in range(3):
                writer.append("t", 1, ring_batch(first + part * 100, 100, size=5000))
                writer.rotate()
        assert writer.uploads_waiting == 3
    (tmp_path / "blocked").unlink()
    spawn = multiprocessing.get_context("spawn")
    ready, go, results = spawn.Semaphore(0), spawn.Event(), spawn.Queue()
    both = [
        spawn.Process(target=upload_at_once, args=(str(tmp_path / name), ready, go, results)) for name in ("one", "two")
    ]
    for process in both:
        process.start()
    for _ in both:
        ready.acquire()
    go.set()
    told = [results.get(timeout=60) for _ in both]
    for process in both:
        process.join(60)
    assert 3 in told, "one of them has the place"
    assert all(one == 3 or "has the recording of" in str(one) for one in told)
    for first, name in ((0, "one"), (1000, "two")):
        recording = rm.Recording(tmp_path / name)
        assert recording.verify().ok
        assert [m.seq for m in recording] == list(range(first, first + 300))
    assert not list(location.glob("*.tmp"))


def test_a_segment_that_is_uploaded_in_the_moment_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was here when it was looked for, and is not when it is read."""
    record(tmp_path / "r", 0, 2, (tmp_path / "store").as_uri()).close()
    monkeypatch.setattr(Path, "exists", lambda path: True)
    assert [m.seq for m in rm.Recording(tmp_path / "r")] == list(range(20))


@pytest.mark.parametrize("flaw", ["cut short", "changed"])
def test_what_the_store_does_not_give_back_stays_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until, flaw: str
) -> None:
    """A store that loses bytes of an upload: the segment stays in the directory, and is uploaded again."""
    location = tmp_path / "store"
    real = Store.upload

    def damaging(store: Store, name: str, read: Callable[[int], bytes], *, sync: bool) -> None:
        real(store, name, read, sync=sync)
        if name != "meta.json":
            data = (location / name).read_bytes()
            middle = len(data) // 2
            flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
            (location / name).write_bytes(data[:-9] if flaw == "cut short" else flipped)

    monkeypatch.setattr(
        writer_module, "Uploader", lambda store, **options: Uploader(store, **options, first_pause_s=0.05)
    )
    with monkeypatch.context() as patched:
        patched.setattr(Store, "upload", damaging)
        writer = record(tmp_path / "r", 0, 1, location.as_uri())
        until(lambda: "does not give back 000000000-" in writer.upload_problem)
        assert (tmp_path / "r" / sealed_name(0)).exists()
        assert [m.seq for m in rm.Recording(tmp_path / "r")] == list(range(10))
    until(lambda: writer.uploads_waiting == 0)  # what is there is damaged, so it is replaced
    writer.close()
    assert not (tmp_path / "r" / sealed_name(0)).exists()
    assert [m.seq for m in rm.Recording(location.as_uri())] == list(range(10))


def test_a_copy_of_a_recording_that_went_its_own_way(tmp_path: Path) -> None:
    """It has the same id, and other messages under the same number: the intact segment that is there stays."""
    location = (tmp_path / "store").as_uri()
    record(tmp_path / "r", 0, 1, location).close()
    shutil.copytree(tmp_path / "r", tmp_path / "copy")
    record(tmp_path / "r", 10, 1).close()
    other = record(tmp_path / "copy", 90, 1)
    other.close()
    assert "has another 000000001-" in other.upload_problem
    assert other.uploads_waiting == 1
    assert [m.seq for m in rm.Recording(location)] == list(range(20))


def test_a_recorder_that_is_killed_while_it_uploads(tmp_path: Path) -> None:
    """Its half of a file has a temporary name, and is no segment; the next one uploads anew, and leaves none."""
    location = tmp_path / "blocked" / "store"
    (tmp_path / "blocked").touch()  # the store does not answer yet
    record(tmp_path / "r", 0, 2, location.as_uri()).close()
    script = """
import os, signal, sys
from ringmain.recording import upload
from ringmain.recording._segment.store import Store
real = Store.upload
def dying(store, name, read, *, sync):
    def some(size):
        if name.startswith("000000001"):
            os.kill(os.getpid(), signal.SIGKILL)
        return read(size)
    real(store, name, some, sync=sync)
Store.upload = dying
upload(sys.argv[1])
"""
    (tmp_path / "blocked").unlink()
    ended = forked.run([sys.executable, "-c", script, str(tmp_path / "r")], timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert len(list(location.glob("*.tmp"))) == 1
    assert [m.seq for m in rm.Recording(tmp_path / "r")] == list(range(20))
    assert [m.seq for m in rm.Recording(location.as_uri())] == list(range(10))
    assert upload(tmp_path / "r") == 1
    assert not list(location.glob("*.tmp"))
    assert [m.seq for m in rm.Recording(location.as_uri())] == list(range(20))


def test_credentials_in_an_address_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="set them in the environment") as said:
        RecordingWriter(tmp_path / "r", sealed_uri="s3://name:hidden@lake/drive")
    assert "hidden" not in str(said.value)
    assert not (tmp_path / "r" / "meta.json").exists()


def test_only_incidents_are_uploaded(tmp_path: Path, door: Door, uri: str, until: Until) -> None:
    """While the store is away they wait, and retention deletes what none of them has; when it is back, each is there
    as a whole, also what it shares with one that was uploaded before."""
    path = tmp_path / "r"
    triggers = [rm.Trigger(kind="a: k1", before_s=3e-9, after_s=2e-9, cooldown_s=0, name="odd")]
    writer = RecordingWriter(path, sealed_uri=uri, upload="incidents", fsync="never", keep_bytes=1)
    flight = Flight(writer, triggers, recorder="recorder", sync=False)
    sequence = iter(range(100))

    def see(time_ns: int) -> None:
        """Each in a segment of its own; an incident is closed by the first message after its window."""
        ring = replay_batch(next(sequence), [time_ns])
        flight.see("a", ring, b"")
        flight.close([one for one in flight.open if one.end_ns <= REPLAY_START_NS + time_ns])
        writer.append("a", 1, ring)
        writer.rotate()
        until(lambda: not writer.segments_waiting)

    def manifests() -> list[str]:
        return [one.id for one in rm.Recording(uri).incidents()]

    door.fail("gone")
    for time_ns in (0, 2, 4, 7, 8, 10, 12):
        see(time_ns)
    until(lambda: writer.uploads_waiting == 3 and writer.upload_problem)
    assert [n for n in range(9) if (path / sealed_name(n)).exists()] == [2, 3, 4, 6], "of the window, and the newest"
    (waiting,) = metrics([path])["ringmain_recording_waiting_uploads"]
    assert waiting["value"] == 3
    door.mend()
    until(lambda: not writer.uploads_waiting and len(manifests()) == 1)
    assert [int(m.data) for m in rm.Recording(uri)] == [4, 7, 8]
    see(13)  # its window is from 10, which is deleted, to 15
    see(14)
    see(16)
    until(lambda: not writer.uploads_waiting and len(manifests()) == 2)
    writer.close()
    first, second = rm.Recording(path).incidents()
    for where in (uri, path):
        assert [int(m.data) for m in rm.Recording(where, incident=first.id)] == [4, 7, 8]
        assert [int(m.data) for m in rm.Recording(where, incident=second.id)] == [12, 13, 14]
    assert second.whole_from_ns == REPLAY_START_NS + 11
    forget(path, first.id)
    with RecordingWriter(path, keep_bytes=1) as writer:
        until(lambda: manifests() == [second.id])
        until(lambda: sum(name.endswith(".parquet") for name in names(uri)) == 3)
    assert [int(m.data) for m in rm.Recording(uri)] == [12, 13, 14]
    assert upload(path) == 0, "what no incident has stays here"


def test_what_is_uploaded_stays_as_it_was_begun(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'some': choose 'all' or 'incidents'"):
        RecordingWriter(tmp_path / "r", upload="some")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs a sealed_uri"):
        RecordingWriter(tmp_path / "r", upload="incidents")
    RecordingWriter(tmp_path / "s", sealed_uri=(tmp_path / "store").as_uri(), upload="incidents").close()
    with pytest.raises(ValueError, match="begun with upload='incidents', which cannot change to 'all'"):
        RecordingWriter(tmp_path / "s", upload="all")


@pytest.mark.parametrize(
    "then",
    [None, b'"another"', b'"another that is longer than the first"'],
    ids=["deleted", "replaced by a shorter one", "replaced by a longer one"],
)
def test_a_file_that_changes_while_it_is_read(
    then: bytes | None, door: Door, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there when it was opened, and then it is gone, or another: what is there is read, and no error."""
    store = Store(None, uri)
    filesystem, directory = store.filesystem()

    def write(data: bytes) -> None:
        with filesystem.open_output_stream(f"{directory}/f.json") as sink:
            sink.write(data)

    class Changing:
        """The file system, and somebody who is quicker than the reader."""

        def __init__(self) -> None:
            self.left = 1

        def open_input_stream(self, path: str) -> Any:
            stream = filesystem.open_input_stream(path)
            if self.left:
                self.left -= 1
                filesystem.delete_file(path)
                if then is not None:
                    write(then)
            return stream

    write(b'"what is there at first"')
    changing = Changing()
    monkeypatch.setattr(Store, "filesystem", lambda _: (changing, directory))
    assert store.read("f.json") == then
