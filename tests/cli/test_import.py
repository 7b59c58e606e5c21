"""`ringmain import`: every example on a bag of its kind, Ctrl-C, and what it says."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("rosbags", reason="the extra import is not installed")

from rosbags.rosbag2 import StoragePlugin

from ringmain._cli.commands import import_
from ringmain.recording import Recording
from tests.cli.conftest import Ended
from tests.recording.golden_lerobot import GOLDEN
from tests.recording.test_import import add, big_mcap, channel, write_mcap, write_ros1, write_ros2

Run = Callable[..., Ended]


@pytest.fixture(autouse=True)
def _in_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_example_runs(ringmain: Run) -> None:
    big_mcap(Path("drive.mcap"), 5)
    write_ros1(Path("old"))
    write_ros2(Path("rosbag2_2026_01_02"), StoragePlugin.MCAP)
    shutil.copytree(GOLDEN, "folded")
    for (_what, line), messages in zip(import_.EXAMPLES, (5, 30, 30, 40), strict=True):
        ended = ringmain(*shlex.split(line)[1:])
        assert (ended.code, ended.err) == (0, ""), line
        assert f"{messages} messages" in ended.out
        assert len(Recording("drive")) == messages
        shutil.rmtree("drive")


def test_it_says_what_became_of_each_topic(ringmain: Run) -> None:
    def fill(writer: object) -> None:
        add(writer, channel(writer, "/plain", ""), 0, b"x" * 10)
        add(writer, channel(writer, "/odd name", "cbor"), 0, b"x")
        schema = b'{"type":"object","properties":{"x":{"type":"integer"}}}'
        typed = channel(writer, "/typed", "json", schema, "T", "jsonschema")
        add(writer, typed, 0, b'{"x": 1}')
        add(writer, typed, 1, b'{"x": "y"}')

    write_mcap(Path("x.mcap"), fill)
    lines = ringmain("import", "x.mcap", "r").out.splitlines()
    assert lines[1].split(None, 4) == ["odd_name", "bytes", "1", "1", lines[1].split(None, 4)[4]]
    assert "as bytes: ringmain does not decode 'cbor'; was /odd name" in lines[1]
    assert lines[2].split() == ["plain", "bytes", "1", "10", "B"]
    assert "1 do not match the schema" in lines[3]
    known = json.loads(ringmain("import", "x.mcap", "again", "--json").out)
    assert (known["messages"], [topic["topic"] for topic in known["topics"]]) == (4, ["odd_name", "plain", "typed"])


def test_a_file_that_ends_early_is_said_on_stderr(ringmain: Run) -> None:
    path = big_mcap(Path("x.mcap"), 100)
    path.write_bytes(path.read_bytes()[:450_000])
    ended = ringmain("import", "x.mcap", "r")
    assert ended.code == 0
    assert "x.mcap: the file ends before its end mark" in ended.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_import_leaves_nothing(
    started: Callable[..., subprocess.Popen[str]], until: Callable[[Callable[[], object]], None], number: int
) -> None:
    big_mcap(Path("x.mcap"), 20_000)
    process = started("import", "x.mcap", "r")
    until(lambda: list(Path().glob("r.unfinished-*/*.arrows")))
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode in (130, 143), said
    assert [path.name for path in Path().iterdir()] == ["x.mcap"]


def test_an_error_is_one_sentence(ringmain: Run) -> None:
    assert ringmain("import", "none.mcap", "r").code == 3
    Path("r").mkdir()
    big_mcap(Path("x.mcap"), 1)
    ended = ringmain("import", "x.mcap", "r")
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "r exists" in ended.err
