"""`list`, `info`, `clean`: what they say of real topics, to people and as JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import ringmain as rm
from tests.cli.conftest import Imu


def test_list_shows_every_topic(ringmain):
    with rm.Publisher("imu", type=Imu) as pub, rm.Subscriber("imu"), rm.Publisher("jobs", contract="pipe"):
        pub.send(Imu(1.0, (0, 0, 9.8)))
        lines = ringmain("list").out.splitlines()
        assert lines[0].split() == [
            "TOPIC", "CONTRACT", "TYPE", "WRITERS", "READERS", "MESSAGES", "USED", "CAPACITY", "LOST"
        ]  # fmt: skip
        assert lines[1].split()[:6] == ["imu", "broadcast", "Imu", "1", "1", "1"]
        assert lines[2].split()[:6] == ["jobs", "pipe", "bytes", "1", "0", "0"]


def test_list_as_json_and_as_names(ringmain):
    with rm.Publisher("camera/left"), rm.Publisher("camera/right"), rm.Publisher("imu"):
        assert ringmain("list", "--names").out.split() == ["camera/left", "camera/right", "imu"]
        listed = json.loads(ringmain("list", "camera/*", "--json").out)
        assert [topic["name"] for topic in listed] == ["camera/left", "camera/right"]
        assert listed[0]["writers"][0]["alive"] is True


def test_list_without_topics_is_not_an_error(ringmain):
    ended = ringmain("list")
    assert (ended.code, ended.out, ended.err) == (0, "", "no topics\n")
    assert json.loads(ringmain("list", "--json").out) == []


def test_list_names_what_it_cannot_read(ringmain, runtime_dir: Path):
    with rm.Publisher("good"):
        (runtime_dir / "junk.ring").write_bytes(b"not a topic")
        ended = ringmain("list", "--names")
        assert ended.out.split() == ["good"]
        assert "junk" in ended.err
        assert "too short" in ended.err
        (runtime_dir / "junk.ring").unlink()


def test_info_shows_participants_and_schema(ringmain):
    with rm.Publisher("imu", type=Imu, sender="left") as pub, rm.Subscriber("imu", name="slow"):
        pub.send(Imu(1.0, (0, 0, 9.8)))
        out = ringmain("info", "imu").out
        assert "imu: broadcast, Imu" in out
        assert any(
            line.split()[:3] == ["left", "writer", str(rm.info("imu").writers[0].pid)] for line in out.splitlines()
        )
        slow = next(line for line in out.splitlines() if line.startswith("slow"))
        assert "1 (" in slow, "one message behind"
        assert "acceleration: tuple[float, float, float]" in out
        told = json.loads(ringmain("info", "imu", "--json").out)
        assert told["readers"][0]["lag_messages"] == 1
        assert told["schema"]["type_name"] == "Imu"


def test_streams_of_frames(ringmain):
    """What the frames are, what they take, who holds them; and as much of it in JSON."""
    layout = rm.FrameLayout.of_image("nv12", 64, 48)
    with rm.FramePublisher("camera", layout=layout) as pub, rm.FrameSubscriber("camera", name="show") as sub:
        with pub.frame(0):
            pass
        frame = sub.recv(0)
        line = ringmain("list").out.splitlines()[1]
        assert line.split("  ")[2] == "frames nv12 64x48"
        assert "25%" in line, "one of four buffers is held"
        assert "18.0 KiB" in line, "four frames of 64 x 48 x 1.5 bytes"
        out = ringmain("info", "camera").out
        assert "nv12 64x48, 4.5 KiB each" in out
        assert "held by show (" in out
        (told,) = json.loads(ringmain("list", "--json").out)
        assert told["frames"]["planes"] == ["y", "uv"]
        assert told["frames"]["held"] == {f"show ({os.getpid()})": 1}
        frame.release()
    with rm.Publisher("imu"):
        assert json.loads(ringmain("info", "imu", "--json").out)["frames"] is None


def test_text_of_others_cannot_move_the_cursor(ringmain):
    """A participant's name comes from another process: it is shown, not obeyed."""
    with rm.Publisher("t", sender="evil\x1b[2J") as pub:
        pub.send(b"x")
        shown = ringmain("info", "t").out + ringmain("echo", "t", "--oldest", "--once").out
        assert shown.count("evil") == 2
        assert "\x1b" not in shown


def test_clean_takes_only_what_the_dead_left(ringmain, child):
    dying = child("pub = rm.Publisher('left/over'); say('ready'); hear()")
    dying.line()
    with rm.Publisher("alive"):
        dying.kill()
        ended = ringmain("clean")
        assert ended.out == "removed left/over\n"
        assert [topic.name for topic in rm.topics()] == ["alive"]
        assert ringmain("clean").err == "nothing to clean\n"


def test_clean_by_name_spares_the_living_unless_forced(ringmain):
    with rm.Publisher("busy"):
        ended = ringmain("clean", "busy")
        assert ended.code == 1
        assert "busy" in ended.err
        assert json.loads(ringmain("clean", "busy", "--force", "--json").out) == ["busy"]
        assert rm.topics() == []


@pytest.mark.parametrize(
    "command",
    [("info",), ("hz", "--count", "1"), ("bw", "--count", "1"), ("doctor",), ("clean",), ("clean", "--force")],
)
def test_a_topic_of_a_similar_name_is_suggested(ringmain, command):
    with rm.Publisher("camera/front"):
        ended = ringmain(command[0], "camera/frnt", *command[1:])
        assert ended.code == 3
        assert "there is no topic 'camera/frnt'" in ended.err
        assert "; did you mean 'camera/front'?" in ended.err
        assert "did you mean" not in ringmain(command[0], "imu", *command[1:]).err
