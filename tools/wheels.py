"""Build what is published, into dist/: the sdist, and manylinux wheels for x86_64 and aarch64. `make wheels` runs this.

One machine builds both wheels: the compiler is zig (PyPI: ziglang), which cross-compiles and links for an old glibc.
The modules use Python's stable ABI, so one wheel serves CPython 3.11 and newer. auditwheel checks each wheel and tags
it. The tools are in an environment of their own, build/wheels/tools. `tools/wheels_test.py` tests what this builds.

A header of the building Python, pyconfig.h, is used for both architectures. Both are 64-bit Linux, so it fits. Debian's
own Python has a header that includes another one for each architecture: there, use a Python from elsewhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
WORK = ROOT / "build/wheels"
ARCHITECTURES = ("x86_64", "aarch64")
GLIBC = (2, 17)  # manylinux2014: the oldest that current tools support, and what the wheel of msgspec needs


def run(*words: object, **more: object) -> None:
    """Runs a command; its output is shown only if it fails."""
    done = subprocess.run([*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed ({done.returncode}): {' '.join(map(str, words))}")


def make_tools() -> Path:
    """The environment with zig, auditwheel and the build tools; returns its bin folder."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["build-system"]["requires"] + project["project"]["optional-dependencies"]["wheels"]
    tools, stamp = WORK / "tools", WORK / "tools/.installed"
    if not stamp.exists() or stamp.read_text() != "\n".join(wanted):
        print("== the tools, once", flush=True)
        run(sys.executable, "-m", "venv", "--clear", tools)
        run(tools / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted)
        stamp.write_text("\n".join(wanted))
    return tools / "bin"


def write_compiler(path: Path, tools: Path, arch: str) -> Path:
    """A program that CMake can use as the C++ compiler.

    It strips, because the machine's own `strip` knows only its own architecture. It always does, because zig compiles
    its libc++ once for each such setting.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    target = f"{arch}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    path.write_text(f'#!/bin/sh\nexec {tools}/python -m ziglang c++ -target {target} -s "$@"\n')
    path.chmod(0o755)
    return path


def commit_time(commit: str) -> str:
    done = subprocess.run(["git", "log", "-1", "--format=%ct", commit], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "315532800"  # 1980, the earliest that a zip file can say


def build_wheel(tools: Path, arch: str, source: Path = ROOT, commit: str = "HEAD", to: Path = DIST) -> None:
    """The wheel of `source`, which is the tree of `commit`, into `to`."""
    folder = WORK / (arch if source == ROOT else f"{arch}-{commit}")
    shutil.rmtree(folder / "raw", ignore_errors=True)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "CXX": str(write_compiler(folder / "c++", tools, arch)),
        "CMAKE_ARGS": f"-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR={arch}",
        "_PYTHON_HOST_PLATFORM": f"linux-{arch}",
        "SOURCE_DATE_EPOCH": commit_time(commit),  # the same commit gives the same bytes
        "ZIG_GLOBAL_CACHE_DIR": str(WORK / "zig-cache"),
    }
    settings = (f"-Cbuild-dir={folder / 'cmake'}", "-Cinstall.strip=false")
    run(tools / "python", "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "raw", *settings, source,
        env=environment)  # fmt: skip
    (raw,) = (folder / "raw").glob("*.whl")
    # "auto": the oldest tag that the wheel satisfies. A tag can be asked for only for this machine's architecture.
    run(tools / "auditwheel", "repair", "--plat", "auto", "--wheel-dir", to, raw, env=environment)
    tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{arch}"
    if not list(to.glob(f"*{tag}.whl")):
        sys.exit(f"auditwheel did not find {raw.name} to be {tag}: `auditwheel show` says why")


def main() -> None:
    tools = make_tools()
    shutil.rmtree(DIST, ignore_errors=True)
    run(tools / "python", "-m", "build", "--sdist", "--no-isolation", "--outdir", DIST, ROOT)
    for arch in sys.argv[1:] or ARCHITECTURES:
        print(f"== {arch}, with zig", flush=True)
        build_wheel(tools, arch)
    for file in sorted(DIST.iterdir()):
        print(f"{file.relative_to(ROOT)}  {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
