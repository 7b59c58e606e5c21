"""Completion: what is offered for every command, and each script asked by its own shell: bash and fish by their own
functions, zsh by typing into it in a terminal (tmux). A shell that is not there skips its test."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

import ringmain as rm
from ringmain._cli.commands.completion import SCRIPTS
from ringmain._cli.main import COMMANDS
from ringmain._cli.offers import FILES, offers
from ringmain._contracts import CONTRACTS


def words(*typed: str) -> list[str]:
    return [word for word, _ in offers(typed)]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_options(command):
    assert command in words("")
    assert "--help" in words(command, "-")
    assert all(meaning for _, meaning in offers([command, "-"]))


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("ec",), ["echo"]),
        (("no-such-command", ""), []),
        (("echo", ""), ["camera/left", "imu"]),
        (("echo", "imu", ""), []),  # one topic is all that it takes
        (("record", "imu", ""), ["camera/left", "imu"]),
        (("record", "--exclude", "imu", ""), ["camera/left", "imu"]),
        (("record", "--exclude", "imu", "-o", ""), [FILES]),
        (("pub", "imu", "--contract", ""), list(CONTRACTS)),
        (("pub", "imu", "--contract", "pipe", "--file", ""), [FILES]),
        (("completion", "f"), ["fish"]),
        (("completion", "bash", "--o"), []),  # what the scripts use is no option for people
    ],
    ids=lambda one: " ".join(one),
)
def test_the_word_under_the_cursor_decides(typed, offered):
    with rm.Publisher("camera/left"), rm.Publisher("imu"):
        assert words(*typed) == offered


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_shell_accepts_it(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    done = subprocess.run([shell, "-n"], input=SCRIPTS[shell], text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def on_path(tmp_path) -> str:
    """A directory with `ringmain` in it, for PATH; and some files to complete to."""
    command = tmp_path / "bin/ringmain"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m ringmain "$@"\n')
    command.chmod(0o755)
    (tmp_path / "drive").mkdir()
    return str(command.parent)


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"no {program} here")


def bash_offers(on_path: str, *words: str) -> set[str]:
    """What bash offers for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f'\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _ringmain; printf "%s\\n" "${{COMPREPLY[@]}}"\n'
    done = subprocess.run(
        ["bash", "--norc"],
        input=f'PATH="{on_path}:$PATH"\n' + SCRIPTS["bash"] + ask,
        text=True,
        capture_output=True,
        timeout=60,
        check=True,
        cwd=f"{on_path}/..",
    )
    return set(done.stdout.split())


@needs("bash")
def test_bash_completes_commands_options_choices_topics_and_files(on_path):
    with rm.Publisher("camera/left"), rm.Publisher("imu"):
        assert bash_offers(on_path, "ringmain", "e") >= {"echo"}
        assert bash_offers(on_path, "ringmain", "") >= set(COMMANDS)
        assert bash_offers(on_path, "ringmain", "echo", "ca") == {"camera/left"}
        assert bash_offers(on_path, "ringmain", "echo", "--on") == {"--once"}
        assert bash_offers(on_path, "ringmain", "pub", "--contract", "p") == {"pipe"}
        assert bash_offers(on_path, "ringmain", "completion", "f") == {"fish"}
        assert bash_offers(on_path, "ringmain", "play", "dr") == {"drive"}
        assert bash_offers(on_path, "ringmain", "echo", "dr") == set(), "a file is no topic"


def fish_offers(on_path: str, line: str) -> set[str]:
    """What fish offers at the end of a line."""
    asked = f"set -p PATH {on_path}\n" + SCRIPTS["fish"] + f'\ncomplete -C "{line}"\n'
    done = subprocess.run(
        ["fish", "--no-config"], input=asked, text=True, capture_output=True, timeout=60, cwd=f"{on_path}/.."
    )
    assert done.stderr == ""
    return {line.split("\t")[0] for line in done.stdout.splitlines()}


@needs("fish")
def test_fish_completes_commands_options_choices_topics_and_files(on_path):
    with rm.Publisher("camera/left"), rm.Publisher("imu"):
        assert fish_offers(on_path, "ringmain ") == set(COMMANDS)
        assert fish_offers(on_path, "ringmain echo ") == {"camera/left", "imu"}
        assert fish_offers(on_path, "ringmain echo --on") == {"--once"}
        assert fish_offers(on_path, "ringmain pub --contract ") == set(CONTRACTS)
        assert fish_offers(on_path, "ringmain completion ") == set(SCRIPTS)
        assert fish_offers(on_path, "ringmain demo --out dr") == {"drive/"}


@needs("zsh")
@needs("tmux")
def test_zsh_completes_commands_options_choices_topics_and_files(on_path, tmp_path, terminal, until):
    (tmp_path / "script.zsh").write_text(SCRIPTS["zsh"])
    screen = terminal(f"cd {tmp_path}; PATH={on_path}:$PATH exec zsh -f", 120, 40)
    screen.type("PS1='> '; autoload -Uz compinit && compinit -u -D && source script.zsh && print rea''dy", "Enter")
    until(lambda: "ready" in screen.text().splitlines())
    with rm.Publisher("camera/left"), rm.Publisher("imu"):
        for typed, completed in {
            "ringmain ec": "ringmain echo",
            "ringmain echo ca": "ringmain echo camera/left",
            "ringmain echo --on": "ringmain echo --once",
            "ringmain pub --contract p": "ringmain pub --contract pipe",
            "ringmain completion f": "ringmain completion fish",
            "ringmain play dr": "ringmain play drive/",
        }.items():
            screen.type(typed, "Tab")
            until(lambda completed=completed: f"> {completed}" in [row.rstrip() for row in screen.text().splitlines()])
            screen.type("", "C-u")
            until(lambda: screen.text().rstrip().splitlines()[-1].rstrip() == ">")
        screen.type("ringmain ", "Tab")
        until(lambda: "as they come" in screen.text() and all(name in screen.text() for name in COMMANDS))
