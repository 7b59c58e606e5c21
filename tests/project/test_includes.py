"""The rooms of `native/`: each includes only what stands below it, and says so by the room's name."""

from __future__ import annotations

import re
from pathlib import Path

NATIVE = Path(__file__).parents[2] / "native"

# From low to high. What blocks stands on the topic; the faces, the binding among them, on what blocks.
ROOMS = ("base", "format", "rule", "topic", "waiting", "requests", "frames", "recorder", "face", "python")
# Each of them uses any room of the library, and none of the others.
BESIDE = ("explore", "fuzz", "tests")
# What programs include: it stands on itself, by <ringmain/...>.
PUBLIC = "include"
# word.hpp gives way to the explorer's, where that is built.
EXCEPTIONS = {("base/word.hpp", "explore/word.hpp")}


def includes(path: Path) -> list[str]:
    return re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)


def sources() -> dict[str, Path]:
    return {str(path.relative_to(NATIVE)): path for path in sorted(NATIVE.rglob("*.[ch]pp"))}


def test_every_source_is_in_a_room() -> None:
    assert {name.split("/")[0] for name in sources()} == {*ROOMS, *BESIDE, PUBLIC}


def test_includes_name_the_room_and_the_file() -> None:
    wrong = [f"{name}: {each}" for name, path in sources().items() for each in includes(path) if each not in sources()]
    assert not wrong, f"not ROOM/FILE, from native/: {wrong}"


def test_no_room_includes_one_above_it() -> None:
    wrong = []
    for name, path in sources().items():
        room = name.split("/")[0]
        for each in includes(path):
            other = each.split("/")[0]
            allowed = {room, *(ROOMS[: ROOMS.index(room)] if room in ROOMS else ROOMS[:-1])}
            if other not in allowed and (name, each) not in EXCEPTIONS:
                wrong.append(f"{name} includes {each}")
    assert not wrong, "\n".join(wrong)


def test_what_programs_include_stands_on_itself() -> None:
    for name, path in sources().items():
        public = re.findall(r"^#include <ringmain/(.+)>", path.read_text(), re.MULTILINE)
        if name.startswith(PUBLIC):
            assert not includes(path), name
            assert all((NATIVE / "include/ringmain" / each).exists() for each in public), name
        else:
            allowed = {"face": {"ringmain.h"}, "fuzz": {"ringmain.h"}, "tests": {"ringmain.hpp"}}
            assert set(public) <= allowed.get(name.split("/")[0], set()), name


def test_only_the_binding_knows_python() -> None:
    wrong = [
        name for name, path in sources().items() if not name.startswith("python/") and "Python.h" in path.read_text()
    ]
    assert not wrong


def test_there_is_no_cycle_of_includes() -> None:
    graph = {name: includes(path) for name, path in sources().items()}

    def reaches(start: str) -> set[str]:
        seen: set[str] = set()
        pending = [start]
        while pending:
            for target in set(graph.get(pending.pop(), ())) - seen:
                seen.add(target)
                pending.append(target)
        return seen

    assert [name for name in graph if name in reaches(name)] == []
