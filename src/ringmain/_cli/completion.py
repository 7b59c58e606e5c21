"""Completion scripts for bash, zsh and fish. shtab writes them from the commands' parsers; this module says which
arguments are topics, which `ringmain list --names` lists while the shell completes, and which are files."""

from __future__ import annotations

import argparse
from typing import Any

import shtab

from ringmain._cli.main import full_parser

_LIST = "ringmain list --names 2>/dev/null"
# For zsh, shtab's own form would list the topics once, when the script is loaded: a function lists them each time.
_TOPICS: Any = shtab.cmd(_LIST) | {"zsh": "_ringmain_topics"}
_TOPICS["preamble"]["zsh"] = f"_ringmain_topics() {{ compadd -- $({_LIST}) }}"
_TAKES_TOPICS = {"topic", "source", "target", "pattern", "TOPIC"}
_TAKES_FILES = {"path", "out", "recordings", "lake", "DIR", "FILE", "PATH"}


def script(shell: str) -> str:
    """The script for one shell: bash, zsh or fish."""
    parser = full_parser()
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for command in commands.choices.values():
        for action in command._actions:
            name = action.metavar if action.option_strings else action.dest
            if name in _TAKES_TOPICS:
                action.complete = _TOPICS
            elif name in _TAKES_FILES:
                action.complete = shtab.FILE
    text: str = shtab.complete(parser, shell)
    # shtab registers the zsh function under `eval` only; `source` is as good.
    return text.replace("$zsh_eval_context[-1] == eval", "$zsh_eval_context[-1] != loadautofunc")
