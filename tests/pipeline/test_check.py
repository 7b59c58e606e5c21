"""`check()`: which rules a lake breaks. A typed topic loses messages, some do not decode, then it falls silent; another
is recorded before it is published. A day before, there were more messages."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ringmain._cli.main import main
from ringmain.errors import LakeError
from ringmain.lake import Lake, Rule, Rules, check
from ringmain.pipeline import Pipeline
from tests.spark.recordings import START_NS, Imu, imu, rows, schema_of, writer

DAY_NS = 86_400 * 10**9


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """imu 0..99 (10 s, 10 Hz) with 25 lost, then silence; gps for 30 s; a day before, imu at 20 Hz."""
    made = writer(tmp_path / "recs" / "robot")
    made.declare("imu", epoch=1, schema=schema_of(Imu))
    for first, lost in ((0, 0), (50, 25)):
        batch = rows(first, 50, encode=imu, step_ns=10**8, lost=lost)
        made.append("imu", 1, batch, record_time_ns=[START_NS + (first + n) * 10**8 + 10**6 for n in range(50)])
    made.append("imu", 1, rows(100, 2), record_time_ns=START_NS + 20 * 10**9)  # they do not decode
    made.append("gps", 2, rows(0, 30, step_ns=10**9), record_time_ns=[START_NS + n * 10**9 - 10**9 for n in range(30)])
    before = rows(0, 200, step_ns=5 * 10**7, start_ns=START_NS - DAY_NS, encode=imu)
    made.declare("imu", epoch=3, schema=schema_of(Imu))
    made.append("imu", 3, before, record_time_ns=START_NS - DAY_NS + 10**11)
    made.close()
    Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local")
    return tmp_path / "lake"


def found(lake: Path, *, last_s: float | None = 60, **limits: object) -> list[tuple[str, str, float | None]]:
    now = datetime.fromtimestamp(START_NS / 1e9, UTC) + timedelta(seconds=100)
    rules = Rules([Rule(**limits)], last_s)  # type: ignore[arg-type]
    return [(one.check, one.topic, one.value) for one in check(lake, rules, now=now)]


def test_each_limit(lake: Path) -> None:
    assert found(lake, topic="imu", max_loss=0.1) == [("max_loss", "imu", pytest.approx(25 / 127))]
    assert found(lake, topic="imu", max_loss=0.2) == []
    assert found(lake, topic="imu", max_silence_s=20) == []
    ((check_, topic, silent),) = found(lake, max_silence_s=15)
    assert (check_, topic) == ("max_silence_s", "imu")
    assert silent == pytest.approx(29 - 9.9, abs=0.2)
    assert [name for name, _, _ in found(lake, topic="imu", min_rate_hz=50, max_rate_hz=0.1)] == [
        "min_rate_hz", "max_rate_hz",
    ]  # fmt: skip
    assert found(lake, topic="gps", max_lag_s=60) == [("max_lag_s", "", pytest.approx(71))]
    assert found(lake, topic="gps", max_lag_s=80) == []
    assert found(lake, max_clock_skew_ms=10) == [("max_clock_skew_ms", "gps", pytest.approx(1000))]
    assert found(lake, topic="imu", max_quarantined=1) == [("max_quarantined", "imu", 2.0)]
    assert found(lake, rate_of_day_before=0.6) == [("rate_of_day_before", "imu", pytest.approx(102 / 200))]
    assert found(lake, rate_of_day_before=0.5) == []
    assert [name for name, _, _ in found(lake, max_late=0)] == ["max_late"]
    slow = found(lake, topic="imu", max_latency_p99_ms=0.5)
    assert slow == [("max_latency_p99_ms", "imu", pytest.approx(1, rel=0.01))]
    assert found(lake, max_damaged=0) == []


def test_absent_topics_and_other_hosts(lake: Path) -> None:
    assert found(lake, topic="lidar") == [("absent", "lidar", None)]
    assert found(lake, topic="lidar*") == []
    assert found(lake, topic="imu", host="elsewhere", max_loss=0) == [("absent", "imu", None)]


def test_fields(lake: Path) -> None:
    assert found(lake, topic="imu", field="x", min=-1, max=30) == [("max", "imu", 49.5)]
    assert found(lake, topic="imu", field="x", stuck=False, max_nulls=0, max_nans=0) == []
    assert found(lake, topic="imu", field="y", max=1) == [("absent", "imu", None)]


def test_the_command_exits_5(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('last_s = 60\n[[rule]]\nname = "losses"\ntopic = "imu"\nmax_loss = 0.1\n')
    assert main(["report", str(lake), "--check", str(rules)]) == 5
    printed = json.loads(capsys.readouterr().out)
    assert printed["ok"] is False
    assert (printed["problems"][0]["rule"], printed["problems"][0]["limit"]) == ("losses", 0.1)
    assert " lost 25 messages" in printed["problems"][0]["text"]
    rules.write_text("[[rule]]\nmax_loss = 1.0\n")
    assert main(["report", str(lake), "--check", str(rules)]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "problems": []}


def test_rules_are_read_strictly(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    for text, said in (
        ("[[rule]]\nmax_los = 1", "max_los"),
        ("[[rule]]\nmax_loss = 'much'", "Expected `float"),
        ("[[rule]]\nrate_of_day_before = 0.5", "needs last_s"),
        ("[[rule", "rules.toml"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=said):
            Rules.read(file)
    with pytest.raises(LakeError, match="run the pipeline first"):
        check(Lake(str(tmp_path / "none")), Rules([Rule()]))
