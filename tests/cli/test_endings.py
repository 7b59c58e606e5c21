"""How commands end: Ctrl-C ends every one that runs until then or waits for something, at once, without a traceback and
with its place in the topic given back; and every exit code that is documented is one that some command ends with."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ringmain as rm
from ringmain._cli.exit_codes import MEANING, Exit
from ringmain._cli.main import COMMANDS
from ringmain.recording import Recorder
from tests.cli.conftest import PATIENCE_S, Imu

TESTS = Path(__file__).parent


def reads(process: subprocess.Popen[str]) -> bool:
    return any(reader.pid == process.pid for reader in rm.info("t").readers)


def sends(process: subprocess.Popen[str]) -> bool:
    return any(writer.pid == process.pid for topic in rm.topics() for writer in topic.writers if topic.next_sequence)


def prints(process: subprocess.Popen[str]) -> bool:
    return bool(process.stdout.readline())


def complains(process: subprocess.Popen[str]) -> bool:
    return bool(process.stderr.readline())


def calls(process: subprocess.Popen[str]) -> bool:
    return rm.info("s").next_sequence > 0


def begins(process: subprocess.Popen[str]) -> bool:
    return True


# What runs until Ctrl-C or waits, how to tell that it does, and the code it ends with: 0 if it has no other end, 130 if
# it was cut short.
AT_WORK = {
    "echo": (("echo", "t"), reads, 0),
    "echo --json": (("echo", "t", "--json"), reads, 0),
    "hz": (("hz", "t", "--interval", "0.01"), prints, 0),
    "bw": (("bw", "--interval", "0.01"), prints, 0),
    "delay": (("delay", "t"), reads, 0),
    "pub --rate": (("pub", "u", "x", "--rate", "50", "--wait-readers", "0"), sends, 0),
    "pub, nobody reads": (("pub", "u", "x"), complains, 130),
    "record": (("record", "-o", "RECORDING/new"), complains, 0),
    "play --loop": (("play", "RECORDING/old", "--map", "t=again", "--loop", "--speed", "0.01"), sends, 0),
    "play": (("play", "RECORDING/old", "--map", "t=again", "--speed", "1e-6"), sends, 130),
    "bridge": (("bridge", "t", "u"), complains, 0),
    "call": (("call", "s", '{"time": 1, "acceleration": [0, 0, 0]}', "--timeout", "600"), calls, 130),
    "view": (("view", "t", "--no-browser", "--port", "0"), complains, 0),
    "metrics": (("metrics", "--port", "0"), complains, 0),
    "doctor": (("doctor", "t", "--interval", "600"), begins, 130),
    "bench": (("bench", "--seconds", "600"), begins, 130),
    "demo": (("demo", "--no-spark", "--out", "RECORDING/demo"), prints, 130),
}
AT_ONCE = {"list", "info", "clean", "completion", "config", "export", "query", "report"}
ELSEWHERE = {
    "top": "test_top.py, in a terminal",
    "pipeline": "test_parts.py, with Spark",
    "import": "test_import.py, with a large bag",
}


def test_every_command_is_accounted_for():
    assert {words[0] for words, *_ in AT_WORK.values()} | AT_ONCE | set(ELSEWHERE) == set(COMMANDS)


@pytest.fixture
def recording(tmp_path) -> Path:
    """A directory with a recording in it."""
    with rm.Publisher("t", type=Imu) as pub:
        for number in range(2):
            pub.send(Imu(number, (0, 0, 0)))
        Recorder(tmp_path / "old", "t", messages=2, start="oldest").run()
    return tmp_path


@pytest.mark.parametrize("name", AT_WORK)
def test_ctrl_c(name, recording, until):
    words, at_work, code = AT_WORK[name]
    argv = [word.replace("RECORDING", str(recording)) for word in words]
    # It says when the command's module is loaded: a Ctrl-C long before that ends the interpreter, not the command.
    script = (
        "import os, sys; from ringmain._cli import main; m = sys.modules['ringmain._cli.main']; load = m.load\n"
        "def loaded(name):\n    module = load(name); os.write(1, b'begins\\n'); return module\n"
        "m.load = loaded; sys.exit(main(sys.argv[1:]))"
    )
    with (
        rm.Publisher("t", type=Imu),
        rm.Server("s", request=Imu, reply=Imu),  # which answers nothing
        subprocess.Popen(
            [sys.executable, "-c", script, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        try:
            assert process.stdout.readline() == "begins\n"
            until(lambda: at_work(process) or process.poll() is not None)
            process.send_signal(signal.SIGINT)
            _out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()  # harmless once it has ended
        assert process.returncode == code, err
        assert "Traceback" not in err
        assert err.count("\n") <= 1, "at most what it says at its end"
        assert [reader for reader in rm.info("t").readers if reader.pid == process.pid] == []


def test_every_documented_code_is_tested():
    """By a number that some test of the commands compares with, so that none can change unnoticed."""
    assert set(MEANING) == set(Exit)
    compared = set()
    for page in TESTS.glob("test_*.py"):
        compared |= {int(code) for code in re.findall(r"(?:code|wait\([^)]*\)|returncode) == (\d+)", page.read_text())}
    compared |= {code for *_, code in AT_WORK.values()}
    assert {code.value for code in Exit} <= compared


def test_the_codes_are_in_the_help(ringmain):
    text = ringmain("--help").out
    for code, meaning in MEANING.items():
        assert re.search(rf"^ +{code.value}  {re.escape(meaning)}$", text, re.MULTILINE)
