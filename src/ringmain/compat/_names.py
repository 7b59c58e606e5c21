"""Names as the originals take them, made names of topics, so that no two become the same."""

from __future__ import annotations

import os
import re


def text(name: str | bytes) -> str:
    return os.fsdecode(name)


def escaped(name: str, keep: str = "") -> str:
    """What a topic's name cannot have, and the dot that marks it, becomes `.2e`, byte by byte. `keep`: may stay."""
    unsafe = re.compile(rb"[^A-Za-z0-9_%s-]" % keep.encode())
    return unsafe.sub(lambda found: b".%02x" % found[0][0], os.fsencode(name)).decode("ascii")
