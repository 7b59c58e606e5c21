"""What a command says of a topic or service that is not there: that, and which similar name there is."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

from ringmain import _names, _native
from ringmain._cli.exit_codes import CommandError, Exit
from ringmain.errors import TopicNotFound

T = TypeVar("T")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """To be put after a sentence; empty if no name is similar."""
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean '{near[0]}'?" if near else ""


def similar_topic(name: str) -> str:
    return did_you_mean(name, _native.topics(_names.runtime_directory()))


def no_topic(name: str) -> CommandError:
    """Ends a command that needs the topic."""
    where = _names.runtime_directory()
    return CommandError(f"there is no topic '{name}' in {where}{similar_topic(name)}", Exit.NOT_FOUND)


def ask(question: Callable[[str], T], name: str) -> T:
    """What `question` says of the topic."""
    try:
        return question(name)
    except TopicNotFound:
        raise no_topic(name) from None


def say_not_there_yet(command: str, name: str) -> None:
    """Of a command that waits for the topic."""
    print(f"ringmain {command}: there is no topic '{name}' yet{similar_topic(name)}", file=sys.stderr, flush=True)
