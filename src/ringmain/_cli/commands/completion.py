"""`ringmain completion`: prints a completion script. The scripts ask `ringmain completion SHELL --offer WORDS` for what
fits, each time, and `_cli/offers.py` answers. So they are never out of date, and cost a starting shell nothing."""

from __future__ import annotations

import argparse

from ringmain._cli.offers import FILES, offers

EXAMPLES = [
    ("bash", "echo 'eval \"$(ringmain completion bash)\"' >> ~/.bashrc"),
    ("zsh, with ~/.zfunc in fpath", "ringmain completion zsh > ~/.zfunc/_ringmain"),
    ("fish", "ringmain completion fish > ~/.config/fish/completions/ringmain.fish"),
]
SCRIPTS = {
    "bash": r"""_ringmain() {
    local IFS=$'\n' typed="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=($(ringmain completion bash --offer "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    if [ "${COMPREPLY[0]}" = :files ]; then
        COMPREPLY=($(compgen -f -- "$typed"))
        compopt -o filenames 2>/dev/null
    fi
}
complete -F _ringmain ringmain
""",
    "zsh": r"""#compdef ringmain
_ringmain() {
    local -a offers
    offers=("${(@f)$(ringmain completion zsh --offer "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ $offers[1] == :files ]]; then _files; else _describe ringmain offers; fi
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _ringmain "$@"; else compdef _ringmain ringmain; fi
""",
    "fish": r"""function __ringmain_offers
    set -l offers (ringmain completion fish --offer (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)
    if test "$offers" = :files
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $offers
    end
end
complete -c ringmain -f -a '(__ringmain_offers)'
""",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell that will run the script")
    parser.add_argument("--offer", nargs=argparse.REMAINDER, metavar="WORD", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> None:
    if args.offer is None:
        print(SCRIPTS[args.shell], end="")
        return
    for word, meaning in offers(args.offer):
        print(_line(args.shell, word, meaning))


def _line(shell: str, word: str, meaning: str) -> str:
    """As the shell reads it: zsh and fish show the meaning, and a colon ends the word for zsh."""
    if word == FILES or shell == "bash":
        return word
    if shell == "fish":
        return f"{word}\t{meaning}"
    escaped = word.replace(":", r"\:")
    return f"{escaped}:{meaning}" if meaning else escaped
