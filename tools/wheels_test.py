"""Test what `make wheels` built, as users get it. `make wheels-test` runs this; arguments are what pytest runs.

- This machine's wheel: installed into a fresh environment, with no compiler on PATH, and timed. Then the tests run on
  it, in a copy of the repository whose src/ is the installed package. Test tools come from .venv, by path.
- The same wheel, for C++ and C: programs that this machine's compiler makes with what `ringmain config` says. zig built
  the library, so it has another C++ library inside than they have.
- The sdist: built and installed into a fresh environment.
- The aarch64 wheel, on x86_64: imported, and its ring tests run, by an aarch64 Python under qemu-user. Both come from
  the machine's own apt sources and are unpacked under build/; nothing is installed. Without apt, this part is left
  out, and the output says so; `make aarch64` (the native tests under qemu) does not need a Python.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from wheels import DIST, GLIBC, ROOT, WORK, run

COMPILER = re.compile(r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|c[89]9|cpp|ld|ld\..*|zig|cmake|ninja)(-[\d.]+)?")
EXCHANGE = """
import ringmain as rm
with rm.Publisher("wheel") as pub, rm.Subscriber("wheel") as sub:
    pub.send(b"hello")
    assert sub.recv(timeout=10) == b"hello"
print(rm.__file__)
"""
COMPILED = [
    *("-m", "installed or not installed", "tests/cpp"),
    *(f"tests/project/test_examples.py::test_example[{name}]" for name in ("cpp_driver", "c_reader")),
]
EMULATED = ["tests/ring", "tests/frames"]
# What an emulator cannot show: seccomp sees the emulator's own calls, and page faults and huge pages are the host's.
NOT_EMULATED = ["tests/ring/test_no_syscall.py", "tests/ring/test_page_faults.py", "tests/frames/test_interop.py"]


def find_wheel(arch: str) -> Path:
    found = sorted(DIST.glob(f"*_{arch}.whl"))
    if len(found) != 1:
        sys.exit(f"dist/ has {len(found)} wheels for {arch}; run `make wheels`")
    return found[0]


def path_without_compiler() -> str:
    """A folder with links to every program on PATH, except for compilers."""
    folder = WORK / "no-compiler"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for directory in os.environ["PATH"].split(":"):
        for program in Path(directory).glob("*"):
            if not COMPILER.fullmatch(program.name) and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


def fresh_environment(name: str) -> tuple[Path, Path]:
    """(Python, site-packages) of a new virtual environment."""
    folder = WORK / name
    run(sys.executable, "-m", "venv", "--clear", folder)
    (site,) = folder.glob("lib/python*/site-packages")
    return folder / "bin/python", site


def copy_of_the_tests(name: str, installed: Path) -> Path:
    """The repository, but with the installed package as src/: tests that put src/ on their path get the wheel."""
    tree = WORK / name
    shutil.rmtree(tree, ignore_errors=True)
    listed = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True)
    for file in listed.splitlines():
        if not file.startswith("src/") and (ROOT / file).exists():
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, tree / file)
    for package in ("ringmain", "pyspark_ringmain"):
        shutil.copytree(installed / package, tree / "src" / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tree


def test_native(paths: list[str]) -> list[int]:
    wheel = find_wheel(platform.machine())
    print(f"== {wheel.name}: a fresh environment without a compiler", flush=True)
    python, site = fresh_environment("fresh")
    environment = {**os.environ, "PATH": f"{python.parent}:{path_without_compiler()}"}
    environment.pop("PYTHONPATH", None)
    start, before = time.monotonic(), os.times()
    run(python, "-m", "pip", "install", "--disable-pip-version-check", "--only-binary", ":all:", wheel, env=environment)
    _print_time("installed with its dependencies", start, before)
    run(python, "-c", EXCHANGE, env=environment, cwd=WORK)
    _print_time("from pip install to the first message", start, before)
    # A line of a .pth adds a folder without what that folder's own .pth files would add: this source tree.
    (site / "test-tools.pth").write_text(sysconfig.get_path("purelib") + "\n")
    tree = copy_of_the_tests("tree", site)
    pytest = [python, "-m", "pytest", "-p", "no:cacheprovider"]
    codes = [subprocess.run([*pytest, *paths], cwd=tree, env=environment).returncode]
    print(f"== {wheel.name}: programs of C++ and C", flush=True)
    environment["PATH"] = f"{python.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"  # CMake is ours
    return [*codes, subprocess.run([*pytest, *COMPILED], cwd=tree, env=environment).returncode]


def _print_time(what: str, start: float, before: os.times_result) -> None:
    """By the clock, and of the processor: on a busy machine only the second says something about the wheel."""
    after, took_s = os.times(), time.monotonic() - start
    processor_s = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"{what}: {took_s:.1f} s ({processor_s:.1f} s of processor time)", flush=True)


def test_sdist() -> None:
    (sdist,) = DIST.glob("*.tar.gz")
    print(f"== {sdist.name}: build and install", flush=True)
    python, _ = fresh_environment("fresh-sdist")
    run(python, "-m", "pip", "install", "--disable-pip-version-check", sdist)
    run(python, "-c", EXCHANGE, cwd=WORK)


def apt(folder: Path, *words: str) -> None:
    """apt-get for arm64 packages, with all its state below a folder of ours and the machine's own sources."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    settings = {
        "Dir::State": folder / "state", "Dir::State::status": folder / "status", "Dir::Cache": folder / "cache",
        "APT::Architecture": "arm64", "APT::Architectures": "arm64", "APT::Sandbox::User": "", "Debug::NoLocking": "1",
    }  # fmt: skip
    run("apt-get", *(f"-o{name}={value}" for name, value in settings.items()), "--quiet", "--yes", *words)


