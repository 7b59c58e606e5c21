"""How far recordings are read: the ledger has what a batch changed, `ops/recordings` has the state of all."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from ringmain.lake import Lake, _positions
from ringmain.lake._ledger import Ledger
from ringmain.lake._positions import GONE_DAYS, POSITIONS, sources_of
from ringmain.pipeline import Pipeline
from tests.spark.recordings import START_NS, rows, writer

APART_NS = 10**12


def make(path: Path, number: int, first: int = 0) -> None:
    made = writer(path / f"r{number:03}")
    made.append("imu", 1 + number, rows(first, 4, start_ns=START_NS + number * APART_NS))
    made.close()


def run(recordings: Path, lake: Path, **options: Any) -> int:
    return Pipeline().run(recordings, lake, engine="local", progress=lambda line: None, **options).rows_in


@pytest.mark.parametrize("whole_rows", [0, 2000])
def test_a_row_of_the_ledger_has_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole_rows: int) -> None:
    """However many recordings there are; all of them are known to a new process, from one file or from two."""
    monkeypatch.setattr(_positions, "_WHOLE_ROWS", whole_rows)
    for number in range(20):
        make(tmp_path / "recs", number)
    assert run(tmp_path / "recs", tmp_path / "lake") == 80
    for number in range(20, 30):
        make(tmp_path / "recs", number)
        assert run(tmp_path / "recs", tmp_path / "lake") == 4
        lake = Lake(str(tmp_path / "lake"))
        assert [one.recording for one in Ledger(lake).batches()[-1].recordings] == [f"r{number:03}"]
        assert len(lake.files(POSITIONS)) <= (1 if whole_rows else 2)
        assert {one.recording for one in sources_of(lake)} == {f"r{n:03}" for n in range(number + 1)}
    for _ in lake.maintain():
        pass
    assert run(tmp_path / "recs", tmp_path / "lake") == 0
    assert sum(1 for _ in lake.bronze()) > 0
    assert lake.bronze().read_all().num_rows == 120


def test_a_run_that_did_not_end_is_gone_on_with(tmp_path: Path) -> None:
    """Its positions are in the ledger alone."""

    class Stop(Exception):
        pass

    def until(summary: Any) -> bool:
        make(tmp_path / "recs", summary.batches)
        if summary.batches == 5:
            raise Stop
        return False

    make(tmp_path / "recs", 0)
    with pytest.raises(Stop):
        run(tmp_path / "recs", tmp_path / "lake", follow=True, interval_s=0, until=until)
    lake = Lake(str(tmp_path / "lake"))
    assert lake.schema(POSITIONS) is None
    assert len(sources_of(lake)) == 5
    assert run(tmp_path / "recs", tmp_path / "lake") == 4
    assert lake.to_arrow("silver/imu").num_rows == lake.to_arrow(POSITIONS).num_rows * 4 == 24


def test_recordings_that_are_deleted_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some weeks: until then one that comes back is known again. Those of other places are not asked for."""
    for number in range(3):
        make(tmp_path / "recs", number)
    make(tmp_path / "other", 8)
    assert run(tmp_path / "recs", tmp_path / "lake") + run(tmp_path / "other", tmp_path / "lake") == 16
    shutil.move(tmp_path / "recs" / "r001", tmp_path / "away")
    make(tmp_path / "recs", 3)
    assert run(tmp_path / "recs", tmp_path / "lake") == 4
    known = {one.recording: one.gone_us is not None for one in sources_of(Lake(str(tmp_path / "lake")))}
    assert known == {"r000": False, "r001": True, "r002": False, "r003": False, "r008": False}
    shutil.copytree(tmp_path / "away", tmp_path / "recs" / "r001", copy_function=shutil.copy2)
    assert run(tmp_path / "recs", tmp_path / "lake") == 0
    shutil.rmtree(tmp_path / "recs" / "r001")
    make(tmp_path / "recs", 4)
    assert run(tmp_path / "recs", tmp_path / "lake") == 4
    later = time.time() + (GONE_DAYS + 1) * 86_400
    monkeypatch.setattr(_positions.time, "time", lambda: later)
    make(tmp_path / "recs", 5)
    assert run(tmp_path / "recs", tmp_path / "lake") == 4
    assert "r001" not in {one.recording for one in sources_of(Lake(str(tmp_path / "lake")))}
