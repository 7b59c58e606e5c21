"""Programs written for msgq and pysyncq, and for nothing else, run as they are: `programs/robot.py` and
`programs/team.py` import the original names and know nothing of ringmain. `python -m ringmain.compat` runs them under
every start method; what they print is what they print on the originals (`make test-originals` runs them on both)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import ringmain.compat
from tests.conftest import PATIENCE_S

PROGRAMS = Path(__file__).parent / "programs"
METHODS = ["fork", "spawn", "forkserver"]
ROBOT = """\
planner: ready
planned: reading 0 at home ... reading 19 at home
planner ended: 0
led: 1 1 2 2 3 3
follower ended: 0
camera: ready
streams: [0, 1] visionipc_camera_0
frames: 64 32 64 2048 3072 4
frame: 1000 0 5
frame: 1001 10 15
frame: 1002 20 25
camera ended: 0
taken over
"""
TEAM = """\
full
squares: 0 0 0 1 1 1 4 4 4 9 9 9 16 16 16
bye worker-0 heard 10
bye worker-1 heard 10
bye worker-2 heard 10
worker ended: 0
worker ended: 0
worker ended: 0
left over: [] None
"""


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("program", "output"), [("robot.py", ROBOT), ("team.py", TEAM)])
def test_a_program_for_the_original_runs_as_it_is(program: str, output: str, method: str) -> None:
    done = run("-m", "ringmain.compat", PROGRAMS / program, method)
    assert (done.stdout, done.stderr, done.returncode) == (output, "", 0)


def test_alias_for_those_that_are_named(tmp_path: Path) -> None:
    script = """
        import ringmain.compat
        ringmain.compat.alias("msgq")
        import msgq, msgq.ipc_pyx, msgq.visionipc.visionipc_pyx
        from msgq.ipc import PubSocket
        from msgq.visionipc import VisionIpcClient
        assert msgq.ipc_pyx.PubSocket is PubSocket is ringmain.compat.msgq.PubSocket
        assert VisionIpcClient.__module__ == "ringmain.compat.msgq.visionipc"
        ringmain.compat.alias("msgq")
        try:
            import pysyncq
        except ImportError:
            print("msgq alone")
    """
    done = run("-c", textwrap.dedent(script))
    assert (done.stdout, done.stderr) == ("msgq alone\n", "")
    with pytest.raises(ValueError, match="no drop-in for 'zmq', only for msgq, pysyncq"):
        ringmain.compat.alias("zmq")


def test_programs_that_a_program_starts(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("import msgq, pysyncq.pysyncq\nprint(msgq.pub_sock.__module__)\n")
    (tmp_path / "helper.py").write_text("NAME = 'a module beside the program'\n")
    (tmp_path / "first.py").write_text(
        "import subprocess, sys\nimport helper, msgq\nprint(sys.argv[1:], helper.NAME, flush=True)\n"
        "subprocess.run([sys.executable, __file__.replace('first', 'other')], check=True)\n"
    )
    done = run("-m", "ringmain.compat", tmp_path / "first.py", "--flag", "word", PYTHONPATH=os.pathsep.join(sys.path))
    expected = "['--flag', 'word'] a module beside the program\nringmain.compat.msgq._sockets\n"
    assert (done.stdout, done.stderr) == (expected, "")


def test_a_module_by_name_and_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import unittest, msgq\n"
        "class T(unittest.TestCase):\n"
        "    def test_good(self): assert msgq.get_fake_prefix() == b''\n"
        "    def test_bad(self): assert False\n"
    )
    words = ("-m", "ringmain.compat", "-m", "unittest", "discover", "-s", tmp_path)
    done = run(*words)
    assert done.returncode == 1
    assert "Ran 2 tests" in done.stderr
    assert "failures=1" in done.stderr
    assert run(*words, "-k", "good").returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--help"], 0, "usage: python -m ringmain.compat program.py"),
        ([], 1, "usage:"),
        (["-m"], 1, "usage:"),
        (["-x"], 1, "usage:"),
        (["nowhere.py"], 1, "there is no program 'nowhere.py'"),
    ],
)
def test_usage(words: list[str], code: int, said: str) -> None:
    done = run("-m", "ringmain.compat", *words)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
