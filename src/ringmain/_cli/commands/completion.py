"""`ringmain completion`: a script for the shell, generated from the parsers, so that it cannot lag behind them."""

from __future__ import annotations

import argparse

from ringmain._cli.completion import SHELLS, script

EXAMPLES = [
    ("bash", "echo 'eval \"$(ringmain completion bash)\"' >> ~/.bashrc"),
    ("zsh", "ringmain completion zsh > ~/.zfunc/_ringmain   (with ~/.zfunc in fpath)"),
    ("fish", "ringmain completion fish > ~/.config/fish/completions/ringmain.fish"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> None:
    print(script(args.shell), end="")
