"""Compiles programs that use the C++ and C library as `ringmain config` says, and talks to one of them."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ringmain._cli.commands import config

EXAMPLES = Path(__file__).parents[2] / "examples"
CXX = shlex.split(os.environ.get("CXX", "c++"))
CC = shlex.split(os.environ.get("CC", "cc"))


def ringmain_config(*options: str) -> list[str]:
    done = subprocess.run([sys.executable, "-m", "ringmain", "config", *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return shlex.split(done.stdout)


def library() -> Path:
    return next((config.root() / "lib").glob("libringmain.so.*"))


def compiled(source: Path, to: Path, compiler: list[str], *options: str) -> Path:
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"there is no compiler {compiler[0]}")
    program = to / source.stem
    words = [*compiler, *options, "-Wall", "-Wextra", "-Werror", str(source)]
    done = subprocess.run(
        [*words, *ringmain_config("--cflags", "--libs"), "-o", str(program)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return program


class Participant:
    """A program that does what a line says, and answers with a line: participant.cpp."""

    def __init__(self, program: Path, crash: str = "") -> None:
        """With `crash`, it dies at that crash point."""
        lab = {"LD_LIBRARY_PATH": str(config.root() / "lab"), "RINGMAIN_CRASH": crash} if crash else {}
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **lab}
        )

    def __call__(self, command: str, **words: object) -> str:
        answer = self.answers(command, **words)
        assert answer, f"it ended with {self._process.wait()} at: {command} {words}"
        return answer

    def answers(self, command: str, **words: object) -> str:
        """Nothing: it has ended."""
        assert self._process.stdin
        assert self._process.stdout
        line = " ".join([command, *(f"{name}={value}" for name, value in words.items())])
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n")

    def dies(self, command: str, **words: object) -> bool:
        """Does it die of this?"""
        try:
            answer = self(command, **words)
        except (AssertionError, BrokenPipeError):
            self._process.communicate()
            return self._process.returncode == -signal.SIGKILL
        pytest.fail(f"it did not die, and said {answer}")

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def end(self) -> int:
        self._process.communicate()
        return self._process.returncode


def hexed(data: bytes) -> str:
    return "-" + data.hex()
