"""What the command ends with: the exit codes scripts rely on, and the errors that carry them."""

from __future__ import annotations

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
    Exit.OK: "done; for a command that watches until it is interrupted, also Ctrl-C",
    Exit.ERROR: "it could not be done; one sentence on stderr says why",
    Exit.USAGE: "the arguments do not make sense",
    Exit.NOT_FOUND: "there is no such topic, recording or file",
    Exit.TIMEOUT: "nothing came, or nobody made room, in the time given",
    Exit.PROBLEM_FOUND: "`doctor` found something that needs mending",
    Exit.INTERRUPTED: "interrupted (Ctrl-C) before the end",
    Exit.BROKEN_PIPE: "whoever read our output went away",
    Exit.TERMINATED: "ended by SIGTERM; what was open has been closed",
}


class CommandError(Exception):
    """Ends the command with one sentence on stderr and an exit code."""

    def __init__(self, sentence: str, code: Exit = Exit.ERROR) -> None:
        super().__init__(sentence)
        self.code = code


class UsageError(CommandError):
    """The arguments do not make sense."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, Exit.USAGE)


def missing_part(extra: str, error: ImportError) -> CommandError:
    """The sentence for an optional part that is not installed."""
    return CommandError(
        f"this needs {error.name or 'a module'}, which is not installed: pip install 'ringmain[{extra}]'"
    )
