"""Writes the completion scripts of `ringmain completion` from the commands' parsers, with shtab. This file says which
arguments are topics, which `ringmain list --names` lists while the shell completes, and which are files.

python tools/completion.py          writes them
python tools/completion.py --check  says whether they are fresh
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import shtab

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from ringmain._cli.commands.completion import SCRIPTS, SHELLS
from ringmain._cli.main import COMMANDS, command_parser, load, overview_parser

LIST = "ringmain list --names 2>/dev/null"
# For zsh, shtab's own form would list the topics once, when the script is loaded: a function lists them each time.
TOPICS: dict[str, Any] = {**shtab.cmd(LIST), "zsh": "_ringmain_topics"}
TOPICS["preamble"]["zsh"] = f"_ringmain_topics() {{ compadd -- $({LIST}) }}"
TAKES_TOPICS = {"topic", "source", "target", "pattern", "TOPIC"}
TAKES_FILES = {"path", "out", "recordings", "lake", "DIR", "FILE", "PATH"}


def parser() -> argparse.ArgumentParser:
    """All commands in one parser."""
    whole = overview_parser()
    commands = whole.add_subparsers(parser_class=argparse.ArgumentParser)
    for name, what in COMMANDS.items():
        one = command_parser(name, load(name))
        for action in one._actions:
            called = action.metavar if action.option_strings else action.dest
            if called in TAKES_TOPICS:
                action.complete = TOPICS
            elif called in TAKES_FILES:
                action.complete = shtab.FILE
        commands.add_parser(name, help=what, description=one.description, parents=[one], add_help=False)
    return whole


def script(shell: str) -> str:
    text: str = shtab.complete(parser(), shell)
    # shtab registers the zsh function under `eval` only, and `source` should work as well.
    return text.replace("$zsh_eval_context[-1] == eval", "$zsh_eval_context[-1] != loadautofunc")


def main() -> int:
    stale = []
    for shell in SHELLS:
        path, text = SCRIPTS / f"ringmain.{shell}", script(shell)
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        print(f"{', '.join(stale)}: not what the parsers say; run python tools/completion.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
