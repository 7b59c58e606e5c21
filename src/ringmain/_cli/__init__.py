"""The command line. One file a command; see main.py for how a command is found, run and ended."""

from ringmain._cli.main import main

__all__ = ["main"]
