"""`ringmain demo --fast`: the robot runs, is lapped, loses a process, is recorded; and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

from ringmain.demo.messages import TOPICS
from ringmain.recording import Recording


def demo_leftovers() -> set[Path]:
    return set(Path("/dev/shm").glob("ringmain-demo-*"))


def test_the_bus_part(ringmain, tmp_path):
    before = demo_leftovers()
    ended = ringmain("demo", "--fast", "--no-spark", "--out", str(tmp_path / "demo"))
    assert ended.code == 0, ended.err
    for words in (
        "in place: 4 buffers",
        "lapped, and told that it lost",
        "killed with -9: control noticed",
        "took its place",
        "robot/imu",
    ):
        assert words in ended.out
    recording = Recording(tmp_path / "demo/recording")
    assert set(recording.topics()) == set(TOPICS)
    targets = [message.value for message in recording.messages(topics="robot/target")]
    assert any(target.seen for target in targets), "vision saw the ball in the camera's frames"
    frames = [target.frame for target in targets]
    assert frames == sorted(frames)
    assert ended.out.index("what was recorded:") < ended.out.index("TOPIC  "), "it ends with a table"
    assert len([life for life in recording.lives() if life.topic == "robot/gps"]) >= 1
    alive = [message.value.gps_alive for message in recording.messages(topics="robot/command")]
    first = alive.index(True)
    assert False in alive[first:], "the GPS was seen to die"
    assert alive[-1] is True, "and to come back"
    assert demo_leftovers() - before == set()
    assert ringmain("demo", "--fast", "--out", str(tmp_path / "demo")).code == 1, "an old recording is not added to"
