"""Large messages, which on `reliable` are written from where they lie in the ring: the recording has every byte,
whatever their sizes, however the ring wraps and whatever comes in between."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import ringmain as rm
from ringmain.errors import RecordingError
from ringmain.recording._record import recorder as recorder_module
from ringmain.recording._record import tap as tap_module
from ringmain.recording._record.tap import Tap
from tests import contracts
from tests.conftest import PATIENCE_S, Child

Until = Callable[[Callable[[], object]], None]


@pytest.mark.parametrize("contract", contracts.TO_ALL)
def test_sizes_of_all_kinds_come_back(
    tmp_path: Path, until: Until, seed: int, contract: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of large and small ones in turn, so that the way of taking them changes; the limit on what is taken at once
    leaves some over for the next time."""
    monkeypatch.setattr(recorder_module, "_MOST_BYTES", 500_000)
    chance = random.Random(seed)
    sent = []
    with rm.Publisher("t", contract=contract, capacity="4MiB") as pub:
        with rm.Recorder(tmp_path / "r", "t", fsync="never", flush_interval_s=0) as recorder:
            for run in range(12):
                large = run % 3 != 2
                for _ in range(chance.randrange(1, 9)):
                    data = chance.randbytes(chance.randrange(65_536, 400_000) if large else chance.randrange(0, 2_000))
                    pub.send(data, kind=f"k{run}", timeout=PATIENCE_S)
                    sent.append(data)
                    if contract != "reliable":
                        until(lambda: recorder.status().messages == len(sent))
            until(lambda: recorder.status().messages == len(sent))
    messages = list(rm.Recording(tmp_path / "r"))
    assert [m.data for m in messages] == sent
    assert [m.seq for m in messages] == list(range(len(sent)))
    assert rm.Recording(tmp_path / "r").verify().ok


def test_they_are_borrowed_on_reliable_and_copied_where_a_writer_must_not_wait(tmp_path: Path) -> None:
    for contract, observe, borrowed in (("reliable", False, True), ("reliable", True, False), ("bus", False, False)):
        with rm.Publisher("t", contract=contract, capacity="4MiB") as pub:
            tap = Tap("t", start="oldest", observe=observe, name="tap")
            for number in range(3):
                pub.send(os.urandom(100_000))
                taken = tap.take(100, 1 << 20)
                assert taken is not None
                tap.begun = taken.epoch
                assert bool(taken.in_place) == (borrowed and number > 0), (contract, observe, number)
                taken.release()
            tap.close()


def test_what_does_not_fit_into_a_batch_is_recorded_without_waiting_for_more(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that was borrowed and left over for the next batch is nothing that the topic would tell of again."""
    monkeypatch.setattr(tap_module, "MAX_PAYLOAD_BYTES", 250_000)
    with rm.Publisher("t", contract="reliable", capacity="8MiB") as pub:
        with rm.Recorder(tmp_path / "r", "t", fsync="never") as recorder:
            for total in range(4, 40, 3):
                for _ in range(total - recorder.status().messages):
                    pub.send(bytes(100_000), timeout=PATIENCE_S)
                until(lambda total=total: recorder.status().messages == total)
                assert recorder.status().topics[0].lag_messages == 0
    assert [m.seq for m in rm.Recording(tmp_path / "r")] == list(range(37))


def test_what_was_borrowed_and_left_over_is_not_forgotten_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tap_module, "MAX_PAYLOAD_BYTES", 250_000)
    with rm.Publisher("t", contract="reliable", capacity="8MiB") as pub:
        recorder = rm.Recorder(tmp_path / "r", "t", fsync="never").start()
        for _ in range(20):
            pub.send(bytes(100_000), timeout=PATIENCE_S)
        recorder.close()
    assert [m.seq for m in rm.Recording(tmp_path / "r")] == list(range(20))


def test_stopping_by_itself_while_messages_are_being_written_from_the_ring(tmp_path: Path) -> None:
    with rm.Publisher("t", contract="reliable", capacity="16MiB") as pub:
        recorder = rm.Recorder(tmp_path / "r", "t", fsync="never", messages=30).start()
        for _ in range(40):
            pub.send(bytes(1_000_000), timeout=PATIENCE_S)
        recorder.close()
        assert rm.info("t").readers == []
    assert [m.seq for m in rm.Recording(tmp_path / "r")] == list(range(30))


def test_a_life_that_ends_while_messages_are_borrowed(tmp_path: Path, until: Until) -> None:
    with rm.Recorder(tmp_path / "r", "t*", fsync="never") as recorder:
        for life in range(4):
            with rm.Publisher("t", contract="reliable", capacity=(1 << 20) << life) as pub:
                for number in range(6):
                    pub.send(bytes([life, number]) * 50_000, timeout=PATIENCE_S)
                until(lambda life=life: recorder.status().messages == 6 * (life + 1))
    assert [(m.data[0], m.data[1]) for m in rm.Recording(tmp_path / "r")] == [
        (life, number) for life in range(4) for number in range(6)
    ]


def test_writers_go_on_when_a_borrowed_message_cannot_be_written(tmp_path: Path, until: Until) -> None:
    path = tmp_path / "r"
    with rm.Publisher("t", contract="reliable", capacity="1MiB") as pub:
        recorder = rm.Recorder(path, "t", fsync="never", flush_interval_s=0.01).start()
        for _ in range(3):
            pub.send(bytes(100_000), timeout=PATIENCE_S)
        until(lambda: len(rm.Recording(path)) == 3)
        os.rename(path, tmp_path / "gone")
        while recorder.error is None:
            pub.send(bytes(100_000), timeout=PATIENCE_S)
        for _ in range(50):
            pub.send(bytes(100_000), timeout=PATIENCE_S)
        assert rm.info("t").readers == []
        with pytest.raises(RecordingError, match="Recording has stopped"):
            recorder.close()
    assert rm.Recording(tmp_path / "gone").verify().ok


@pytest.mark.parametrize("label", ["record: batch half written#4", "record: batch written, caller not told#3"])
def test_killed_with_messages_borrowed(tmp_path: Path, child: Callable[..., Child], label: str) -> None:
    """With half of a borrowed message written, or all of it and nobody told: the writer goes on, and with what the next
    recorder finds in the ring every message is there once, or counted."""
    script = """
    with rm.Recorder(sys.argv[1], "t", fsync="never", flush_interval_s=0.01):
        say("ready"); hear()
    """
    path = tmp_path / "r"
    with rm.Publisher("t", contract="reliable", capacity="2MiB") as pub:
        dying = child(script, path, env={"RINGMAIN_CRASH": label})
        dying.line()
        sent = 0
        while dying.process.poll() is None and sent < 5000:
            pub.send(b"%d " % sent + bytes(100_000), timeout=PATIENCE_S)
            sent += 1
        assert dying.process.wait(PATIENCE_S) == -signal.SIGKILL
        with rm.Recorder(path, "t", fsync="never"):
            pub.send(b"%d " % sent, timeout=PATIENCE_S)
    assert rm.Recording(path).verify().ok
    seen = -1
    for message in rm.Recording(path):
        assert message.seq - seen - 1 == message.lost
        assert int(message.data.split(b" ")[0]) == message.seq
        seen = message.seq
    assert seen == sent
