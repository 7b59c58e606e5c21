"""The commands that start the larger parts: bridge, bench, pipeline and report."""

from __future__ import annotations

import json
import signal

import numpy
import pytest

import ringmain as rm
from tests.cli.conftest import PATIENCE_S, Imu


def test_bridge_carries_messages(started, until):
    with rm.Publisher("a", sender="me") as pub, rm.Subscriber("b", start="oldest") as sub:
        process = started("bridge", "a", "b", "--json")
        until(lambda: rm.info("a").readers)
        pub.send(b"over")
        message = sub.recv_message(PATIENCE_S)
        assert (message.data, message.sender) == (b"over", "me")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert json.loads(out)["carried"] == 1


def test_bridge_refuses_what_is_no_end(ringmain):
    ended = ringmain("bridge", "a", "carrier-pigeon:b")
    assert ended.code == 2
    assert "zmq:topic" in ended.err


def test_bench_measures_every_size(ringmain):
    ended = ringmain("bench", "--seconds", "0.02", "--json")
    assert ended.code == 0, ended.err
    cells = json.loads(ended.out)
    assert [cell["size_bytes"] for cell in cells] == [32, 1024, 65536, 1 << 20]
    assert all(value > 0 for cell in cells for value in cell.values())


def test_pipeline_and_report(ringmain, tmp_path):
    """From a recording to tables and a page, by commands alone; without Spark."""
    pytest.importorskip("pyspark")
    with rm.Publisher("imu", type=Imu) as pub:
        for number in range(100):
            pub.send(Imu(number, (0, 0, 9.8)))
        assert ringmain("record", "-o", str(tmp_path / "drive"), "--oldest", "--messages", "100").code == 0
    ended = ringmain(
        "pipeline", "run", str(tmp_path / "drive"), "--lake", str(tmp_path / "lake"), "--json", "--engine", "local"
    )
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["rows_in"] == 100
    assert "without Spark" in json.loads(ended.out)["engine"]
    ended = ringmain("report", str(tmp_path / "lake"), "-o", str(tmp_path / "report.html"))
    assert ended.code == 0, ended.err
    assert "imu" in (tmp_path / "report.html").read_text()
    ended = ringmain("query", str(tmp_path / "lake"), "select count(*) as n from silver.imu", "--format", "json")
    assert (ended.code, json.loads(ended.out)) == (0, [{"n": 100}]), ended.err
    assert "silver/imu: rm_recorder, rm_topic, rm_epoch" in ringmain("query", str(tmp_path / "lake")).out
    ended = ringmain("query", str(tmp_path / "lake"), "select nothing from silver.imu")
    assert (ended.code, "nothing" in ended.err) == (1, True)
    ended = ringmain("query", str(tmp_path / "none"), "select 1")
    assert (ended.code, (tmp_path / "none").exists()) == (3, False)
    ended = ringmain("pipeline", "maintain", str(tmp_path / "lake"))
    assert "ops/batches: 0 files joined, 0 deleted" in ended.out
    assert ringmain("pipeline", "run", str(tmp_path / "drive")).code == 2
    run = ("pipeline", "run", str(tmp_path / "drive"), "--lake", str(tmp_path / "new"))
    assert ringmain(*run, "--engine", "local", "--master", "local[2]").code == 2
    for master in ("spark://127.0.0.1:1", "sc://127.0.0.1:1"):
        ended = ringmain(*run, "--master", master)
        assert (ended.code, ended.err.count("\n")) == (1, 1)
        assert f"no Spark answers at {master}" in ended.err
    ended = ringmain(*run, "--master", "nonsense", patience_s=250)
    assert (ended.code, "Spark does not start on nonsense: " in ended.err) == (1, True), ended.err
    assert not (tmp_path / "new").exists(), "nothing was begun"


def test_a_pipeline_that_follows_ends_on_ctrl_c(started, ringmain, tmp_path):
    """With what it has done so far, as a sum, and as well as if it had come to an end."""
    pytest.importorskip("pyspark")
    with rm.Publisher("imu", type=Imu) as pub:
        pub.send(Imu(1, (0, 0, 9.8)))
        assert ringmain("record", "-o", str(tmp_path / "drive"), "--oldest", "--messages", "1").code == 0
    process = started(
        "pipeline", "run", str(tmp_path / "drive"), "--lake", str(tmp_path / "lake"), "--follow", "--interval", "1",
        "--json", "--engine", "local",
    )  # fmt: skip
    said = iter(process.stderr.readline, "")
    assert any(line.startswith("batch 0: 1 rows") for line in said)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert json.loads(out)["rows_in"] == 1


def test_bridge_begins_with_what_comes_or_with_the_oldest(started, until):
    with rm.Publisher("a") as pub:
        pub.send(b"before")
        for start, carried in (((), [b"after"]), (("--start", "oldest"), [b"before", b"after", b"after"])):
            with rm.Subscriber(f"to{len(start)}") as sub:
                process = started("bridge", "a", sub.topic, *start)
                until(lambda: any(reader.alive for reader in rm.info("a").readers))
                pub.send(b"after")
                assert [sub.recv(timeout=PATIENCE_S) for _ in carried] == carried
                process.send_signal(signal.SIGINT)
                assert (
                    process.communicate(timeout=PATIENCE_S)[0]
                    == f"{len(carried)} messages, {5 * len(carried) + len(start) // 2} B, 0 dropped\n"
                )


def test_bridge_that_cannot_go_on_ends_with_one_sentence(started, until):
    with rm.FramePublisher("cam", 4):
        process = started("bridge", "cam", "far")
        # The target is made when the layout of the source was read, and not before.
        until(lambda: any(topic.name == "far" for topic in rm.topics()))
    with rm.FramePublisher("cam", 8) as pub:
        pub.send(numpy.zeros(8, "u1"))
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert [line for line in err.splitlines() if "layout" in line] == [
        "ringmain bridge: the frames of the source have another layout than frame topic 'far': start the bridge again"
    ]
