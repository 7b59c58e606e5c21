"""Words that were retired do not come back: docs/glossary.md has the words that replaced them.

Nouns are looked for in names (of files, classes, functions, variables, arguments), where one noun must mean one thing,
and those that mean nothing else here also in every text: comments, errors, pages. Phrases are looked for in prose,
where they make a reader stop.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"

RETIRED_NOUNS = {
    "seat": "slot",
    "member": "participant",
    "place": "slot, address or location",
    "segment": "topic file",
    "rouse": "wake",
    "disturb": "wake",
    "insist": "take the idle turn",
    "brisk": "poll",
    "bury": "reap (a process), dead letter (a message)",
    "taker": "server, worker",
    "slowly": "slow path",
    "plainly": "fast path",
}
# Those that mean nothing else in these pages: also looked for in texts, as patterns that know their endings.
NO_PLAIN_ENGLISH = {
    "seat": r"(?i)\bseat(s|ed)?\b",
    "rouse": r"(?i)\brous(e|es|ed|ing)\b",
    "insist": r"(?i)\binsist(s|ed|ing)?\b",
    "brisk": r"(?i)\bbrisk(ly)?\b",
    "bury": r"(?i)\b(bury|buries|buried|burying|burial)\b",
    "taker": r"(?i)\btakers?\b",
}
TEXTS = ("*.md", "docs/**/*.md", "src/**/*.py", "src/**/*.pyi", "native/**/*.[ch]pp")
# Riddles of several words, as whole names: the words are good ones elsewhere.
RETIRED_NAMES = {
    "Aside": "BufferedReply",
    "Caller": "NativeClient",
    "FrameStream": "FrameTopic",
    "_go_slow": "fast_path_ok",
    "books": "row_counts",
    "came_first": "joined_before_topic",
    "put_off": "left_to_slices",
    "sliced": "read_by_slices",
    "stream_of": "frames_of",
    "sure": "always_wakes",
    "looks_closer": "needs_slow_path",
    "only_counts": "hold_nothing",
    "StreamWriter": "SegmentWriter",
}
# A segment is a file of a recording: the noun belongs to what writes, reads, queries and shows recordings.
SEGMENTS_BELONG_TO = re.compile(r"recording|spark|pipeline|spool|export|sealed|retention|lake")
# Names that users have, or that belong to another library. (path, name): why it stays.
EXCEPTIONS = {
    ("src/ringmain/_syncqueue.py", "members"): "public: SyncQueue.members",
    ("src/ringmain/_syncqueue.py", "member"): "public: SyncQueue.member()",
}
# Where a noun means something else. Path prefixes: why.
OTHER_MEANINGS = {
    "member": {
        "src/ringmain/typed/": "of an Enum or a union",
        "tests/typed/": "of an Enum or a union",
        "src/ringmain/compat/": "pysyncq's word",
        "tests/compat/": "pysyncq's word",
        "tests/test_syncqueue": "SyncQueue's word, after pysyncq",
    },
    "segment": {"src/ringmain/compat/msgq/": "msgq's word: segment_size"},
    "slowly": {"tests/": "what a test does"},
    "plainly": {"tests/": "what a test does"},
}
PHRASES = {
    "whoever": r"whoever",
    "for ever": r"for ever",
    "nobody": r"nobody",
    "without a word": r"without a word",
    "the dead": r"the dead(?! (?:participant|process|writer|reader|publisher|subscriber|recorder|owner|peer)s?\b)",
}
BETWEEN_WORDS = r"(?:[\s*#]|//)+"  # a phrase may go on in the next line of a comment


def files(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file())


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@functools.cache
def words_of(identifier: str) -> set[str]:
    """`kSeatCount`, `seat_count` and `SeatCount` alike: {"seat", "count"}; a plural counts as its singular."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)
    return {part.lower().removesuffix("s") for part in parts}


