"""Every example in every `--help` runs.

How: each line runs in a shell, in a directory that has what the examples name (a recording, keys, a module with a
type), while a program publishes, and another reads what the examples send. An example that runs until Ctrl-C is
interrupted once it has printed something. Hosts, ports and long times are replaced; nothing else is.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import zmq.auth

import ringmain as rm
from ringmain._cli.main import COMMANDS, load
from tests.cli.conftest import PATIENCE_S
from tests.recording.golden_lerobot import GOLDEN

RUN_BY_THEIR_OWN_TESTS = {
    "call": "test_services.py",
    "import": "test_import.py",
    "query": "test_query.py",
    "view": "../view/test_command.py",
}
EXAMPLES = [
    line
    for name in COMMANDS
    if name not in RUN_BY_THEIR_OWN_TESTS
    for _, line in load(name).EXAMPLES
    if "export" not in line or "--lerobot" not in line  # tests/datasets/test_lerobot.py, which has lerobot
]
REPLACED = {
    r"tcp://robot:": "tcp://127.0.0.1:",
    r"--port 9464": "--port 0",
    r"--duration 60": "--duration 0.2",
    r"--interval (5|10)\b": "--interval 0.2",
    r"bench( --seconds 2)?": "bench --seconds 0.02",
    r"--from 10": "--from 0",
    r"s3://": "file://$PWD/",
    r"journalctl -f": "echo a line",
    r"'camera/\*'$": "'cam*'",
}
IN_A_TERMINAL = [line for line in EXAMPLES if line.startswith("ringmain top")]
WITH_SPARK = [line for line in EXAMPLES if re.search(r"pipeline|report|demo$|demo --out", line)]
IN_A_SHELL = [line for line in EXAMPLES if line not in IN_A_TERMINAL + WITH_SPARK]
SENDS = re.compile(r"ringmain (play|pub)|echo a line")
MAKES_ITS_TOPICS = re.compile(r"ringmain (play|pub (chat|images|imu --type)|bridge zmq:|completion|bench)|echo")
ENDLESS = re.compile(r"ringmain (metrics|echo|hz|bw|delay|record|bridge|pub .*--rate|play .*--loop)")
ENDS = re.compile(r"record --upload|record trigger|--once|--count|--duration|--timeout|\||>")
BUSY_S = 0.02

FIRST = load("bridge").EXAMPLES[0][1]
FAR_END = f"""
import ringmain as rm
with rm.Subscriber("imu") as sub:
    message = sub.recv_message(timeout={PATIENCE_S})
    print(message.data, message.sender)
"""
MESSAGES = """
import msgspec

class Imu(msgspec.Struct):
    time_ns: int
    acceleration: tuple[float, float, float]
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which the examples run, and `ringmain` on the PATH."""
    for folder in ("robot", "bin", "home/.zfunc", "home/.config/fish/completions"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "robot/messages.py").write_text(MESSAGES)
    (tmp_path / "robot/__init__.py").touch()
    (tmp_path / "one.png").write_bytes(b"\x89PNG")
    shutil.copytree(GOLDEN, tmp_path / "folded")
    zmq.auth.create_certificates(tmp_path, "robot")
    command = tmp_path / "bin/ringmain"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ringmain "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "robot.messages", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Traffic:
    """What an example needs to find: a robot that publishes, or readers for what the example sends."""

    def __init__(self) -> None:
        self.received = threading.Event()
        self._recording = threading.Event()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, line: str) -> None:
        if SENDS.match(line):
            for topic in ("chat", "images", "log", "imu", "camera", "replayed/imu"):
                self._run(self._read, topic)
        if "record trigger" in line:
            self._run(self._record)
            assert self._recording.wait(PATIENCE_S)
        if not MAKES_ITS_TOPICS.match(line):
            self._run(self._publish)
            with rm.Subscriber("imu") as sub:
                sub.recv(timeout=PATIENCE_S)

    def _run(self, what: Callable[..., None], *args: str) -> None:
        self._threads.append(threading.Thread(target=what, args=args))
        self._threads[-1].start()

    def _read(self, topic: str) -> None:
        with rm.Subscriber(topic, name="reader") as sub:
            while not self._stop.is_set():
                if sub.recv_many(100, timeout=BUSY_S):
                    self.received.set()

    def _record(self) -> None:
        with rm.Recorder("flight", keep_bytes=1 << 30):
            self._recording.set()
            self._stop.wait()

    def _publish(self) -> None:
        from robot.messages import Imu

        with ExitStack() as opened:
            imu = opened.enter_context(rm.Publisher("imu", contract="bus", type=Imu, sender="left"))
            others = [
                opened.enter_context(rm.Publisher(topic)) for topic in ("blobs", "gps", "camera", "jobs", "stuck")
            ]
            while not self._stop.wait(BUSY_S):
                imu.send(Imu(1, (0.0, 0.0, 13.0)))
                for pub in others:
                    with suppress(rm.TopicNotFound, rm.TakenOver):  # removed by an example
                        pub.send(b"blob")

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def traffic(desk: Path) -> Iterator[Traffic]:
    made = Traffic()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the recording of `prepare` is kept: a dozen examples name one."""
    return tmp_path_factory.mktemp("kept")


