"""Finds the command, runs it, and turns whatever happens into one sentence and an exit code.

Only the module of the command that was asked for is imported, so that `ringmain list` starts at once. A command's
module has `configure(parser)`, `run(args) -> int | None` and `EXAMPLES`, a list of (what, command line).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from types import FrameType
from typing import NoReturn, Protocol

from ringmain._cli.exit_codes import MEANING, CommandError, Exit

COMMANDS = {
    "list": "the topics that are there",
    "info": "a topic: contract, capacity, who writes and reads, schema",
    "echo": "print a topic's messages as they come",
    "pub": "send messages to a topic",
    "hz": "the rate of topics",
    "bw": "the bandwidth of topics",
    "delay": "how long messages are under way",
    "top": "live view of all topics",
    "record": "record topics, until Ctrl-C",
    "play": "publish a recording again, with its timing",
    "export": "a recording as one file of another format",
    "bridge": "carry a topic to another, here or on another machine",
    "pipeline": "recordings to tables, on Spark",
    "report": "a page about what the pipeline found",
    "clean": "take away what the dead left behind",
    "doctor": "is this machine fit, and is a topic stuck?",
    "bench": "measure ringmain on this machine",
    "demo": "a small robot: processes, loss, a crash, a recording, Spark",
    "completion": "completion for bash, zsh or fish",
}
"""Every command and what it does; the module is `ringmain._cli.commands.<name>`."""


class Command(Protocol):
    """What a command's module has."""

    EXAMPLES: list[tuple[str, str]]

    def configure(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, args: argparse.Namespace) -> int | None: ...


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(Exit.USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def load(name: str) -> Command:
    """The module of a command."""
    module: Command = import_module(f"ringmain._cli.commands.{name}")
    return module


def command_parser(
    name: str, module: Command, make: Callable[..., argparse.ArgumentParser] = _Parser
) -> argparse.ArgumentParser:
    """The parser of one command, with its examples."""
    shown = "".join(f"  {line}\n      {what}\n" for what, line in module.EXAMPLES)
    parser = make(
        prog=f"ringmain {name}",
        description=f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}.",
        epilog=f"examples:\n{shown}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.configure(parser)
    return parser


def _overview() -> argparse.ArgumentParser:
    """The parser of `ringmain` itself; it knows the commands by name only."""
    width = max(map(len, COMMANDS))
    commands = "".join(f"  {name:<{width}}  {what}\n" for name, what in COMMANDS.items())
    codes = "".join(f"  {code.value:>3}  {what}\n" for code, what in MEANING.items())
    parser = _Parser(
        prog="ringmain",
        usage="ringmain COMMAND [ARGUMENTS]   (ringmain COMMAND --help has examples)",
        description=f"A message bus in shared memory.\n\ncommands:\n{commands}",
        epilog=f"exit codes:\n{codes}\nTopics live in RINGMAIN_DIR, or else in /dev/shm/ringmain-<uid>.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    return parser


def full_parser() -> argparse.ArgumentParser:
    """The parser of `ringmain` with those of all commands below it, which takes as long as importing them all."""
    parser = _overview()
    commands = parser.add_subparsers()
    for name, what in COMMANDS.items():
        command_parser(name, load(name), partial(commands.add_parser, name, help=what))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if not argv or argv[0].startswith("-"):
        return _without_command(argv)
    name = argv[0]
    if name not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean '{near[0]}'?" if near else "ringmain --help lists the commands"
        print(f"ringmain: there is no command '{name}'; {hint}", file=sys.stderr)
        return Exit.USAGE
    return _guarded(name, argv[1:])


def _without_command(argv: list[str]) -> int:
    parser = _overview()
    try:
        if parser.parse_args(argv).version:
            import ringmain

            print(f"ringmain {ringmain.__version__}")
            return Exit.OK
    except SystemExit as stop:
        return int(stop.code or 0)
    parser.print_help(sys.stderr)
    return Exit.USAGE


def _guarded(name: str, argv: list[str]) -> int:
    """Runs a command so that no ending of it is a traceback."""
    before = signal.signal(signal.SIGTERM, _terminate)
    prog = f"ringmain {name}"
    try:
        module = load(name)
        # Intermixed: `pub TOPIC --rate 5 DATA` is as good as any order.
        args = command_parser(name, module).parse_intermixed_args(argv)
        code = module.run(args) or 0
        sys.stdout.flush()
        return int(code)
    except SystemExit as stop:
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError as error:
        if error.filename is not None:
            return _complain(prog, str(error), Exit.ERROR)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the last flush does not complain
        return Exit.BROKEN_PIPE
    except CommandError as error:
        return _complain(prog, str(error), error.code)
    except Exception as error:
        return _from_library(prog, error)
    finally:
        signal.signal(signal.SIGTERM, before)


def _from_library(prog: str, error: Exception) -> int:
    """What the library raises is made to be read. Whatever it does not raise on purpose is a defect of ours and
    keeps its traceback."""
    from ringmain.errors import RingmainError

    if not isinstance(error, RingmainError | OSError):
        if _raised_by_rules(error):
            return _complain(prog, str(error), Exit.USAGE)
        raise error
    if isinstance(error, FileNotFoundError):
        return _complain(prog, str(error), Exit.NOT_FOUND)
    if isinstance(error, TimeoutError):
        return _complain(prog, str(error), Exit.TIMEOUT)
    return _complain(prog, str(error), Exit.ERROR)


def _raised_by_rules(error: Exception) -> bool:
    """Was it a rule for what users may write (names.py) that refused?"""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__") == "ringmain._names"


def _complain(prog: str, text: str, code: Exit) -> int:
    print(f"{prog}: {' '.join(text.split())}", file=sys.stderr)
    return code


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(Exit.TERMINATED)
