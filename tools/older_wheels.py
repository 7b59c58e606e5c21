"""The wheels of older states, each installed, beside this state's from dist/. `make test-versions` runs this, and then
tests/lab/test_versions.py on every pair of them.

The older states are the last release, if a tag says which that is, and a commit of each earlier layout of topics. Their
wheels are built once, as `make wheels` builds this state's, and kept in build/wheels/older.
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

# A commit of each layout of topics so far: whoever raises it adds the commit before.
LAYOUTS = {
    3: "0bbc6a70077dab7ae60d4fd785fb023391adefb1",
    4: "34e6662e984106dede19cccd436b9e077258678e",
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
