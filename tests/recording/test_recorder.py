"""The recorder on live topics: what was published is in the recording once, in order, and what is not is counted.

Publishers are real, in this process or in children; the recorder runs in a thread or in a child that can be killed.
Nothing here waits by the clock: the tests wait until the recorder's status shows what must come.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import ringmain as rm
from ringmain import _crash
from ringmain.errors import RecorderBusy, RecordingError
from tests import contracts, forked
from tests.conftest import PATIENCE_S, Child

Until = Callable[[Callable[[], object]], None]

pytestmark = pytest.mark.long

RECORD = """
recorder = rm.Recorder(sys.argv[1], sys.argv[2].split(","), fsync="never", flush_interval_s=0.01, segment_bytes=200_000)
with recorder:
    say("ready")
    while True:
        line = hear()
        if line == "stop":
            break
        wanted = int(line)
        while recorder.status().messages < wanted and recorder.error is None:
            time.sleep(0.002)
        say(recorder.status().messages)
"""


def numbers(path: Path, topic: str | None = None) -> list[int]:
    return [int(m.data) for m in rm.Recording(path).messages(topics=topic)]


def assert_exact(path: Path, topic: str, sent: int) -> None:
    """Recorded + lost = sent, nothing twice, in order, each row what was sent under its number."""
    seen = -1
    lost = 0
    for message in rm.Recording(path).messages(topics=topic):
        assert message.seq > seen, "in order, and nothing twice"
        assert message.seq - seen - 1 == message.lost, "every gap is counted, exactly"
        assert int(message.data) == message.seq
        seen = message.seq
        lost += message.lost
    assert seen + 1 == sent
    assert len(rm.Recording(path)) + lost == sent


def test_a_name_and_a_pattern_with_topics_that_appear_later(tmp_path: Path, until: Until) -> None:
    with rm.Publisher("imu") as imu, rm.Publisher("other") as other:
        with rm.Recorder(tmp_path / "r", ["imu", "camera/*", "later"], exclude="camera/raw") as recorder:
            for i in range(100):
                imu.send(b"%d" % i, kind="k")
                other.send(b"no")
            with (
                rm.Publisher("camera/a", contract="bus", sender="left") as a,
                rm.Publisher("camera/raw") as raw,
                rm.Publisher("later") as later,
            ):
                for i in range(100):
                    for publisher in (a, raw, later):
                        publisher.send(b"%d" % i)
                until(lambda: recorder.status().messages == 300)
    recording = rm.Recording(tmp_path / "r")
    assert {t: (s.rows, s.lost) for t, s in recording.topics().items()} == {
        "camera/a": (100, 0), "imu": (100, 0), "later": (100, 0),
    }  # fmt: skip
    first = next(iter(recording.messages(topics="camera/a")))
    assert (first.sender, first.seq, first.data) == ("left", 0, b"0")
    assert {t.name: t.contract for t in recording.schemas().values()} == {
        "imu": "broadcast", "camera/a": "bus", "later": "broadcast",
    }  # fmt: skip
    assert recording.verify().ok


def test_reliable_loses_nothing_however_small_the_ring(tmp_path: Path) -> None:
    with rm.Publisher("t", contract="reliable", capacity=4096) as pub:
        with rm.Recorder(tmp_path / "r", "t", fsync="never"):
            for i in range(20_000):
                pub.send(b"%d" % i, timeout=PATIENCE_S)
    assert numbers(tmp_path / "r") == list(range(20_000))


@pytest.mark.parametrize("contract", contracts.ALL)
def test_a_lapped_recorder_counts_exactly(tmp_path: Path, contract: str, child: Callable[..., Child]) -> None:
    """A publisher that never waits, a tiny ring: recorded + lost = sent."""
    script = """
    pub = rm.Publisher("t", contract=sys.argv[1], capacity=4096)
    reader = rm.Subscriber("t") if sys.argv[1] in ("pipe", "work") else None  # where one must read
    say("ready"); hear()
    for i in range(60_000):
        pub.send(b"%d" % i)
        if reader: reader.recv()
    say("sent"); hear()
    if reader: reader.close()
    pub.close()
    """
    publisher = child(script, contract)
    publisher.line()
    with rm.Recorder(tmp_path / "r", "t", observe=True, fsync="never") as recorder:
        publisher.tell()
        assert publisher.line() == "sent"
        status = recorder.close()
    publisher.tell()
    publisher.finish()
    assert_exact(tmp_path / "r", "t", 60_000)
    assert status.messages + status.lost == 60_000
    assert status.topics[0].observed


def test_a_pipe_keeps_its_reader_and_its_messages(tmp_path: Path, until: Until) -> None:
    with rm.Publisher("p", contract="pipe") as pub, rm.Recorder(tmp_path / "r", "*") as recorder:
        for i in range(50):
            pub.send(b"%d" % i)
        until(lambda: recorder.status().messages == 50)
        with rm.Subscriber("p") as reader:
            assert [int(reader.recv(timeout=PATIENCE_S)) for _ in range(50)] == list(range(50))
    assert numbers(tmp_path / "r") == list(range(50))


def test_topics_made_anew_are_lives_of_their_own(tmp_path: Path, until: Until) -> None:
    with rm.Recorder(tmp_path / "r", "t*") as recorder:
        epochs = []
        for life in range(3):
            with rm.Publisher("t", capacity=4096 << life) as pub:
                epochs.append(pub.epoch)
                for i in range(10):
                    pub.send(b"%d" % i)
                until(lambda life=life: recorder.status().messages == 10 * (life + 1))
    lives = rm.Recording(tmp_path / "r").lives()
    assert [(s.epoch, s.rows, s.first_seq, s.lost) for s in lives] == [(e, 10, 0, 0) for e in epochs]


class Imu(msgspec.Struct):
    x: float
    n: int


def test_typed_topics_are_recorded_with_their_schema(tmp_path: Path, until: Until) -> None:
    with rm.Publisher("imu", type=Imu) as pub, rm.Recorder(tmp_path / "r", "imu") as recorder:
        pub.send(Imu(0.5, 7))
        until(lambda: recorder.status().messages == 1)
    (message,) = rm.Recording(tmp_path / "r")
    assert (message.value.x, message.value.n) == (0.5, 7)


def test_more_topics_than_the_kernel_waits_for_at_once(tmp_path: Path, until: Until) -> None:
    count = 200
    publishers = [rm.Publisher(f"many/{i}", capacity=4096) for i in range(count)]
    try:
        with rm.Recorder(tmp_path / "r", "many/*", fsync="never") as recorder:
            for round_ in range(3):
                for publisher in publishers:
                    publisher.send(b"%d" % round_)
            until(lambda: recorder.status().messages == 3 * count)
    finally:
        for publisher in publishers:
            publisher.close()
    recording = rm.Recording(tmp_path / "r")
    assert len(recording.topics()) == count
    assert all(s.rows == 3 and s.lost == 0 for s in recording.topics().values())


def test_stops_after_exactly_so_many_messages(tmp_path: Path) -> None:
    with rm.Publisher("t") as pub:
        recorder = rm.Recorder(tmp_path / "r", "t", messages=1500, start="oldest")
        pub.send_many([b"%d" % i for i in range(3000)])
        status = recorder.run()
    assert status.state == "stopped"
    assert numbers(tmp_path / "r") == list(range(1500))


def test_stops_by_duration_and_by_size(tmp_path: Path) -> None:
    assert rm.Recorder(tmp_path / "d", "t", duration_s=0.01).run().messages == 0
    with rm.Publisher("t") as pub:
        pub.send_many([b"x" * 1000] * 500)
        status = rm.Recorder(tmp_path / "s", "t", start="oldest", max_bytes=100_000).run()
    assert status.bytes >= 100_000
    assert len(rm.Recording(tmp_path / "s")) == status.messages


def test_ctrl_c_ends_it_well(tmp_path: Path, child: Callable[..., Child]) -> None:
    script = """
    with rm.Publisher("t") as pub:
        recorder = rm.Recorder(sys.argv[1], "t", start="oldest")
        pub.send_many([b"%d" % i for i in range(100)])
        import threading
        def tell():
            while recorder.status().state != "recording": time.sleep(0.002)
            say("recording")
        threading.Thread(target=tell).start()
        say(recorder.run().state)
    """
    process = child(script, tmp_path / "r")
    process.line()
    process.process.send_signal(signal.SIGINT)
    assert process.finish() == ["stopped"]
    assert numbers(tmp_path / "r") == list(range(100))
    assert [s.sealed for s in rm.Recording(tmp_path / "r").segments()] == [True]


# ------------------------------------------------------------------------------------------------- killed


def test_killed_and_restarted_it_goes_on_after_the_last_row(
    tmp_path: Path, child: Callable[..., Child], until: Callable[[Callable[[], object]], None]
) -> None:
    """The ring keeps all of it, so the two recorders together miss nothing and have nothing twice."""
    path = tmp_path / "r"
    with rm.Publisher("t", capacity="4MiB") as pub:
        first = child(RECORD, path, "t", popen=forked.Popen)
        first.line()
        pub.send_many([b"%d" % i for i in range(5000)])
        first.tell("5000")
        assert int(first.line()) >= 5000
        until(lambda: len(rm.Recording(path)) > 0)  # it flushes now and then
        first.kill()
        pub.send_many([b"%d" % i for i in range(5000, 9000)])
        second = child(RECORD, path, "t", popen=forked.Popen)
        second.line()
        pub.send_many([b"%d" % i for i in range(9000, 9500)])
        second.tell(str(9500 - len(rm.Recording(path))))
        second.line()
        second.tell("stop")
        second.finish()
    assert_exact(path, "t", 9500)
    assert len(rm.Recording(path)) == 9500
    assert len(rm.Recording(path).segments()) >= 2


def test_what_the_ring_forgot_between_two_recorders_is_counted(tmp_path: Path, until: Until) -> None:
    path = tmp_path / "r"
    with rm.Publisher("t", capacity=4096) as pub:
        with rm.Recorder(path, "t") as recorder:
            pub.send(b"0")
            until(lambda: recorder.status().messages == 1)
        for i in range(1, 5000):
            pub.send(b"%d" % i)
        with rm.Recorder(path, "t") as recorder:
            until(lambda: recorder.status().topics[0].lag_messages == 0)
    assert_exact(path, "t", 5000)
    assert len(rm.Recording(path)) < 5000


def test_without_resume_a_new_recorder_begins_with_what_comes(tmp_path: Path, until: Until) -> None:
    path = tmp_path / "r"
    with rm.Publisher("t") as pub:
        for first in (0, 100):
            with rm.Recorder(path, "t", resume=False) as recorder:
                pub.send(b"%d" % first)
                until(lambda recorder=recorder: recorder.status().messages == 1)
            pub.send(b"nobody sees this")
    assert [m.data for m in rm.Recording(path)] == [b"0", b"100"]
    assert rm.Recording(path).gaps() == []


# Those of retention are tested with the writer, those of incidents with the flight recorder.
CASES = [label for label in _crash.RECORDER if not label.startswith(("retain", "incident"))]


@pytest.mark.parametrize("label", CASES)
def test_killed_at(tmp_path: Path, label: str, child: Callable[..., Child]) -> None:
    """Killed at each labelled point while it records live topics: reliable's writers go on, and with what a second
    recorder finds, every message is there or counted, and none twice."""
    path = tmp_path / "r"
    with (
        rm.Publisher("kept", contract="reliable", capacity="1MiB") as kept,
        rm.Publisher("lossy", capacity=4096) as lossy,
    ):
        dying = child(RECORD, path, "kept,lossy", env={"RINGMAIN_CRASH": label}, popen=forked.Popen)
        with contextlib.suppress(AssertionError):  # some die before they are ready
            dying.line()
        sent = 0
        while dying.process.poll() is None and sent < 200_000:
            for publisher in (kept, lossy):
                publisher.send(b"%d" % sent, timeout=PATIENCE_S)
            sent += 1
        if dying.process.poll() is None:
            dying.tell("stop")
        assert dying.process.wait(PATIENCE_S) == -signal.SIGKILL, (
            f"the recorder never came to {label}: {dying.errors()}"
        )
        for publisher in (kept, lossy):
            publisher.send(b"%d" % sent, timeout=PATIENCE_S)
        had = len(rm.Recording(path)) if (path / "meta.json").exists() else 0
        heir = child(RECORD, path, "kept,lossy", popen=forked.Popen)
        heir.line()
        for publisher in (kept, lossy):
            publisher.send(b"%d" % (sent + 1), timeout=PATIENCE_S)
        heir.tell("2")
        heir.line()
        heir.tell("stop")
        heir.finish()
    recording = rm.Recording(path)
    assert recording.verify().ok
    assert len(recording) >= had + 2
    for topic in ("kept", "lossy"):
        seqs = [m.seq for m in recording.messages(topics=topic)]
        assert seqs == sorted(set(seqs)), "in order, and nothing twice"
        assert seqs[-1] == sent + 1
        lost = sum(m.lost for m in recording.messages(topics=topic))
        assert len(seqs) + lost == sent + 2 - (seqs[0] - next(recording.messages(topics=topic)).lost)
    assert not list(path.glob("*.arrows"))


def test_killed_at_random_under_load(tmp_path: Path, child: Callable[..., Child], seed: int) -> None:
    """Killed four times while a publisher never stops; each heir takes over, and the account is exact."""
    chance, path, stop = random.Random(seed), tmp_path / "r", threading.Event()
    with rm.Publisher("t", contract="reliable", capacity="1MiB") as pub:

        def publish() -> int:
            sent = 0
            while not stop.is_set() or sent < 1000:
                pub.send(b"%d" % sent, timeout=PATIENCE_S)
                sent += 1
            return sent

        counted: list[int] = []
        thread = threading.Thread(target=lambda: counted.append(publish()), daemon=True)
        first = child(RECORD, path, "t", popen=forked.Popen)
        first.line()
        thread.start()
        for life in range(4):
            recorder = first if life == 0 else child(RECORD, path, "t", popen=forked.Popen)
            if life:
                recorder.line()
            recorder.tell(str(chance.randrange(1, 20_000)))
            recorder.line()
            recorder.kill()
        heir = child(RECORD, path, "t", popen=forked.Popen)
        heir.line()
        stop.set()
        thread.join(PATIENCE_S)
        heir.tell("stop")
        heir.finish()
    assert rm.Recording(path).verify().ok
    assert_exact(path, "t", counted[0])


# ------------------------------------------------------------------------------------------------- trouble


def test_publishers_go_on_when_the_recording_cannot(tmp_path: Path, until: Until) -> None:
    path = tmp_path / "r"
    with rm.Publisher("t", contract="reliable", capacity=4096) as pub:
        recorder = rm.Recorder(path, "t", flush_interval_s=0.01).start()
        pub.send(b"0")
        until(lambda: len(rm.Recording(path)) == 1)
        os.rename(path, tmp_path / "gone")
        sent = 1
        while recorder.error is None:
            pub.send(b"%d" % sent, timeout=PATIENCE_S)
            sent += 1
        for _ in range(1000):
            pub.send(b"after", timeout=PATIENCE_S)
        assert rm.info("t").readers == []
        with pytest.raises(RecordingError, match="Recording has stopped"):
            recorder.close()
        assert recorder.status().state == "failed"
    assert numbers(tmp_path / "gone")[0] == 0


def test_two_recorders_on_one_directory(tmp_path: Path) -> None:
    with rm.Recorder(tmp_path / "r", "t"):
        with pytest.raises(RecorderBusy):
            rm.Recorder(tmp_path / "r", "t").run()


def test_a_topic_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path, runtime_dir: Path, until: Until) -> None:
    (runtime_dir / "bad.ring").write_bytes(b"this is not a ring" * 1000)
    try:
        with rm.Publisher("good") as pub, rm.Recorder(tmp_path / "r", "*") as recorder:
            pub.send(b"1")
            until(lambda: recorder.status().messages == 1)
            (bad, good) = recorder.status().topics
            assert bad.topic == "bad"
            assert bad.problem
            assert not good.problem
            with pytest.raises(rm.RingmainError):
                rm.Recorder(tmp_path / "named", ["bad"]).run()
    finally:
        (runtime_dir / "bad.ring").unlink()


def test_damaged_leftovers_are_told(tmp_path: Path, child: Callable[..., Child], until: Until) -> None:
    path = tmp_path / "r"
    with rm.Publisher("t") as pub:
        dying = child(RECORD, path, "t", popen=forked.Popen)
        dying.line()
        pub.send_many([b"%d" % i for i in range(500)])
        dying.tell("500")
        dying.line()
        until(lambda: len(rm.Recording(path)) == 500)
        dying.kill()
        stream = path / "000000000.arrows"
        data = bytearray(stream.read_bytes())
        data[len(data) // 2] ^= 1
        stream.write_bytes(data)
        with rm.Recorder(path, "t") as recorder:
            until(lambda: recorder.status().damaged == [0])
    assert stream.exists(), "left as it is, for repair()"


def test_bad_arguments_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    for options in ({"topics": []}, {"topics": "not a name"}, {"messages": 0}, {"duration_s": -1}):
        with pytest.raises(ValueError):
            rm.Recorder(tmp_path / "r", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "r").exists()
    recorder = rm.Recorder(tmp_path / "r", "t", messages=1, duration_s=0.001)
    recorder.run()
    with pytest.raises(ValueError, match="make a new one"):
        recorder.run()


def test_importing_ringmain_does_not_import_pyarrow(child: Callable[..., Child]) -> None:
    process = child("say('pyarrow' in sys.modules); rm.Recorder; say('pyarrow' in sys.modules, 'Recorder' in dir(rm))")
    assert process.finish() == ["False", "True True"]


def test_a_work_topic_is_recorded_whole_and_its_workers_miss_nothing(tmp_path: Path, until: Until) -> None:
    """A recorder observes: it takes no message from a worker, and holds up no writer."""
    with rm.Publisher("jobs", contract="work") as pub, rm.Subscriber("jobs") as worker:
        with rm.Recorder(tmp_path / "r", ["jobs"], fsync="never", flush_interval_s=0.01) as recorder:
            until(lambda: any(reader.role == "observer" for reader in rm.info("jobs").readers))
            for i in range(20):
                pub.send(b"%d" % i)
            until(lambda: recorder.status().messages == 20)
            worker.reject(worker.recv(timeout=PATIENCE_S))
            assert sorted(int(task) for task in worker.recv_many(100)) == list(range(20))
            assert rm.info("jobs").waiting == 0
    assert numbers(tmp_path / "r", "jobs") == list(range(20))
    assert_exact(tmp_path / "r", "jobs", 20)
