"""Turns names that the original libraries accept into names of topics, without collisions."""

from __future__ import annotations

import os
import re


def text(name: str | bytes) -> str:
    return os.fsdecode(name)


def escaped(name: str, keep: str = "") -> str:
    """Bytes that a topic's name cannot have, and the dot, become a dot and two hex digits. `keep`: allowed bytes."""
    unsafe = re.compile(rb"[^A-Za-z0-9_%s-]" % keep.encode())
    return unsafe.sub(lambda found: b".%02x" % found[0][0], os.fsencode(name)).decode("ascii")
