"""`ringmain demo --fast`: the robot runs, is lapped, loses a process, is recorded; and leaves nothing behind."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from ringmain._demo import camera
from ringmain._demo.messages import TOPICS
from ringmain.recording import Recording


def demo_leftovers() -> set[Path]:
    return set(Path("/dev/shm").glob("ringmain-demo-*"))


def test_the_bus_part(ringmain, tmp_path):
    before = demo_leftovers()
    ended = ringmain("demo", "--fast", "--no-spark", "--out", str(tmp_path / "demo"))
    assert ended.code == 0, ended.err
    for words in (
        "without a copy: 4 buffers",
        "it was lapped and lost",
        "killed with SIGKILL: control noticed",
        "replaced it on",
        "robot/imu",
        "skipped, by --no-spark: Spark's tables",
    ):
        assert words in ended.out
    recording = Recording(tmp_path / "demo/recording")
    assert set(recording.topics()) == {*TOPICS, "ringmain/readers"}
    targets = [message.value for message in recording.messages(topics="robot/target")]
    pictures = [message.value for message in recording.messages(topics="robot/camera")]
    assert {picture.array.shape for picture in pictures} == {(camera.HEIGHT, camera.WIDTH, 3)}, "recorded as frames"
    assert all((picture.array[:, :, 0] > 200).any() for picture in pictures[:5]), "with the ball in them"
    assert any(target.seen for target in targets), "vision saw the ball in the camera's frames"
    frames = [target.frame for target in targets]
    assert frames == sorted(frames)
    assert ended.out.index("what was recorded:") < ended.out.index("TOPIC  "), "it ends with a table"
    assert len([life for life in recording.lives() if life.topic == "robot/gps"]) >= 1
    alive = [message.value.gps_alive for message in recording.messages(topics="robot/command")]
    first = alive.index(True)
    assert False in alive[first:], "the GPS was seen to die"
    assert alive[-1] is True, "and to come back"
    losses = recording.to_arrow("ringmain/readers", decode=True).to_pylist()
    assert max(row["reader_lost"] for row in losses if row["reader"] == "dashboard") > 0, "also of live readers"
    assert demo_leftovers() - before == set()
    assert ringmain("demo", "--fast", "--out", str(tmp_path / "demo")).code == 1, "an old recording is not added to"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here")
def test_progress_is_shown_and_written_over(terminal, tmp_path):
    command = (
        f"{shlex.quote(sys.executable)} -m ringmain demo --fast --no-spark --out {tmp_path}/demo; echo ended $?; cat"
    )
    screen = terminal(command, 150, 40)
    screen.until("━━", "driving")
    screen.until("what was recorded:", "robot/imu", "ended 0")
    assert "━" not in screen.text()


@pytest.mark.spark
def test_with_spark(ringmain, tmp_path):
    """The whole story: through the pipeline, every row accounted for, to a report at the path that is printed."""
    pytest.importorskip("pyspark")
    ended = ringmain("demo", "--fast", "--out", str(tmp_path / "demo"), patience_s=280)
    assert ended.code == 0, ended.err
    recorded = sum(topic.rows for topic in Recording(tmp_path / "demo/recording").topics().values())
    assert f"{recorded:,} rows in = {recorded:,} out" in ended.out
    assert re.search(r"Spark 4\.\S+ started in \d+\.\d s", ended.out)
    assert "by Spark 4." in ended.out
    asked = ended.out[ended.out.index("Spark SQL: select") :]
    assert re.search(r"^TOPIC +MESSAGES +LOST +WORST_P99_MS$", asked, re.MULTILINE)
    assert re.search(r"^robot/imu +\d+", asked, re.MULTILINE)
    last = ended.out.splitlines()[-1].split()
    assert last == ["report", (tmp_path / "demo/report.html").as_uri()]
    assert "robot/imu" in (tmp_path / "demo/report.html").read_text()
