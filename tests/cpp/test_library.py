"""What is shipped for C++ and C: it exports what the header says, needs no Python, and is found by compilers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ringmain as rm
from ringmain._cli.commands import config
from tests.cpp.compiling import CC, CXX, compiled, library, ringmain_config

INCLUDE = config.root() / "include/ringmain"
RECORD = Path(__file__).parents[2] / "native/face/ringmain.abi"
PROGRAM = """
#include <ringmain/ringmain.hpp>
int main() {
    ringmain::Publisher publisher("t");
    return publisher.send(ringmain::Bytes()).has_value() ? 0 : 1;
}
"""


def symbols(*options: str) -> list[str]:
    done = subprocess.run(["nm", "--dynamic", *options, library()], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(done.stderr)
    return [line.split()[-1] for line in done.stdout.splitlines()]


def test_it_exports_what_the_header_declares_and_nothing_else() -> None:
    declared = set(re.findall(r"RINGMAIN_API [\w* ]+?\b(ringmain_\w+)\(", (INCLUDE / "ringmain.h").read_text()))
    exported = {name for name in symbols("--defined-only") if not name.startswith("RINGMAIN_")}
    assert exported == {f"{name}@@RINGMAIN_0.1" for name in declared}


def test_it_has_what_the_last_release_had() -> None:
    """By name; `make abi` compares the types, too."""
    before = set(re.findall(r"<elf-symbol name='(\w+)' version='([\w.]+)'", RECORD.read_text()))
    assert len(before) > 20
    assert {f"{name}@@{version}" for name, version in before} <= set(symbols("--defined-only"))


def test_it_has_no_symbol_of_python() -> None:
    assert not [name for name in symbols("--undefined-only") if name.startswith(("Py", "_Py"))]
    needed = subprocess.run(["ldd", library()], capture_output=True, text=True).stdout
    assert "python" not in needed
    for header in INCLUDE.iterdir():
        assert "Python.h" not in header.read_text()


def test_a_program_without_python_runs(tmp_path: Path, runtime_dir: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text(PROGRAM)
    program = compiled(source, tmp_path, CXX, "-std=c++20")
    environment = {"RINGMAIN_DIR": str(runtime_dir)}
    assert subprocess.run([program], env=environment, timeout=60).returncode == 0
    assert rm.topics() == []


def test_the_header_of_c_is_c(tmp_path: Path) -> None:
    source = tmp_path / "only.c"
    source.write_text("#include <ringmain/ringmain.h>\nint main(void) { return ringmain_version()[0] != '0'; }\n")
    assert subprocess.run([compiled(source, tmp_path, CC, "-std=c99", "-pedantic")]).returncode == 0


def test_config_names_what_is_there() -> None:
    (cmake,), (pkgconfig,) = ringmain_config("--cmake-dir"), ringmain_config("--pkgconfig-dir")
    assert {path.name for path in Path(cmake).iterdir()} >= {"ringmain-config.cmake", "ringmain-config-version.cmake"}
    text = (Path(pkgconfig) / "ringmain.pc").read_text()
    assert f"Version: {rm.__version__}" in text
    prefix = Path(pkgconfig) / re.findall(r"^prefix=\$\{pcfiledir\}/(.*)$", text, re.M)[0]
    (include,) = re.findall(r"^includedir=\$\{prefix\}/(.*)$", text, re.M)
    assert (prefix / include / "ringmain/ringmain.hpp").exists()
    everything = subprocess.run([sys.executable, "-m", "ringmain", "config"], capture_output=True, text=True).stdout
    assert [line.split(":")[0] for line in everything.splitlines()] == ["cmake-dir", "pkgconfig-dir", "cflags", "libs"]