def make_emulated_python() -> Path:
    """A program that runs an aarch64 Python under qemu-user."""
    folder = WORK / "emulated"
    root, program = folder / "root", folder / "python"
    if program.exists():
        return program
    apt(folder / "apt", "update")
    apt(folder / "apt", "install", "--download-only", "--no-install-recommends", "python3", "libstdc++6")
    run("apt-get", "--quiet", "download", "qemu-user-static", cwd=folder)
    for package in [*(folder / "apt/cache/archives").glob("*.deb"), *folder.glob("qemu*.deb")]:
        run("dpkg-deb", "--extract", package, folder if package.parent == folder else root)
    (python,) = (root / "usr/bin").glob("python3.[0-9]*")
    program.write_text(f'#!/bin/sh\nexec {folder}/usr/bin/qemu-aarch64-static -L {root} {python} "$@"\n')
    program.chmod(0o755)
    return program


def test_emulated() -> int:
    wheel = find_wheel("aarch64")
    print(f"== {wheel.name}: under qemu-user", flush=True)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        print("left out: the aarch64 Python comes from apt, and there is no apt. `make aarch64` runs the native tests")
        return 0
    python = make_emulated_python()
    version = subprocess.run([python, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, text=True)
    site = WORK / "emulated/site"
    shutil.rmtree(site, ignore_errors=True)
    run(sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--target", site,
        "--only-binary", ":all:", "--python-version", f"3.{version.stdout.strip()}", "--implementation", "cp",
        "--platform", f"manylinux_{GLIBC[0]}_{GLIBC[1]}_aarch64", "--platform", "manylinux2014_aarch64",
        "--platform", "manylinux_2_28_aarch64",
        wheel, "pytest", "pytest-timeout", "hypothesis", "numpy", "pyarrow")  # fmt: skip
    # The kernel cannot start an aarch64 program by itself, so child processes are started through the emulator, too.
    (site / "sitecustomize.py").write_text(f"import sys\nsys.executable = {str(python)!r}\n")
    environment = {**os.environ, "PYTHONPATH": str(site)}
    run(python, "-c", EXCHANGE, env=environment, cwd=WORK)
    ignored = [f"--ignore={path}" for path in NOT_EMULATED]
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", "--timeout", "900", *ignored, *EMULATED]
    return subprocess.run(command, cwd=copy_of_the_tests("tree-aarch64", site), env=environment).returncode


def main() -> None:
    codes = test_native(sys.argv[1:])
    test_sdist()
    if platform.machine() == "x86_64":
        codes.append(test_emulated())
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
