"""Print what the extras named on the command line require, so that dependencies can be installed on their own.

`pip install .[dev]` would build the native module each time; the Makefile wants the two steps apart.
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


print("\n".join(dict.fromkeys([*project["dependencies"], *expand(sys.argv[1:])])))