def record(*options: str) -> None:
    from robot.messages import Imu

    with rm.Publisher("imu", type=Imu) as imu, rm.Publisher("camera") as camera:
        imu.send(Imu(1, (0.0, 0.0, 9.8)))
        camera.send(b"x")
        command = ["ringmain", "record", "-o", "drive", "--oldest", "--messages", "2", *options]
        subprocess.run(command, check=True, timeout=60)


def prepare(line: str, desk: Path, kept: Path) -> None:
    """What the line names and another example makes."""
    if line.startswith("ringmain record --upload"):
        record("--sealed-uri", f"file://{desk}/lake")
    elif re.match(r"ringmain (play|export|pipeline|info \./|metrics .*drive)", line):
        if not (kept / "drive").exists():
            record()
            shutil.copytree(desk / "drive", kept / "drive")
        shutil.copytree(kept / "drive", desk / "drive", dirs_exist_ok=True)
        (desk / "recordings").mkdir()
        shutil.copytree(desk / "drive", desk / "recordings/drive")
        (desk / "rules.toml").write_text("[[rule]]\nmax_loss = 1.0\n")
    if line.startswith("ringmain pipeline") or "--incident" in line:
        path, limit_s = desk / ("flights/one" if "pipeline" in line else "flight"), time.monotonic() + PATIENCE_S
        with rm.Publisher("imu") as imu, rm.Recorder(path, keep_bytes=1 << 30, before_s=10, after_s=0) as recorder:
            imu.send(b"x")
            rm.trigger(path, "an example", name="braking")
            while not recorder.status().incidents:
                assert time.monotonic() < limit_s
                time.sleep(0.01)
    if "old/topic" in line:
        rm.Publisher("old/topic", persist=True).close()


def runnable(line: str, port: int) -> str:
    for pattern, local in REPLACED.items():
        line = re.sub(pattern, local, line)
    return line.replace(":5555", f":{port}")


def run(line: str, desk: Path, until: Callable[..., None], received: threading.Event | None = None) -> None:
    """Ctrl-C once it has printed or sent something and goes on."""
    with (desk / "output").open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", line], stdout=output, stderr=output, start_new_session=True
        )
    try:
        if ENDLESS.match(line) and not ENDS.search(re.sub(r"'.*?'", "", line)):
            sends = received and SENDS.match(line)
            # A bridge may first warn that the contracts differ, before it has begun.
            first = b"Ctrl-C ends it" if line.startswith("ringmain bridge") else b"\n"
            begun = received.is_set if sends else lambda: first in (desk / "output").read_bytes()
            until(lambda: process.poll() is not None or begun())
            os.killpg(process.pid, signal.SIGINT)
        code = 4 if line.endswith("--timeout 0") else 0  # after the last message no other came
        assert process.wait(PATIENCE_S) == code, (desk / "output").read_text()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_other_examples_have_tests():
    for test in RUN_BY_THEIR_OWN_TESTS.values():
        assert ".EXAMPLES" in (Path(__file__).parent / test).read_text()


@pytest.mark.parametrize("line", IN_A_SHELL)
def test_an_example_runs(line, desk, port, traffic, until, kept):
    prepare(line, desk, kept)
    line = runnable(line, port)
    traffic.start(line)
    run(line, desk, until, traffic.received)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here")
@pytest.mark.parametrize("line", IN_A_TERMINAL)
def test_an_example_runs_in_a_terminal(line, desk, traffic, terminal, runtime_dir):
    traffic.start(line)
    screen = terminal(f"cd {desk}; RINGMAIN_DIR={runtime_dir} PATH={os.environ['PATH']} {line}; echo ended $?; cat")
    screen.until(" Hz  ·  " if "--filter" not in line else "only 'camera/'")
    screen.type("", "q")
    screen.until("ended 0")


@pytest.mark.spark
def test_the_examples_with_spark_run(desk, until, kept):
    prepare("ringmain pipeline", desk, kept)
    for line in sorted(WITH_SPARK, key=lambda line: "forget" in line):  # the one host is this machine
        if "--follow" not in line:  # tests/cli/test_parts.py follows, and interrupts it
            run(line.replace("robot-07", socket.gethostname()), desk, until)


def test_the_examples_of_a_bridge_meet(desk, port):
    """The first sends from this machine, the second receives on another: here, in another runtime directory."""
    sends, receives = (runnable(line, port) for line in EXAMPLES[EXAMPLES.index(FIRST) :][:2])
    other = tempfile.mkdtemp(prefix="ringmain-test-", dir="/dev/shm")
    running = []
    try:
        with rm.Publisher("imu", sender="sensor") as pub:
            for line, directory in ((sends, os.environ["RINGMAIN_DIR"]), (receives, other)):
                running.append(subprocess.Popen(["bash", "-c", line], env={**os.environ, "RINGMAIN_DIR": directory}))
            far = [sys.executable, "-c", FAR_END]
            reader = subprocess.Popen(far, env={**os.environ, "RINGMAIN_DIR": other}, stdout=subprocess.PIPE, text=True)
            running.append(reader)
            while reader.poll() is None:  # a broadcast over zmq has no memory: send until one arrives
                pub.send(b"over")
                with suppress(subprocess.TimeoutExpired):
                    reader.wait(BUSY_S)
            assert reader.communicate()[0] == "b'over' sensor\n"
    finally:
        for process in running:
            process.terminate()
            process.wait(PATIENCE_S)
        shutil.rmtree(other)
