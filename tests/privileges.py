"""What a test needs that not every user has: capabilities of root, or many descriptors. It says so with a mark:

- `privileged`: mounts, other users, namespaces. Skipped without root's capabilities; `make test-privileged` runs these.
- `not_as_root`: what root is refused nothing for. Runs as any user, and as root who can become another.
- `descriptors(count)`: raises its own soft limit, and that of its children; skipped where the hard one is lower.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NEEDED = {"chown": 0, "dac_override": 1, "setgid": 6, "setuid": 7, "sys_admin": 21}


def _capable() -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    (effective,) = (int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return all(effective >> number & 1 for number in NEEDED.values())


CAPABLE = _capable()
"""Root in a container often is not."""


def skip_without_privilege(item: pytest.Item) -> None:
    if item.get_closest_marker("privileged") and not CAPABLE:
        pytest.skip("needs root's capabilities: make test-privileged")
    if item.get_closest_marker("not_as_root") and os.geteuid() == 0 and not CAPABLE:
        pytest.skip("root without capabilities cannot become another user: make test-privileged")


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """So many, for what is inside and the children that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"needs {count} descriptors, and the hard limit is {hard}")
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
