"""Completion scripts for bash, zsh and fish, generated from the commands' parsers.

What an argument completes to is told by its name: topics, which the script asks `ringmain list --names` for, files, its
choices, or nothing. zsh knows the place of an argument; bash and fish are offered what any of its places takes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ringmain._cli.main import COMMANDS, command_parser, load

SHELLS = ("bash", "zsh", "fish")
_TOPICS = "$(ringmain list --names 2>/dev/null)"
_TAKES_TOPICS = {"topic", "source", "target", "pattern", "TOPIC"}
_TAKES_FILES = {"path", "out", "recordings", "lake", "DIR", "FILE", "PATH"}


@dataclass(frozen=True)
class Value:
    """What may stand in a place: one of the choices, a topic, a file, or anything."""

    kind: Literal["choice", "topic", "file", "any"]
    choices: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Option:
    """One option of a command: its names, its help, and the value that follows, if one does."""

    flags: list[str]
    help: str
    value: Value | None


@dataclass(frozen=True)
class Shape:
    """What of a command can be completed."""

    name: str
    help: str
    options: list[Option]
    places: list[Value]
    """Its positional arguments; the last may be repeated."""

    def takes(self, kind: str) -> bool:
        return any(place.kind == kind for place in self.places)

    @property
    def choices(self) -> list[str]:
        return [choice for place in self.places for choice in place.choices]


def shapes() -> list[Shape]:
    """All commands, as their parsers describe them."""
    return [_shape(name) for name in COMMANDS]


def _shape(name: str) -> Shape:
    options, places = [], []
    for action in command_parser(name, load(name))._actions:
        if not action.option_strings:
            places.append(_value(action))
        else:
            value = None if action.nargs == 0 else _value(action)
            options.append(Option(list(action.option_strings), (action.help or "").replace("%%", "%"), value))
    return Shape(name, COMMANDS[name], options, places)


def _value(action: argparse.Action) -> Value:
    if action.choices:
        return Value("choice", [str(choice) for choice in action.choices])
    called = {action.metavar if action.option_strings else action.dest}
    return Value("topic" if called & _TAKES_TOPICS else "file" if called & _TAKES_FILES else "any")


def script(shell: str) -> str:
    """The script for one of SHELLS."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](shapes())


# ------------------------------------------------------------------------------------------------------ bash


def _bash(commands: Sequence[Shape]) -> str:
    cases, values = [], []
    for command in commands:
        flags = " ".join(flag for option in command.options for flag in option.flags)
        words = _bash_words(command.choices, command.takes("topic"), command.takes("file"))
        cases.append(f'        {command.name}) options="{flags}"; {words} ;;')
        for option in command.options:
            if option.value is not None:
                taken = _bash_words(option.value.choices, option.value.kind == "topic", option.value.kind == "file")
                values.append(f"        {'|'.join(f'{command.name}:{flag}' for flag in option.flags)}) {taken} ;;")
    return f"""# ringmain completion for bash
_ringmain() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" options="" words="" files=""
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=($(compgen -W "{" ".join(c.name for c in commands)} --help --version" -- "$current"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{chr(10).join(cases)}
    esac
    case "${{COMP_WORDS[1]}}:${{COMP_WORDS[COMP_CWORD-1]}}" in
{chr(10).join(values)}
    esac
    if [[ "$current" == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$current"))
    else
        COMPREPLY=($(compgen -W "$words" -- "$current"))
        if [[ -n "$files" ]]; then
            compopt -o filenames 2>/dev/null
            local IFS=$'\\n'
            COMPREPLY+=($(compgen -f -- "$current"))
        fi
    fi
}}
complete -F _ringmain ringmain
"""


def _bash_words(choices: list[str], topics: bool, files: bool) -> str:
    words = " ".join([*choices, _TOPICS] if topics else choices)
    return f'words="{words}"; files="{"yes" if files else ""}"'


# ------------------------------------------------------------------------------------------------------- zsh


def _zsh(commands: Sequence[Shape]) -> str:
    listed = "\n".join(f"        {_quoted(f'{c.name}:{_zsh_text(c.help)}')}" for c in commands)
    cases = []
    for command in commands:
        specs = []
        for option in command.options:
            value = "" if option.value is None else f":value:{_zsh_action(option.value)}"
            specs += [f"{flag}[{_zsh_text(option.help)}]{value}" for flag in option.flags]
        for number, place in enumerate(command.places, 1):
            where = "*" if number == len(command.places) else str(number)
            specs.append(f"{where}:{place.kind}:{_zsh_action(place)}")
        cases.append(f"        {command.name}) _arguments {' '.join(map(_quoted, specs))} ;;")
    return f"""#compdef ringmain
_ringmain() {{
    local -a commands=(
{listed}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    local command="${{words[2]}}"
    shift words
    (( CURRENT-- ))
    case "$command" in
{chr(10).join(cases)}
    esac
}}
if [[ "$funcstack[1]" == _ringmain ]]; then _ringmain "$@"; else compdef _ringmain ringmain; fi
"""


def _zsh_action(value: Value) -> str:
    return {"choice": f"({' '.join(value.choices)})", "topic": f"({_TOPICS})", "file": "_files", "any": ""}[value.kind]


def _zsh_text(text: str) -> str:
    return text.replace("\\", "").replace(":", "\\:").replace("[", "(").replace("]", ")")


def _quoted(text: str) -> str:
    """As one word of a POSIX-like shell."""
    return "'" + text.replace("'", "'\\''") + "'"


# ------------------------------------------------------------------------------------------------------ fish


def _fish(commands: Sequence[Shape]) -> str:
    names = " ".join(c.name for c in commands)
    first = f"not __fish_seen_subcommand_from {names}"
    lines = ["# ringmain completion for fish", "complete -c ringmain -f"]
    for command in commands:
        here = f"complete -c ringmain -n '__fish_seen_subcommand_from {command.name}'"
        lines.append(f"complete -c ringmain -n '{first}' -a {command.name} -d {_fish_quoted(command.help)}")
        for option in command.options:
            flags = " ".join(f"-l {f[2:]}" if f.startswith("--") else f"-s {f[1:]}" for f in option.flags)
            value = "" if option.value is None else f" -x{_fish_offer(option.value)}"
            if option.value is not None and option.value.kind == "file":
                value = " -r -F"
            lines.append(f"{here} {flags}{value} -d {_fish_quoted(option.help)}")
        lines += [f"{here}{_fish_offer(place)}" for place in command.places if place.kind != "any"]
    return "\n".join(lines) + "\n"


def _fish_offer(value: Value) -> str:
    offered = {"choice": f" -a '{' '.join(value.choices)}'", "topic": f" -a '({_TOPICS[2:-1]})'", "file": " -F"}
    return offered.get(value.kind, "")


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
