"""The wheels of older states, each installed, beside this state's from dist/. `make test-versions` runs this, and then
tests/lab/test_versions.py on every pair of them.

The older states are the last release, if a tag says which that is, and a commit of each layout of topics. Their wheels
are built once, as `make wheels` builds this state's, and kept in build/wheels/older.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from wheels import ROOT, WORK, build_wheel, make_tools, run
from wheels_test import find_wheel, fresh_environment

# The last commit of each layout of topics, and of this one the first, with which this state must work: whoever raises
# it puts the commit before in its place, and adds their own once it has landed.
LAYOUTS = {
    1: "c581a53e362e632ae1630ade31613fa3703b0235",
    2: "ac4f8c6364925b08ced0187dc23def181b33e8fd",
    3: "0bbc6a70077dab7ae60d4fd785fb023391adefb1",
    4: "e57f5c33542f517a34e24f9d8d2ccf32ba3bc3f8",
    5: "23006f5c5d5da7017e227abacd6ababfe5787a14",
}
BESIDE = ("pyarrow", "isal", "numpy")  # recordings and frames of all of them


def last_release() -> list[str]:
    tags = ["git", "tag", "--list", "v*", "--sort=-version:refname"]
    done = subprocess.run(tags, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split()[:1]


def wheel_of(commit: str, tools: Path) -> Path:
    to = WORK / "older" / commit
    if not list(to.glob("*.whl")):
        print(f"== the wheel of {commit}, once", flush=True)
        source = WORK / "source" / commit
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE)
        if archive.returncode:
            sys.exit(f"there is no commit {commit}: this wants a clone with its history")
        subprocess.run(["tar", "--extract"], cwd=source, input=archive.stdout, check=True)
        build_wheel(tools, platform.machine(), source, commit, to)
        shutil.rmtree(source)
    (wheel,) = to.glob("*.whl")
    return wheel


def installed(name: str, wheel: Path) -> Path:
    """The Python of an environment with this wheel."""
    python, _ = fresh_environment(f"versions/{name}")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    run(*pip, wheel, *BESIDE)
    return python


def main() -> None:
    tools = make_tools()
    commits = {f"layout-{number}": commit for number, commit in LAYOUTS.items()}
    commits |= {tag: tag for tag in last_release()}
    older = {name: wheel_of(commit, tools) for name, commit in commits.items()}
    wheels = {"this": find_wheel(platform.machine()), **older}
    pythons = [f"{name}={installed(name, wheel)}" for name, wheel in wheels.items()]
    command = [sys.executable, "-m", "pytest", "tests/lab/test_versions.py", *sys.argv[1:]]
    sys.exit(subprocess.run(command, cwd=ROOT, env={**os.environ, "RINGMAIN_PYTHONS": ",".join(pythons)}).returncode)


if __name__ == "__main__":
    main()
