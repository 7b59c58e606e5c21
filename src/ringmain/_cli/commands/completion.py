"""`ringmain completion`: a completion script for the shell, generated from the parsers."""

from __future__ import annotations

import argparse

from ringmain._cli.exit_codes import missing_part

EXAMPLES = [
    ("bash", "echo 'eval \"$(ringmain completion bash)\"' >> ~/.bashrc"),
    ("zsh", "ringmain completion zsh > ~/.zfunc/_ringmain   (with ~/.zfunc in fpath)"),
    ("fish", "ringmain completion fish > ~/.config/fish/completions/ringmain.fish"),
]
SHELLS = ("bash", "zsh", "fish")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> None:
    try:
        from ringmain._cli.completion import script
    except ImportError as error:
        raise missing_part("completion", error) from None
    print(script(args.shell), end="")