def python_names(text: str) -> Iterator[str]:
    """What a module defines. Names that it only uses are defined elsewhere."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def cpp_names(text: str) -> Iterator[str]:
    """Every identifier outside comments and strings, but for those of the Python C API."""
    code = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', " ", text, flags=re.DOTALL)
    yield from (name for name in re.findall(r"[A-Za-z_]\w*", code) if not name.startswith("Py"))


@functools.cache
def names_in(path: Path) -> set[str]:
    text = path.read_text()
    return {path.stem, *(python_names(text) if path.suffix in (".py", ".pyi") else cpp_names(text))}


def is_retired(noun: str, identifier: str, path: str) -> bool:
    if noun not in words_of(identifier) or (path, identifier) in EXCEPTIONS:
        return False
    if path.startswith(tuple(OTHER_MEANINGS.get(noun, ()))):
        return False
    if noun == "place" and "in_place" in identifier.lower():
        return False  # "in place": without a copy
    return not (noun == "segment" and SEGMENTS_BELONG_TO.search(path))


def all_names() -> Iterator[tuple[str, str]]:
    """Of every source, its path and a name in it."""
    for path in files("src/**/*.py", "src/**/*.pyi", "native/**/*.[ch]pp", "native/**/*.py", "tests/**/*.py"):
        if path != Path(__file__):
            yield from ((name_of(path), identifier) for identifier in sorted(names_in(path)))


@pytest.mark.parametrize("noun", RETIRED_NOUNS)
def test_retired_nouns_are_not_in_names(noun: str) -> None:
    found = [f"{path}: {identifier}" for path, identifier in all_names() if is_retired(noun, identifier, path)]
    assert not found, f"say {RETIRED_NOUNS[noun]} instead of {noun}:\n" + "\n".join(found)


@pytest.mark.parametrize("noun", NO_PLAIN_ENGLISH)
def test_retired_nouns_are_not_in_texts_either(noun: str) -> None:
    """In comments, docstrings, errors, pages and titles of the explorer's cases, whatever their ending."""
    pattern = re.compile(NO_PLAIN_ENGLISH[noun])
    found = []
    for path in files(*TEXTS, "native/explore/*.py", "tests/**/*.py", "bench/**/*.py", "examples/**/*"):
        if path.suffix in (".md", ".py", ".pyi", ".cpp", ".hpp") and path != Path(__file__):
            found += found_in(pattern, path)
    assert not found, f"say {RETIRED_NOUNS[noun]} instead of {noun}:\n" + "\n".join(found)


def test_retired_names_do_not_come_back() -> None:
    found = [
        f"{path}: {name}" for path, name in all_names() if name in RETIRED_NAMES or name.strip("_") in RETIRED_NAMES
    ]
    assert not found, f"say {RETIRED_NAMES} instead:\n" + "\n".join(found)


def prose(path: Path) -> str:
    text = path.read_text()
    return text.partition("\n## Retired words")[0] if path == GLOSSARY else text


def found_in(pattern: re.Pattern[str], path: Path) -> list[str]:
    text = prose(path)
    return [f"{name_of(path)}:{text.count(chr(10), 0, match.start()) + 1}" for match in pattern.finditer(text)]


@pytest.mark.parametrize("phrase", PHRASES)
def test_retired_phrases_are_not_in_prose(phrase: str) -> None:
    pattern = re.compile(rf"\b{PHRASES[phrase].replace(' ', BETWEEN_WORDS)}\b", re.IGNORECASE)
    found = [at for path in files(*TEXTS) for at in found_in(pattern, path)]
    assert not found, f'"{phrase}" stops a reader; say it plainly:\n' + "\n".join(found)


def test_the_glossary_lists_what_was_retired() -> None:
    retired = GLOSSARY.read_text().partition("\n## Retired words")[2]
    for word in [*RETIRED_NOUNS, *RETIRED_NAMES, *PHRASES]:
        assert f"| {word} |" in retired, f"{word} is not in the glossary's list of retired words"
