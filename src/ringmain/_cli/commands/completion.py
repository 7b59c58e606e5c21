"""`ringmain completion`: prints a completion script. tools/completion.py generates the scripts from the parsers. Shells
run this command when they start, so it only reads a file."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = [
    ("bash", "echo 'eval \"$(ringmain completion bash)\"' >> ~/.bashrc"),
    ("zsh, with ~/.zfunc in fpath", "ringmain completion zsh > ~/.zfunc/_ringmain"),
    ("fish", "ringmain completion fish > ~/.config/fish/completions/ringmain.fish"),
]
SHELLS = ("bash", "zsh", "fish")
SCRIPTS = Path(__file__).parents[1] / "completions"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell that will run the script")


def run(args: argparse.Namespace) -> None:
    print(script(args.shell), end="")


def script(shell: str) -> str:
    """The script for one of SHELLS."""
    return (SCRIPTS / f"ringmain.{shell}").read_text()
