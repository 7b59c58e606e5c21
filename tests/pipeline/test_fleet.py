"""Several robots in one lake: a robot's rows are joined with its own, rules look at each robot, and bags in simulated
time, which all begin at 0, stay apart."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ringmain.lake import Lake, Rule, Rules, check
from ringmain.pipeline import Align, Pipeline
from ringmain.recording import import_bag
from tests.spark.recordings import START_NS, rows, schema_of, writer

SECOND = 10**9


class Imu(msgspec.Struct):
    robot: int
    temp: float


Record = Callable[..., None]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    """`record(robot, topic, count, step_ns)`: a recording of one robot below `recs`."""

    def make(robot: int, topic: str, count: int, step_ns: int, temp: float = 20.0, bad: int = 0) -> None:
        def encode(n: int) -> bytes:
            return b"\xc1" if n < bad else msgspec.msgpack.encode(Imu(robot, temp))

        with monkeypatch.context() as patched:
            patched.setattr(socket, "gethostname", lambda: f"robot-{robot}")
            made = writer(tmp_path / "recs" / f"{robot}-{topic}")
            epoch = START_NS - 100 + robot
            made.declare(topic, epoch=epoch, schema=schema_of(Imu))
            made.append(topic, epoch, rows(0, count, encode=encode, step_ns=step_ns, start_ns=START_NS + robot * 1000))
            made.close()

    return make


@pytest.mark.timeout(300)
@pytest.mark.each_run
def test_a_robot_is_aligned_with_itself(spark: Any, record: Record, tmp_path: Path) -> None:
    for robot in range(3):
        record(robot, "cam", 10, SECOND // 10)
        record(robot, "imu", 100, SECOND // 100)
    pipeline = Pipeline(aligns=[Align("cam", ("imu",), tolerance_s=0.1)])
    pipeline.run(tmp_path / "recs", tmp_path / "lake", spark=spark)
    found = Lake(str(tmp_path / "lake")).to_arrow("gold/aligned_cam").to_pylist()
    assert len(found) == 30
    assert all(row["imu"]["robot"] == row["robot"] for row in found)


def test_rules_look_at_each_robot(record: Record, tmp_path: Path) -> None:
    """Robot 1 dies after a second, robot 2 is hot and sends what does not decode."""
    record(0, "imu", 300, SECOND // 10)
    record(1, "imu", 10, SECOND // 10)
    record(2, "imu", 300, SECOND // 10, temp=90.0, bad=3)
    lake = tmp_path / "lake"
    Pipeline().run(tmp_path / "recs", lake, engine="local")

    def found(last_s: float | None = None, **limits: Any) -> list[tuple[str, str]]:
        return [(one.check, one.host) for one in check(lake, Rules([Rule(topic="imu", **limits)], last_s))]

    assert found(min_rate_hz=9, max_silence_s=5) == [("min_rate_hz", "robot-1"), ("max_silence_s", "robot-1")]
    assert found(last_s=5, min_rate_hz=9) == [("min_rate_hz", "robot-1")], "also if it had died before"
    assert found(max_rate_hz=11) == []
    assert found(max_rate_hz=11, per="fleet") == [("max_rate_hz", "")]
    assert found(max_silence_s=5, per="fleet") == []
    assert found(field="temp", max=50) == [("max", "robot-2")]
    assert found(field="temp", max=50, host="robot-0") == []
    assert found(max_quarantined=0) == [("max_quarantined", "robot-2")]
    assert found(max_quarantined=0, host="robot-[01]") == []
    (problem,) = check(lake, Rules([Rule(topic="imu", max_silence_s=5)]))
    assert problem.text.startswith("topic imu on robot-1 is silent since ")


def test_bags_in_simulated_time_stay_apart(tmp_path: Path) -> None:
    mcap = pytest.importorskip("mcap.writer")
    fields = {"robot": {"type": "integer"}, "n": {"type": "integer"}}

    def import_robot(robot: int, folder: str) -> None:
        bag = tmp_path / folder / "run.mcap"
        bag.parent.mkdir(exist_ok=True)
        with open(bag, "wb") as file:
            made = mcap.Writer(file)
            made.start()
            schema = json.dumps({"type": "object", "properties": fields}).encode()
            channel = made.register_channel("/imu", "json", made.register_schema("Imu", "jsonschema", schema))
            for n in range(100):
                data = json.dumps({"robot": robot, "n": n}).encode()
                made.add_message(channel, log_time=n * 10**7, publish_time=n * 10**7, data=data)
            made.finish()
        import_bag(bag, tmp_path / "recs" / folder)

    for robot in range(3):
        import_robot(robot, f"robot{robot}")
    summary = Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local")
    assert (summary.rows_out, summary.duplicates) == (300, 0)
    import_robot(0, "again")
    summary = Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local")
    assert (summary.rows_out, summary.duplicates) == (0, 100), "the same bag imported twice is known again"
