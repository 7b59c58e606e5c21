"""`python -m ringmain.compat program.py ...`, or `-m module ...`: runs an unchanged program written for msgq or pysyncq
on ringmain. Python programs that it starts with the same interpreter use ringmain, too."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from ringmain.compat import LIBRARIES, alias

USAGE = f"""\
usage: python -m ringmain.compat program.py [argument ...]
       python -m ringmain.compat -m module [argument ...]

Runs a Python program with ringmain in place of {" and ".join(LIBRARIES)}.
"""


def main() -> None:
    words = sys.argv[1:]
    if words[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        return
    if not words or (words[0] == "-m" and len(words) < 2) or (words[0].startswith("-") and words[0] != "-m"):
        sys.exit(USAGE.rstrip())
    directories = alias()
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*directories, *([before] if before else [])])
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    if not Path(words[0]).is_file():
        sys.exit(f"there is no program {words[0]!r}\n{USAGE.rstrip()}")
    sys.argv = words
    sys.path.insert(len(directories), str(Path(words[0]).resolve().parent))  # as Python does for a script
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
