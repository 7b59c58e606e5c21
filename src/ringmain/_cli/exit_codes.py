"""The exit codes, which scripts rely on, and the errors that carry them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of every command."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    TIMEOUT = 4
    PROBLEM_FOUND = 5
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


MEANING = {
    Exit.OK: "done; also Ctrl-C, for a command that runs until it is interrupted",
    Exit.ERROR: "failed; one sentence on stderr says why",
    Exit.USAGE: "the arguments are not valid",
    Exit.NOT_FOUND: "there is no such topic, recording or file",
    Exit.TIMEOUT: "no message arrived, or no space became free, in the time given",
    Exit.PROBLEM_FOUND: "`doctor` or `report --check` found a problem",
    Exit.INTERRUPTED: "interrupted (Ctrl-C) before the end",
    Exit.BROKEN_PIPE: "the reader of the output closed it",
    Exit.TERMINATED: "ended by SIGTERM; everything that was open is closed",
}


class CommandError(Exception):
    """Ends the command with one sentence on stderr and an exit code."""

    def __init__(self, sentence: str, code: Exit = Exit.ERROR) -> None:
        super().__init__(sentence)
        self.code = code


class UsageError(CommandError):
    """The arguments are not valid."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, Exit.USAGE)


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Around the import of an optional part: a sentence that says what to install, if it is not there."""
    try:
        yield
    except ImportError as error:
        ours = f"this needs {error.name or 'a module'}, which is not installed: pip install 'ringmain[{extra}]'"
        raise CommandError(str(error) if "pip install" in str(error) else ours) from None
