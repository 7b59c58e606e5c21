"""Finds the command, runs it, and turns every error into one sentence and an exit code.

Only the module of the requested command is imported, so `ringmain list` starts fast. A command's
module has `configure(parser)`, `run(args) -> int | None` and `EXAMPLES`, a list of (what, command line).
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from types import FrameType
from typing import NoReturn, Protocol

from ringmain._cli.exit_codes import MEANING, CommandError, Exit

COMMANDS = {
    "list": "list the topics and services",
    "info": "show a topic (contract, participants, schema) or a recording (duration, size, topics)",
    "echo": "print a topic's messages as they come",
    "pub": "send messages to a topic",
    "call": "send a request to a service, and print the reply",
    "hz": "measure the rate of topics",
    "bw": "measure the bandwidth of topics",
    "delay": "measure the delay from send to receive",
    "top": "live view of all topics",
    "view": "plots, pictures and events of topics, in the browser",
    "record": "record topics, until Ctrl-C",
    "play": "publish a recording again, with its timing",
    "export": "write a recording as one file in another format",
    "import": "make a recording of an MCAP file, a ROS bag or a data set",
    "query": "run SQL on a recording or a lake, with DuckDB",
    "bridge": "forward a topic to another, on this machine or another",
    "pipeline": "turn recordings into tables, with Spark",
    "report": "write a page about the tables of a pipeline",
    "metrics": "serve figures of topics and recordings to Prometheus",
    "clean": "remove topics left by processes that died",
    "doctor": "check this machine, or find out why a topic is stuck",
    "bench": "measure ringmain on this machine",
    "demo": "run a small robot: processes, loss, a crash, a recording, Spark",
    "config": "say where the C++ and C library is, for CMake and compilers",
    "completion": "print a completion script for bash, zsh or fish",
}
"""Every command and what it does. The module is `ringmain._cli.commands.<name>`, or `<name>_` for a word of Python."""


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
    module: Command = import_module(f"ringmain._cli.commands.{name}{'_' * iskeyword(name)}")
    return module


def command_parser(name: str, module: Command) -> argparse.ArgumentParser:
    """The parser of one command, with its examples."""
    shown = "".join(f"  {line}\n      {what}\n" for what, line in module.EXAMPLES)
    parser = _Parser(
        prog=f"ringmain {name}",
        description=f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}.",
        epilog=f"examples:\n{shown}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.configure(parser)
    return parser


def overview_parser() -> argparse.ArgumentParser:
    """The parser of `ringmain` itself. It knows the commands by name only."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if not argv or argv[0].startswith("-"):
        return _without_command(argv)
    name = argv[0]
    if name not in COMMANDS:
        from ringmain._cli.missing_topic import did_you_mean

        hint = did_you_mean(name, COMMANDS) or "; ringmain --help lists the commands"
        print(f"ringmain: there is no command '{name}'{hint}", file=sys.stderr)
        return Exit.USAGE
    return _guarded(name, argv[1:])


def _without_command(argv: list[str]) -> int:
    parser = overview_parser()
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
    """Runs a command so that no expected error prints a traceback."""
    before = signal.signal(signal.SIGTERM, _terminate)
    prog = f"ringmain {name}"
    try:
        module = load(name)
        # Intermixed: options may stand between positional arguments, as in `pub TOPIC --rate 5 DATA`.
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit must not fail
        return Exit.BROKEN_PIPE
    except CommandError as error:
        return _complain(prog, str(error), error.code)
    except Exception as error:
        return _from_library(prog, error)
    finally:
        signal.signal(signal.SIGTERM, before)


def _from_library(prog: str, error: Exception) -> int:
    """The library's own errors become one sentence. Any other error is a defect and keeps its traceback."""
    from ringmain.errors import InvalidArgument, RingmainError

    if not isinstance(error, RingmainError | OSError):
        raise error
    if isinstance(error, InvalidArgument):
        code = Exit.USAGE
    elif isinstance(error, FileNotFoundError):
        code = Exit.NOT_FOUND
    else:
        code = Exit.TIMEOUT if isinstance(error, TimeoutError) else Exit.ERROR
    return _complain(prog, str(error), code)


def _complain(prog: str, text: str, code: Exit) -> int:
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)  # errors of object stores come with colours
    print(f"{prog}: {' '.join(plain.split())}", file=sys.stderr)
    return code


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(Exit.TERMINATED)
