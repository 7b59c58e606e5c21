"""Completion scripts: generated for every command, and the bash one asked by bash itself."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

import ringmain as rm
from ringmain.cli.completion import SHELLS, script, shapes
from ringmain.cli.main import COMMANDS


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_option_is_in_it(shell):
    text = script(shell)
    for shape in shapes():
        assert shape.name in text
        for option in shape.options:
            for flag in option.flags:
                assert flag.lstrip("-") in text


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_accepts_it(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    done = subprocess.run([shell, "-n"], input=script(shell), text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


def complete(tmp_path, *words: str) -> set[str]:
    """What bash offers for the last of these words."""
    command = tmp_path / "ringmain"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m ringmain "$@"\n')
    command.chmod(0o755)
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f'\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _ringmain; printf "%s\\n" "${{COMPREPLY[@]}}"\n'
    done = subprocess.run(
        ["bash", "--norc"],
        input=f'PATH="{tmp_path}:$PATH"\n' + script("bash") + ask,
        text=True,
        capture_output=True,
        timeout=60,
        check=True,
    )
    return set(done.stdout.split())


def test_bash_completes_commands_options_choices_and_topics(tmp_path):
    with rm.Publisher("camera/left"), rm.Publisher("imu"):
        assert complete(tmp_path, "ringmain", "e") >= {"echo"}
        assert complete(tmp_path, "ringmain", "") >= set(COMMANDS)
        assert complete(tmp_path, "ringmain", "echo", "ca") == {"camera/left"}
        assert complete(tmp_path, "ringmain", "echo", "--on") == {"--once"}
        assert complete(tmp_path, "ringmain", "pub", "--contract", "p") == {"pipe"}
        assert complete(tmp_path, "ringmain", "completion", "f") == {"fish"}
