"""Print what the extras named on the command line require, so that dependencies can be installed on their own.

`pip install .[dev]` would build the native module each time; the Makefile wants the two steps apart. With --only,
what ringmain itself requires is left out.
"""

import re
import sys
import tomllib
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


names = [name for name in sys.argv[1:] if name != "--only"]
own = [] if "--only" in sys.argv else project["dependencies"]
print("\n".join(dict.fromkeys([*own, *expand(names)])))
