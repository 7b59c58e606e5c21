"""What a shell offers for the word under the cursor: taken from the command's own parser at that moment, so that it is
never out of date. Only the module of the command on the line is imported."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from ringmain._cli.main import COMMANDS, command_parser, load

FILES = ":files"
"""Offered in place of words: the shell completes names of files itself."""
TAKES_TOPICS = {"topic", "source", "target", "pattern", "TOPIC"}
TAKES_FILES = {"path", "out", "recordings", "lake", "DIR", "FILE", "PATH"}
Offers = list[tuple[str, str]]
"""Words, each with what it means."""


def offers(words: Sequence[str]) -> Offers:
    """For the last of the words that follow `ringmain`, which may be empty or half typed."""
    *before, typed = words or [""]
    if not before:
        found: Iterable[tuple[str, str]] = COMMANDS.items()
    elif before[0] not in COMMANDS:
        found = []
    else:
        parser = command_parser(before[0], load(before[0]))
        if typed.startswith("-"):
            found = _options(parser)
        else:
            action = _action_at_end(parser, before[1:])
            found = [] if action is None else _values(action)
    return [(word, meaning) for word, meaning in found if word == FILES or word.startswith(typed)]


def _options(parser: argparse.ArgumentParser) -> Offers:
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    return [(flag, (action.help or "").replace("%%", "%")) for action in shown for flag in action.option_strings]


def _action_at_end(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Action | None:
    """Which option or argument the next word is for."""
    flags = {flag: action for action in parser._actions for flag in action.option_strings}
    arguments = [action for action in parser._actions if not action.option_strings]
    option: argparse.Action | None = None
    for word in words:
        if word.startswith("-"):
            option = flags.get(word)
            if option is not None and option.nargs == 0:
                option = None
        elif option is not None:
            option = option if _takes_many(option) else None
        elif arguments and not _takes_many(arguments[0]):
            del arguments[0]
    return option or (arguments[0] if arguments else None)


def _takes_many(action: argparse.Action) -> bool:
    return action.nargs in ("*", "+")


def _values(action: argparse.Action) -> Offers:
    if action.choices is not None:
        return [(str(choice), "") for choice in action.choices]
    called = action.metavar if action.option_strings else action.dest
    if called in TAKES_FILES:
        return [(FILES, "")]
    return _topics() if called in TAKES_TOPICS else []


def _topics() -> Offers:
    from ringmain._cli.service_text import without_parts
    from ringmain._cli.topic_summary import survey
    from ringmain._service import services

    found, _ = survey("*")
    return [(topic.name, topic.contract) for topic in without_parts(found, services())]
