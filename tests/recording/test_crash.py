"""A recorder killed at every labelled point, and at random: what was flushed is there, once, in order.

A child process records and says after each flush how many messages are safe. SIGKILL ends it; then the
recording is read as it lies, continued by a new recorder, and read again. The labels are those of
docs/spec/recording.md.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ringmain import _crash
from ringmain.recording import Recording, RecordingWriter, list_segments
from ringmain.recording._format import Position
from ringmain.recording._segment.store import Store, read_retired
from ringmain.recording._upkeep.retention import missed_rows
from tests import forked, samples
from tests.recording.conftest import payload_of, ring_batch

ROOT = Path(__file__).parents[2]


def start(path: Path, batches: int, crash_at: str | None, keep: int | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, **({"RINGMAIN_CRASH": crash_at} if crash_at else {})}
    arguments = [str(path), str(batches), *([str(keep)] if keep is not None else [])]
    return forked.Popen(
        [sys.executable, "-m", "tests.recording.crashing", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )


def check(path: Path, safe: int) -> list[int]:
    """The recording as the dead left it: reads without damage, has what was safe, nothing twice, no wrong
    row."""
    recording = Recording(path)
    messages = list(recording)
    seqs = [m.seq for m in messages]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs))) if seqs else True
    deleted = missed_rows(read_retired(Store(path)), Position(0, 0))
    assert (seqs[-1] + 1 if seqs else deleted) >= safe
    assert all(m.data == payload_of(m.seq, 200) for m in messages)
    report = recording.verify()
    assert report.ok, str(report)
    return seqs


def check_after_death(path: Path, safe: int, *, from_start: bool = True) -> None:
    seqs = check(path, safe)
    if from_start and seqs:
        assert seqs[0] == 0
    positions = [m.position for m in Recording(path)]
    with RecordingWriter(path, fsync="never") as writer:
        assert all(writer.position > position for position in positions)
        writer.append("t", 1, ring_batch(seqs[-1] + 1 if seqs else 0, 10, size=200))
    after = Recording(path)
    assert [m.seq for m in after][: len(seqs)] == seqs
    assert [m.position for m in after][: len(seqs)] == positions, "a position must not change its meaning"
    assert len(after) == len(seqs) + 10
    assert all(ref.sealed for ref in list_segments(Store(path))), "what the dead left must be sealed by the next"
    assert not list(path.glob("*.tmp"))
    assert not list(path.glob("*.arrows"))


TIMES = {  # the passages at which the recorder dies
    "record: stream made, empty": (1, 3),
    "record: batch half written": (1, 2, 7),
    "record: batch written, caller not told": (1, 5),
    "seal: stream finished, not sealed": (1, 2),
    "seal: parquet half written": (1, 2),
    "seal: parquet written, not named": (1, 2),
    "seal: parquet named, stream kept": (1, 2),
    "meta: written, not named": (1, 2),
}
CASES = [f"{label}#{nth}" for label, times in TIMES.items() for nth in times]
RETAINING = "retain: segments counted, not deleted"
INCIDENTS = (  # where tests/recording/test_flight.py kills a flight recorder
    "incident: asked for, not written",
    "incident: written, its window not over",
    "incident: window over, not closed",
)


@pytest.mark.parametrize("label", CASES)
def test_killed_at(tmp_path: Path, label: str) -> None:
    path = tmp_path / "r"
    child = start(path, 12, label)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL, f"the recorder never came to {label}"
    safe = int(out.split()[-1]) if out.split() else 0
    if label == "meta: written, not named#1":
        assert not (path / "meta.json").exists(), "the first meta.json was being written"
        RecordingWriter(path).close()
    check_after_death(path, safe)


@pytest.mark.parametrize("label", [RETAINING, f"{RETAINING}#2"])
def test_killed_while_retaining(tmp_path: Path, label: str) -> None:
    """Deletion is counted before it happens: what is counted stays invisible, even though it is still
    there."""
    path = tmp_path / "r"
    child = start(path, 20, label, keep=1)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL, f"the recorder never came to {label}"
    left = [ref.number for ref in list_segments(Store(path))]
    assert any(int(p.stem) < left[0] for p in path.glob("*.parquet")), "counted, and not yet deleted"
    check_after_death(path, int(out.split()[-1]), from_start=False)
    assert min(int(p.stem) for p in path.glob("*.parquet")) == left[0]


def test_every_label_of_the_code_is_tested() -> None:
    assert (*TIMES, RETAINING, *INCIDENTS) == _crash.RECORDER
    source = "".join(path.read_text() for path in (ROOT / "src/ringmain/recording").rglob("*.py"))
    for label in _crash.RECORDER:
        assert f'"{label}"' in source


@pytest.mark.parametrize("seed", samples.some(range(6), 2))
def test_killed_at_random_under_load(tmp_path: Path, seed: int) -> None:
    """Killed after a random number of flushes, three times over on one directory. Replay: the seed is the
    number."""
    path, chance = tmp_path / "r", random.Random(seed)
    total = 0
    for _ in range(3):
        child = start(path, 1_000_000, None)
        assert child.stdout is not None
        safe = 0
        for _ in range(chance.randrange(1, 60)):
            safe = int(child.stdout.readline())
        child.kill()
        rest, _ = child.communicate(timeout=60)
        lines = [line for line in rest.split("\n")[:-1] if line]
        safe = int(lines[-1]) if lines else safe
        recording = Recording(path)
        lives = [m.seq for m in recording]
        assert recording.verify().ok
        assert len(lives) >= total + safe
        assert lives[total:] == list(range(len(lives) - total))
        total = len(lives)


def test_the_crash_setting_is_checked() -> None:
    for setting in (f"{RETAINING}#0", f"stop:{RETAINING}#x", f"{RETAINING}#-1"):
        with pytest.raises(ValueError, match="N counts from 1"):
            _crash.arm(setting)
    _crash.arm(None)


@pytest.mark.parametrize("setting", ["publish: claimed, not written#3", "stop:frame: buffer chosen", "elsewhere", ""])
def test_labels_of_other_components_are_ignored(setting: str) -> None:
    _crash.arm(setting)
    for label in _crash.POINTS:
        assert not _crash.is_next(label)
        _crash.point(label)


def test_stopped_instead_of_killed(tmp_path: Path) -> None:
    child = start(tmp_path / "r", 12, "stop:record: batch written, caller not told#2")
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert os.WSTOPSIG(status) == signal.SIGSTOP
    child.send_signal(signal.SIGCONT)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    check(tmp_path / "r", int(out.split()[-1]))
