"""libringmain where a wheel or `cmake --install` puts it: it needs nothing but the C and the C++ library, and programs
of g++ that find it talk with Python.

How: a root directory with a program, what `ldd` lists and a /proc, as in a container from scratch: Python sends from
outside. What CMake installs without Python is compared with what this ringmain has beside it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ringmain as rm
from ringmain._cli.commands import config
from tests.cpp.compiling import CC, CXX, EXAMPLES, compiled, library

ROOT = EXAMPLES.parent
OF_THE_SYSTEM = re.compile(r"(linux-vdso|ld-linux-\S+|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s))\.so\.\d+")
ECHO = """
#include <ringmain/ringmain.hpp>
int main() {
    ringmain::Subscriber there("there");
    ringmain::Publisher back("back", {.contract = ringmain::Contract::reliable, .sender = "echo"});
    back.wait_for_readers(1).value();
    for (;;) {
        auto message = there.receive().value();
        back.send(message.bytes()).value();
        if (message.bytes().size() == 3) return 0;
    }
}
"""


def needed(binary: Path) -> dict[str, Path | None]:
    """The shared objects that it is run with: by name, where they are."""
    done = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        name, _, where = line.strip().partition(" => ")
        path = Path((where or name).split()[0])
        found[Path(name.split()[0]).name] = path if path.exists() else None
    return found


def test_it_needs_the_c_and_the_cpp_library_and_nothing_else() -> None:
    assert [name for name in needed(library()) if not OF_THE_SYSTEM.fullmatch(name)] == []


def test_it_works_in_a_root_that_has_nothing_else(tmp_path: Path, runtime_dir: Path, monkeypatch) -> None:
    source = tmp_path / "echo.cpp"
    source.write_text(ECHO)
    program = compiled(source, tmp_path, CXX, "-std=c++20")
    root = runtime_dir / "root"
    for path in [program, *filter(None, needed(program).values())]:
        (root / path.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, root / path.relative_to("/"))
    (root / "topics").mkdir()
    (root / "proc").mkdir()
    namespaces = ["unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
    within = [*namespaces, f"--mount-proc={root}/proc", "chroot", root]
    loader = next(path for name, path in needed(program).items() if name.startswith("ld-linux"))
    if (
        shutil.which("unshare") is None
        or subprocess.run([*within, loader, "--version"], capture_output=True).returncode
    ):
        pytest.skip("no other root can be entered here")
    monkeypatch.setenv("RINGMAIN_DIR", str(root / "topics"))
    environment = {"PATH": os.environ["PATH"], "RINGMAIN_DIR": "/topics"}
    with (
        rm.Publisher("there", contract="reliable", min_readers=1) as there,
        rm.Subscriber("back") as back,
        subprocess.Popen([*within, program], env=environment) as inside,
    ):
        try:
            for data in (b"", b"from Python", b"end"):
                there.send(data, timeout=60)
                message = back.recv_message(timeout=60)
                assert (bytes(message.data), message.sender) == (data, "echo")
            assert inside.wait(60) == 0
        finally:
            inside.kill()


@pytest.mark.installed
def test_cmake_installs_the_same_without_python(tmp_path: Path, runtime_dir: Path) -> None:
    """And what it installs is found by CMake, and by a compiler through pkg-config's file."""
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{ROOT / '.venv/bin'}:/usr/local/bin:/usr/bin")
    if cmake is None or shutil.which(CXX[0]) is None:
        pytest.skip("there is no CMake or no compiler")
    build, prefix = tmp_path / "build", tmp_path / "prefix"
    for step in (
        ["-S", ROOT / "native", "-B", build],
        ["--build", build, "--target", "ringmain_shared", "--parallel", "2"],
        ["--install", build, "--prefix", prefix],
    ):
        subprocess.run([cmake, *step], check=True, capture_output=True, env={"PATH": "/usr/bin:/bin"})
    (installed,) = prefix.glob("lib*/**/libringmain.so.0")
    for folder in ("include/ringmain", f"{installed.parent.name}/cmake/ringmain", f"{installed.parent.name}/pkgconfig"):
        ours = config.root() / folder.replace(installed.parent.name, "lib")
        assert {path.name for path in (prefix / folder).iterdir()} == {path.name for path in ours.iterdir()}
    for path in (prefix / "include/ringmain").iterdir():
        assert path.read_bytes() == (config.root() / "include/ringmain" / path.name).read_bytes()
    assert exported(installed) == exported(library())

    drivers = tmp_path / "drivers"
    for step in (
        ["-S", EXAMPLES / "cpp_driver", "-B", drivers, f"-DCMAKE_PREFIX_PATH={prefix}"],
        ["--build", drivers, "--parallel", "2"],
    ):
        subprocess.run([cmake, *step], check=True, capture_output=True)
    with rm.FrameSubscriber("robot/camera") as camera, subprocess.Popen([drivers / "camera"]) as driver:
        with camera.recv(timeout=60) as frame:
            assert frame.array.shape == (48, 64)
        assert driver.wait(60) == 0

    text = (installed.parent / "pkgconfig/ringmain.pc").read_text()
    words = {"pcfiledir": str(installed.parent / "pkgconfig"), **dict(re.findall(r"^(\w+)=(.*)$", text, re.M))}
    flags = " ".join(re.findall(r"^(?:Libs|Cflags): (.*)$", text, re.M))
    while "${" in flags:
        flags = re.sub(r"\$\{(\w+)\}", lambda found: words[found[1]], flags)
    reader = [*CC, EXAMPLES / "c_reader/reader.c", *flags.split(), f"-Wl,-rpath,{installed.parent}"]
    subprocess.run([*reader, "-o", tmp_path / "reader"], check=True)
    with rm.Publisher("greetings", contract="reliable", min_readers=1, sender="python") as pub:
        running = subprocess.Popen([tmp_path / "reader", "greetings", "1"], stdout=subprocess.PIPE, text=True)
        pub.send(b"hello", timeout=60)
        assert running.communicate(timeout=60)[0].splitlines()[0] == "0 python: hello"


def exported(shared: Path) -> set[str]:
    done = subprocess.run(["nm", "--dynamic", "--defined-only", shared], capture_output=True, text=True, check=True)
    names = {line.split()[-1] for line in done.stdout.splitlines()}
    return {
        name for name in names if not name.startswith("RINGMAIN_")
    }  # the version itself, which not every linker lists
