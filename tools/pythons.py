"""Print the CPythons from 3.11 on that are on PATH or under pyenv, oldest first, as `3.13 /path/to/python3.13`.

`python tools/pythons.py 3.12 3.13` prints only those, `newest` the last if it is newer than the Python that runs this.
`make test-pythons` runs the tests on each.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)
ASK = "import sys; print(sys.implementation.name, *sys.version_info[:2])"


def candidates() -> list[Path]:
    """Every python3.N, with those of PATH first: a pyenv shim of a version that is not chosen does not run."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders = [*map(Path, os.get_exec_path()), *sorted(pyenv.glob("versions/*/bin"), reverse=True)]
    named = (path for folder in folders if folder.is_dir() for path in folder.iterdir())
    return [path for path in named if re.fullmatch(r"python3\.\d+", path.name) and os.access(path, os.X_OK)]


def version(python: Path) -> tuple[int, int] | None:
    """Of a CPython; None for another, and for what does not run."""
    try:
        asked = subprocess.run([python, "-I", "-c", ASK], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    name, major, minor = asked.stdout.split()
    return (int(major), int(minor)) if name == "cpython" else None


def found() -> dict[str, Path]:
    """By version, oldest first."""
    pythons: dict[tuple[int, int], Path] = {}
    for python in candidates():
        if (its := version(python)) is not None and its >= OLDEST:
            pythons.setdefault(its, python)
    return {f"{major}.{minor}": path for (major, minor), path in sorted(pythons.items())}


def main(wanted: list[str]) -> None:
    pythons = found()
    if wanted == ["newest"]:
        this = "{}.{}".format(*sys.version_info)
        wanted = [*pythons][-1:]
        if wanted in ([], [this]):
            return
    if missing := set(wanted) - set(pythons):
        sys.exit(f"there is no CPython {', '.join(sorted(missing))} here")
    for name in wanted or pythons:
        print(name, pythons[name])


if __name__ == "__main__":
    main(sys.argv[1:])
