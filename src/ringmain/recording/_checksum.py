"""Checksums inside the bytes they protect, and files that are replaced as a whole.

A *stamp* is eight lowercase hex digits inside a block of bytes, after a marker. Its value is the CRC-32 of the whole
block with the stamp's own digits read as `00000000`. So a protected file stays a plain Arrow stream, Parquet file or
JSON document, without a second file of checksums that could get lost or disagree.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from isal.isal_zlib import crc32 as crc32  # zlib's values, at ten times its speed

DIGITS = 8
BLANK = b"0" * DIGITS
JSON_MARKER = b'"crc": "'

T = TypeVar("T", bound=msgspec.Struct)


def hex_crc(value: int) -> bytes:
    return b"%08x" % value


def stamped_crc(block: bytes | bytearray | memoryview, at: int) -> int:
    """The CRC of `block` with the digits at `at` read as zeros."""
    view = memoryview(block)
    return crc32(view[at + DIGITS :], crc32(BLANK, crc32(view[:at])))


def is_intact(block: bytes, marker: bytes) -> bool:
    """Does the block have the marker, and the right digits after it?"""
    at = block.find(marker)
    if at < 0:
        return False
    at += len(marker)
    return block[at : at + DIGITS] == hex_crc(stamped_crc(block, at))


def dump_json(document: msgspec.Struct) -> bytes:
    """JSON with its `crc` field stamped; the struct's first field must be `crc`."""
    blank = msgspec.structs.replace(document, crc=BLANK.decode())
    text = bytearray(msgspec.json.format(msgspec.json.encode(blank), indent=2))
    at = text.index(JSON_MARKER) + len(JSON_MARKER)
    text[at : at + DIGITS] = hex_crc(stamped_crc(text, at))
    return bytes(text)


def load_json(data: bytes, kind: type[T]) -> T | None:
    """The document, or None when it does not pass its own checksum or does not fit its type."""
    if not is_intact(data, JSON_MARKER):
        return None
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def replace_file(
    path: Path, data: bytes, *, sync: bool = False, before_rename: Callable[[], None] | None = None
) -> None:
    """Write, then rename: a reader sees the complete old file or the complete new one."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(data)
    if sync:
        sync_file(temporary)
    if before_rename is not None:
        before_rename()
    os.replace(temporary, path)
    if sync:
        sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Make what was written to a file survive a loss of power."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Make renames, creations and deletions in a directory survive a loss of power."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
