"""`doctor`: what it says of this machine, and of topics that are really stuck, in every way a topic can be."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import resource
import shutil
import signal
import stat

import pytest

import ringmain as rm
from ringmain._cli import machine_checks, main
from ringmain._cli.exit_codes import Exit
from ringmain._cli.topic_checks import diagnose


def test_the_machine(ringmain):
    ended = ringmain("doctor", "--json")
    findings = {finding["what"]: finding for finding in json.loads(ended.out)}
    assert {"kernel", "futex_waitv", "OFD locks", "shared memory", "directory", "topics", "limits"} <= set(findings)
    bad = [finding for finding in findings.values() if finding["state"] == "bad"]
    assert (ended.code == 5) == bool(bad)
    assert all(finding["remedy"] for finding in bad)


def test_leftovers_are_named_with_what_to_do(ringmain, child):
    dying = child("pub = rm.Publisher('left/over'); say('ready'); hear()")
    dying.line()
    dying.kill()
    out = ringmain("doctor").out
    assert "no live participant in left/over" in out
    assert "-> ringmain clean" in out
    assert rm.clean() == ["left/over"]


def test_a_directory_everybody_can_write_is_bad(runtime_dir, monkeypatch):
    runtime_dir.chmod(0o777)
    found = {finding.what: finding for finding in machine_checks.examine()}
    assert found["directory"].state == "bad"
    assert "chmod o-w" in found["directory"].remedy
    runtime_dir.chmod(stat.S_IRWXU)


@pytest.mark.parametrize(("free", "state"), [(0, "bad"), (1 << 20, "bad"), (8 << 20, "note"), (1 << 30, "ok")])
def test_too_little_room_is_a_problem(monkeypatch, free, state, capsys):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: (1 << 30, (1 << 30) - free, free))
    found = {finding.what: finding for finding in machine_checks.examine()}
    assert found["shared memory"].state == state
    assert ("--shm-size" in found["shared memory"].remedy) == (state != "ok")
    assert ("too little for a new topic" in found["shared memory"].text) == (state == "bad")
    if state == "bad":
        assert main(["doctor"]) == Exit.PROBLEM_FOUND
        assert "BAD   shared memory" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("says", "state", "words"),
    [
        ("echo 'openjdk version \"17.0.9\" 2023-10-17' >&2", "ok", "17.0.9"),
        ("echo 'java version \"1.8.0_292\"' >&2", "bad", "too old"),
        ("exit 1", "bad", "does not run"),
    ],
)
def test_java(tmp_path, monkeypatch, says, state, words):
    pytest.importorskip("pyspark")
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{says}\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = {finding.what: finding for finding in machine_checks.examine()}["Java"]
    assert found.state == state
    assert words in found.text
    assert bool(found.remedy) == (state == "bad")


def test_few_files_and_little_address_space_are_notes(monkeypatch):
    limits = {resource.RLIMIT_NOFILE: (64, 4096), resource.RLIMIT_AS: (1 << 30, 1 << 30)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[which])
    found = [finding for finding in machine_checks.examine() if finding.what == "limits"]
    assert [finding.remedy for finding in found] == ["ulimit -n 4096", "ulimit -v unlimited"]


def test_a_missing_part_names_its_extra(monkeypatch):
    def version(distribution: str) -> str:
        raise importlib.metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = [finding for finding in machine_checks.examine() if finding.what == "optional"]
    assert len(found) == len(machine_checks.PARTS)
    assert all("pip install 'ringmain[" in finding.remedy for finding in found)


def test_whatever_is_not_well_says_what_to_do(monkeypatch, runtime_dir):
    """Of all that can be wrong with a machine, as much as can be made wrong here at once."""
    (runtime_dir / "garbage.ring").write_bytes(b"not a topic")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: (64 << 20, 63 << 20, 1 << 20))
    monkeypatch.setattr(machine_checks, "_file_system", lambda path: "ext4")
    monkeypatch.setattr(machine_checks, "_FUTEX_WAITV", 9999)
    monkeypatch.setattr(machine_checks, "_F_OFD_SETLK", 9999)
    monkeypatch.setenv("RINGMAIN_LAB", "1")
    unwell = [finding for finding in machine_checks.examine() if finding.state != "ok"]
    (runtime_dir / "garbage.ring").unlink()
    assert {"futex_waitv", "OFD locks", "shared memory", "topics", "environment"} <= {each.what for each in unwell}
    assert all(finding.remedy for finding in unwell)


def test_a_moving_topic_is_well(ringmain, child):
    mover = child("""
        with rm.Publisher('t') as pub:
            say('ready')
            for number in iter(int, 1):
                pub.send(b'x'); time.sleep(0.001)
    """)
    mover.line()
    ended = ringmain("doctor", "t")
    assert ended.code == 0
    assert "moving:" in ended.out
    mover.kill()
    assert rm.clean() == ["t"]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_stuck_topic_names_who_is_in_the_way(ringmain, child, until, stopped):
    writer = child("""
        with rm.Publisher('t', contract='reliable', capacity=4096, sender='eager') as pub:
            say('ready'); pub.wait_for_readers(1, timeout=30)
            while True:
                pub.send(bytes(1000))
    """)
    writer.line()
    reader = child("""
        sub = rm.Subscriber('t', name='sleeper')
        say('ready'); hear()
    """)
    reader.line()
    until(lambda: rm.info("t").writers[0].waits_for)
    if stopped:
        os.kill(reader.pid, signal.SIGSTOP)
    ended = ringmain("doctor", "t", "--interval", "0.2")
    assert ended.code == 5
    assert f"writer 'eager' (pid {writer.pid}) waits for reader 'sleeper' (pid {reader.pid})" in ended.out
    if stopped:
        assert f"kill -CONT {reader.pid}" in ended.out
    else:
        assert f"kill {reader.pid}" in ended.out
    reader.kill()
    writer.kill()
    assert rm.clean() == ["t"]


def test_a_stream_whose_buffers_are_all_held_names_the_holder(ringmain):
    with rm.FramePublisher("camera", size=100, buffers=2) as pub, rm.FrameSubscriber("camera", name="hoarder") as sub:
        kept = []
        for _ in range(2):
            with pub.frame(0):
                pass
            kept.append(sub.recv(0))
        ended = ringmain("doctor", "camera", "--interval", "0.01")
        assert ended.code == 5
        assert f"of 2, hoarder ({os.getpid()}) has 2" in ended.out
        assert "more buffers" in ended.out
        for frame in kept:
            frame.release()
        assert ringmain("doctor", "camera", "--interval", "0.01").code == 0


def test_an_idle_topic(ringmain):
    with rm.Publisher("t", sender="quiet"):
        ended = ringmain("doctor", "t", "--interval", "0.01")
        assert ended.code == 0
        assert "'quiet'" in ended.out
        assert "no live reader" in ended.out


@pytest.mark.parametrize("awake", ["before", "now"])
def test_one_that_waits_may_look_up(awake):
    """One of the two looks may find it awake: nothing passed, so it is stuck all the same."""
    with rm.Publisher("t", contract="reliable", capacity=4096, sender="eager") as pub, rm.Subscriber("t", name="arm"):
        looks = {}
        with pytest.raises(rm.Full):
            while True:
                pub.send(bytes(1000), timeout=0)
        looks[awake] = rm.info("t")
        other = next(name for name in ("before", "now") if name != awake)
        writer = dataclasses.replace(looks[awake].writers[0], waits_for="arm")
        looks[other] = dataclasses.replace(looks[awake], writers=[writer])
        found = list(diagnose(looks["before"], looks["now"], 0.5))
    assert found[0].what == "stuck"
    assert "reader 'arm'" in found[0].text


def test_a_reader_that_loses_is_named():
    with rm.Publisher("t", capacity=4096) as pub, rm.Subscriber("t", name="slow", start="oldest") as sub:
        pub.send(b"first")
        sub.recv(0)
        before = rm.info("t")
        for _ in range(100):
            pub.send(bytes(500))
        while sub.try_recv() is not None:
            pass
        pub.send(b"next")
        sub.recv(0)  # with which it finds out
        found = {finding.what: finding for finding in diagnose(before, rm.info("t"), 1.0)}
    assert found["losing"].state == "bad"
    assert "'slow'" in found["losing"].text
    assert "capacity" in found["losing"].remedy


def test_no_such_topic(ringmain):
    assert ringmain("doctor", "nothing").code == 3
