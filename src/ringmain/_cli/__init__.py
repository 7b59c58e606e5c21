"""The command line. Each command has a file in commands/; main.py finds and runs it."""

from ringmain._cli.main import main

__all__ = ["main"]
