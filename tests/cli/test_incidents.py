"""Every command that reads a recording takes an incident, by a part of its id; and says what is wrong with one."""

from __future__ import annotations

import json
import signal
import time

import pytest
from mcap.reader import make_reader

import ringmain as rm
from ringmain.recording import Recording
from tests.cli.conftest import PATIENCE_S, Imu


@pytest.fixture
def flight(tmp_path, until):
    """Two incidents; the second begins with two messages that were latched before it."""
    path = tmp_path / "flight"
    options = {"fsync": "never", "flush_interval_s": 0.01, "before_s": 1e-6, "after_s": 0.2}
    with (
        rm.Publisher("robot/imu", type=Imu) as imu,
        rm.Publisher("robot/mode", keep_last_per_kind=True) as mode,
        rm.Recorder(path, "*", **options) as recorder,
    ):
        for kind in ("map", "mode"):
            mode.send(kind.encode(), kind=kind)
        until(lambda: recorder.status().messages == 2)
        for count, name in enumerate(("first", "second"), 1):
            rm.trigger(path, f"the {name}", name=name)
            until(lambda count=count: recorder.status().incidents == count)
            imu.send(Imu(count, (0, 0, 1)))
            until(lambda: not recorder.status().incidents_open)
    return path


def test_each_command_takes_one(ringmain, flight, tmp_path):
    known = json.loads(ringmain("info", str(flight), "--incident", "second", "--json").out)
    assert (known["messages"], known["latched"], known["segments"]) == (3, 2, 1)
    text = ringmain("info", str(flight), "--incident", "second").out
    assert "messages  3, 0 lost, 2 latched before the window" in text
    assert "in 1 segment\n" in text
    query = 'select rm_payload, rm_latched from "robot/mode"'
    assert [row["rm_latched"] for row in json.loads(
        ringmain("query", str(flight), "--incident", "second", query, "--format", "json").out
    )] == [True, True]  # fmt: skip
    assert ringmain("export", str(flight), str(tmp_path / "x.mcap"), "--incident", "second").code == 0
    with open(tmp_path / "x.mcap", "rb") as file:
        assert len([*make_reader(file).iter_messages()]) == 3
    names = ("robot/imu=again/imu", "robot/mode=again/mode")
    with rm.Subscriber("again/mode", only_kinds={"map"}) as sub:
        played = ringmain("play", str(flight), "--incident", "second", "--map", *names, "--json")
        assert played.code == 0, played.err
        assert sub.recv(timeout=0) == b"map", "latched before the window"
    assert json.loads(played.out)["messages"] == 3


def test_a_flight_recorder_by_commands(ringmain, started, tmp_path, until):
    """Two triggers whose windows overlap: each incident is what a whole recording has of its window, here and in the
    store, which has nothing else; `info` and the metrics know them."""
    flight, store = tmp_path / "flight", tmp_path / "store"
    with rm.Publisher("imu", type=Imu, contract="reliable") as imu, rm.Recorder(tmp_path / "whole", "imu"):
        flying = started(
            "record", "imu", "-o", str(flight), "--keep", "10min", "--segment-size", "1kB", "--flush-interval", "0.01",
            "--trigger", "imu: time == 305", "--trigger-kind", "imu: pressed", "--before", "0.1", "--after", "0.2",
            "--sealed-uri", store.as_uri(), "--upload", "incidents",
        )  # fmt: skip
        imu.wait_for_readers(2, timeout=PATIENCE_S)
        for n in range(300):
            imu.send(Imu(n, (0, 0, 1)))
            time.sleep(0.001)
        imu.send_many(
            [Imu(n, (0, 0, 1)) for n in range(300, 320)], kinds=["pressed" if n == 310 else "" for n in range(300, 320)]
        )
        until(lambda: imu.send(Imu(-1, (0, 0, 1))) and len([*store.glob("incidents/*.json")]) == 2)
        metrics = json.loads(ringmain("metrics", "--once", "--json", "--recording", str(flight)).out)
        counted = [metrics[f"ringmain_recording_incidents{of}"][0]["value"] for of in ("", "_open")]
        flying.send_signal(signal.SIGINT)
        assert (flying.wait(PATIENCE_S), counted) == (0, [2, 0])
    assert len(json.loads(ringmain("info", str(flight), "--json").out)["incidents"]) == 2
    first, second = Recording(flight).incidents()
    assert first.start_ns <= second.start_ns < first.end_ns <= second.end_ns
    for one in (first, second):
        of_all = Recording(tmp_path / "whole").messages(since=one.start_ns, until=one.end_ns)
        rows = [(m.seq, m.time_ns, m.kind, m.data) for m in of_all]
        assert {305, 310} <= {seq for seq, *_ in rows}
        for where in (flight, store.as_uri()):
            assert [(m.seq, m.time_ns, m.kind, m.data) for m in Recording(where, incident=one.id)] == rows
    pinned = {*range(*first.segments), *range(*second.segments)}
    assert len([*store.glob("*.parquet")]) == len(pinned) < len(Recording(flight).segments())


def test_one_that_is_not_there_or_not_the_only_one(ringmain, flight):
    commands = (["info"], ["play"], ["export", "x.mcap"], ["query", "select 1"])
    for command, *rest in commands:
        ended = ringmain(command, str(flight), *rest, "--incident", "-")
        assert ended.code != 0
        assert "several incidents match '-'; there are" in ended.err, command
        ended = ringmain(command, str(flight), *rest, "--incident", "third")
        assert "there is no incident 'third'; there are" in ended.err, command
