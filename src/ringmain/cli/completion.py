"""Completion scripts for bash, zsh and fish, generated from the commands' parsers.

A positional argument called `topic` completes to the topics that are there, which the script asks `ringmain list
--names` for; one with choices to its choices; any other to files.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from ringmain.cli.main import COMMANDS, command_parser, load

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class Option:
    """One option of a command: its names, its help, and whether a value follows."""

    flags: list[str]
    help: str
    takes_value: bool
    choices: list[str]


@dataclass(frozen=True)
class Shape:
    """What of a command can be completed."""

    name: str
    help: str
    options: list[Option]
    topics: bool
    choices: list[str]


def shapes() -> list[Shape]:
    """All commands, as their parsers describe them."""
    return [_shape(name) for name in COMMANDS]


def _shape(name: str) -> Shape:
    options, choices, topics = [], [], False
    for action in command_parser(name, load(name))._actions:
        allowed = [str(choice) for choice in action.choices or ()]
        if action.option_strings:
            options.append(Option(list(action.option_strings), _one_line(action), action.nargs != 0, allowed))
        else:
            choices += allowed
            topics = topics or action.dest == "topic"
    return Shape(name, COMMANDS[name], options, topics, choices)


def _one_line(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%").replace("'", "")


def script(shell: str) -> str:
    """The script for one of SHELLS."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](shapes())


def _bash(commands: list[Shape]) -> str:
    cases, values = [], []
    for command in commands:
        flags = " ".join(flag for option in command.options for flag in option.flags)
        words = " ".join(command.choices)
        topics = " $(ringmain list --names 2>/dev/null)" if command.topics else ""
        cases.append(f'        {command.name}) options="{flags}"; words="{words}{topics}" ;;')
        for option in command.options:
            if option.choices:
                for flag in option.flags:
                    values.append(f'        {command.name}:{flag}) words="{" ".join(option.choices)}"; options="" ;;')
    return f"""# ringmain completion for bash
_ringmain() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" options="" words=""
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
    fi
}}
complete -o default -F _ringmain ringmain
"""


def _zsh(commands: list[Shape]) -> str:
    listed = "\n".join(f"        '{c.name}:{_zsh_text(c.help)}'" for c in commands)
    cases = []
    for command in commands:
        specs = []
        for option in command.options:
            value = f":value:({' '.join(option.choices)})" if option.choices else ":value:_files"
            specs += [
                f"'{flag}[{_zsh_text(option.help)}]{value if option.takes_value else ''}'" for flag in option.flags
            ]
        if command.choices:
            specs.append(f"'1:what:({' '.join(command.choices)})'")
        elif command.topics:
            specs.append("'*:topic:($(ringmain list --names 2>/dev/null))'")
        else:
            specs.append("'*:file:_files'")
        cases.append(f"        {command.name}) _arguments {' '.join(specs)} ;;")
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


def _zsh_text(text: str) -> str:
    return text.replace("\\", "").replace(":", "\\:").replace("[", "(").replace("]", ")")


def _fish(commands: list[Shape]) -> str:
    names = " ".join(c.name for c in commands)
    first = f"not __fish_seen_subcommand_from {names}"
    lines = ["# ringmain completion for fish", "complete -c ringmain -f"]
    for command in commands:
        here = f"-n '__fish_seen_subcommand_from {command.name}'"
        lines.append(f"complete -c ringmain -n '{first}' -a {command.name} -d '{command.help}'")
        for option in command.options:
            flags = " ".join(f"-l {f[2:]}" if f.startswith("--") else f"-s {f[1:]}" for f in option.flags)
            value = " -r" if option.takes_value else ""
            value += f" -a '{' '.join(option.choices)}'" if option.choices else ""
            lines.append(f"complete -c ringmain {here} {flags}{value} -d '{option.help}'")
        if command.choices:
            lines.append(f"complete -c ringmain {here} -a '{' '.join(command.choices)}'")
        if command.topics:
            lines.append(f"complete -c ringmain {here} -a '(ringmain list --names 2>/dev/null)'")
    return "\n".join(lines) + "\n"
