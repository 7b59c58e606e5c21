"""Imports inside ringmain.recording point one way: from the format to segments, to readers, to the recorder and replay.

Counted are imports anywhere in a file, also inside functions.
"""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src/ringmain/recording"
LEVELS = (
    {"_format", "_checksum", "_meta", "_json_form"},
    {"_segment"},
    {
        "_filters",
        "_message",
        "_frames",
        "_decode",
        "_directory_watch",
        "_in_incidents",
        "_upkeep",
        "_locations",
        "_plan",
    },
    {"_reader"},
    {"_record", "_replay", "_mcap", "_figures", "_scan"},
    {"_past"},
    {"_seam"},
    {"_import", "_history", "_offsets"},
    {"__init__"},
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}


def rooms_imported_by(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ringmain.recording"):
            inside = (node.module or "").split(".")[2:]
            found |= {inside[0]} if inside else {alias.name for alias in node.names}
    return found


def test_imports_point_one_way() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert {file.relative_to(PACKAGE).parts[0].removesuffix(".py") for file in files} == LEVEL.keys()
    for file in files:
        room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for imported in rooms_imported_by(file) - {room}:
            allowed = LEVEL[imported] < LEVEL[room] or (LEVEL[imported] == LEVEL[room] and LEVEL[room] in (0, 2))
            assert allowed, f"{file.relative_to(PACKAGE)} imports {imported}"
