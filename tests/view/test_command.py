"""`ringmain view` as a command: what it prints, what it refuses, one sentence each, and that nothing of it is left."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import ringmain as rm
from ringmain._cli.main import load
from ringmain.pipeline import run
from tests.cli.conftest import Ended, ringmain
from tests.conftest import PATIENCE_S
from tests.view.conftest import Viewing, until

__all__ = ["ringmain"]  # the fixture

pytest.importorskip("rerun")


def test_an_unknown_topic(ringmain: Callable[..., Ended]) -> None:
    with rm.Publisher("imu"):
        done = ringmain("view", "imo", "--no-browser")
    assert done.code == 3
    assert done.err.startswith("ringmain view: there is no topic 'imo' in ")
    assert done.err.endswith("; did you mean 'imu'?\n")


@pytest.mark.parametrize("which", [0, 1])
def test_a_busy_port(ringmain: Callable[..., Ended], which: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = ringmain("view", "--no-browser", "--port", str(port - which))
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"ringmain view: port {port} of 127.0.0.1 cannot be used (Address already in use); choose another with --port\n"
    )


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--address", "localhost"], 2, "--address is an IP address like 127.0.0.1, not 'localhost'"),
        (["--blueprint", "no.rbl"], 3, "there is no layout no.rbl"),
        (["--port", "99999"], 1, "port 99999 of 127.0.0.1 cannot be used (ports are numbers up to 65535); choose"),
        (["--allow-publish", "imu"], 2, "--allow-publish is for --foxglove: Rerun's page sends nothing"),
        (["--foxglove", "--raw"], 2, "--raw is for Rerun's page, not for --foxglove"),
        (["--foxglove", "."], 3, "no recording at ."),
        (["--foxglove", ".", "--allow-call", "x"], 2, "--allow-call is for live topics, not for a recording"),
        (["--foxglove", "--from", "1"], 2, "--from is for a recording or a lake: name its directory first"),
        (["--hz", "0"], 2, "argument --hz: a rate in Hz above 0 is wanted, not '0'"),
    ],
)
def test_other_refusals(ringmain: Callable[..., Ended], options: list[str], code: int, sentence: str) -> None:
    done = ringmain("view", "--no-browser", *options)
    assert (done.code, done.err.count("\n")) == (code, 1)
    assert done.err.startswith(f"ringmain view: {sentence}")


def test_without_the_extra(ringmain: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rerun.py").write_text("raise ImportError(name='rerun')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = ringmain("view", "--no-browser")
    assert (done.code, done.err) == (
        1,
        "ringmain view: this needs rerun, which is not installed: pip install 'ringmain[view]'\n",
    )


def test_without_a_browser(ringmain: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no screen it says so, and serves the page all the same."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    view = subprocess.Popen(
        [sys.executable, "-m", "ringmain", "view", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert view.stdout is not None
    url = view.stdout.readline()
    view.send_signal(signal.SIGINT)
    _, said = view.communicate(timeout=PATIENCE_S)
    assert url.startswith("http://127.0.0.1:")
    assert "ringmain view: no browser is here to open this page with; Ctrl-C ends it\n" in said
    assert view.returncode == 0


def listening(pid: int) -> dict[int, set[str]]:
    """The addresses, in hex as in /proc/net/tcp, on which a process and its children listen."""
    found: dict[int, set[str]] = {}
    for each in [pid, *children(pid)]:
        inodes = set()
        for entry in Path(f"/proc/{each}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                target = os.readlink(entry)
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{each}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    found.setdefault(each, set()).add(fields[1].partition(":")[0])
    return found


def children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def marked(line: str) -> object:
    return pytest.param(line, marks=[] if "--save" in line else [pytest.mark.view])


@pytest.mark.parametrize("line", [marked(line) for _, line in load("view").EXAMPLES])
def test_an_example_runs(
    line: str, viewing: Callable[..., Viewing], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with rm.Publisher("imu") as imu, rm.Publisher("camera/front") as camera:
        with rm.Recorder("drive", ["imu", "camera/*"], before_s=60, after_s=0) as recorder:
            imu.send(b"x")
            camera.send(b"y")
            if "--incident" in line:
                rm.trigger("drive", "a test", name="braking")
                until(lambda: recorder.status().incidents)
        Path("flight").symlink_to("drive")
        if "lake" in line:
            run("drive", "lake", engine="local")
            line = line.replace("robot-07", socket.gethostname())
        words = shlex.split(re.sub(r"--no-browser|--port 9100", "", line).replace("--from 10", "--from 0"))[2:]
        if "--save" in words:
            subprocess.run([sys.executable, "-m", "ringmain", "view", *words], check=True, timeout=2 * PATIENCE_S)
            assert Path("drive.rrd").stat().st_size > 0
        else:
            code, said = viewing(*words).end("send_signal", signal.SIGINT)
            assert code == 0, said


def test_it_listens_on_loopback_only(viewing: Callable[..., Viewing]) -> None:
    view = viewing()
    addresses = listening(view.process.pid)
    assert {address for each in addresses.values() for address in each} == {"0100007F"}
    assert len(addresses) == 1, "its server's, and nothing of its own"


@pytest.mark.view
def test_another_address_comes_with_a_warning(viewing: Callable[..., Viewing]) -> None:
    code, said = viewing("--address", "0.0.0.0").end("send_signal", signal.SIGINT)
    assert code == 0
    assert "0.0.0.0 is reached from other machines, and all who reach it see every message shown" in said


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.view),
        pytest.param(signal.SIGTERM, marks=pytest.mark.view),
        signal.SIGKILL,
    ],
)
def test_however_it_ends_its_server_ends_and_no_publisher_notices(
    viewing: Callable[..., Viewing], how: signal.Signals
) -> None:
    with rm.Publisher("imu", contract="reliable", capacity="64KiB") as pub:
        view = viewing("imu")
        until(lambda: rm.info("imu").readers)
        (server,) = children(view.process.pid)
        view.end("send_signal", how)
        until(lambda: not Path(f"/proc/{server}").exists())
        for _ in range(5000):
            pub.send(b"x" * 64, timeout=0)


@pytest.mark.view
def test_a_server_that_is_killed_ends_the_command(viewing: Callable[..., Viewing]) -> None:
    view = viewing()
    (server,) = children(view.process.pid)
    os.kill(server, signal.SIGKILL)
    _, said = view.process.communicate(timeout=PATIENCE_S)
    assert view.process.returncode == 1
    assert said.splitlines()[-1].startswith("ringmain view: Rerun's server ended with -9")


def test_at_the_end_it_says_what_was_left_out(viewing: Callable[..., Viewing]) -> None:
    with rm.Publisher("imu", type=dict) as pub:
        view = viewing("imu", "--points-hz", "0.001")
        until(lambda: rm.info("imu").readers)
        for number in range(1000):
            pub.send({"value": float(number)})
        until(lambda: rm.info("imu").readers[0].messages == 1000)
        code, said = view.end("send_signal", signal.SIGINT)
    assert code == 0
    assert "ringmain view: left out: imu: " in said
    assert " of 1,000 points" in said
