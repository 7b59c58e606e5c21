"""Print what the extras named on the command line require, so that dependencies can be installed on their own.

`pip install .[dev]` would build the native module each time; the Makefile wants the two steps apart. With --only,
what ringmain itself requires is left out. With --missing, only what is not installed beside the Python that runs this:
pip takes a minute to find that nothing is.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]


def expand(names: list[str]) -> list[str]:
    found = []
    for name in names:
        for requirement in extras[name]:
            nested = re.fullmatch(r"ringmain\[(.+)\]", requirement)
            found += expand(nested[1].split(",")) if nested else [requirement]
    return found


def is_installed(text: str) -> bool:
    """Itself, and what its extras bring."""
    from pip._vendor.packaging.requirements import Requirement

    wanted = Requirement(text)
    try:
        if not wanted.specifier.contains(version(wanted.name), prereleases=True):
            return False
    except PackageNotFoundError:
        return False
    brought = [Requirement(line) for line in (requires(wanted.name) or []) if wanted.extras]
    return all(
        is_installed(str(one).partition(";")[0])
        for one in brought
        if one.marker and any(one.marker.evaluate({"extra": extra}) for extra in wanted.extras)
    )


flags = {"--only", "--missing"} & {*sys.argv}
own = [] if "--only" in flags else project["dependencies"]
wanted = dict.fromkeys([*own, *expand([name for name in sys.argv[1:] if name not in flags])])
print("\n".join(one for one in wanted if "--missing" not in flags or not is_installed(one)))
