"""Does the library still have what programs were built against? `make abi` runs this; `--record` at a release.

What crosses the border is `ringmain.h` alone: its functions, structs, enums and constants, with the versions of
`ringmain.map`. So those are compared with native/face/ringmain.abi, the dump of the last release, by abidiff (Debian:
abigail-tools; without it one is fetched into build/, where apt-get can). A library of the header's functions without
bodies is made for that: of the real one, abidiff would also compare the C++ behind it. tests/cpp/test_library.py holds
the real one against header and map.

A function that is added is fine. Whatever else is another fails. Where a struct that begins with `size` has grown at
its end, or an enum has more names, old programs go on: record it. Otherwise raise SOVERSION of native/face.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "native/include/ringmain/ringmain.h"
MAP = ROOT / "native/face/ringmain.map"
RECORD = ROOT / "native/face/ringmain.abi"
FETCHED = ROOT / "build/abigail"


def bodies(header: str) -> str:
    """A source that defines every function that the header declares."""
    declared = re.findall(r"^RINGMAIN_API ([^;{]+);", header, re.MULTILINE)
    return "#include <ringmain/ringmain.h>\n" + "".join(f"{one} {{ __builtin_trap(); }}\n" for one in declared)


def abigail(program: str) -> list[str] | None:
    """The command, or None where there is none, and none can be had."""
    if found := shutil.which(program):
        return [found]
    if not FETCHED.exists():
        FETCHED.mkdir(parents=True)
        for package in ("abigail-tools", "libabigail0"):
            subprocess.run(["apt-get", "download", package], cwd=FETCHED, capture_output=True)
        for deb in FETCHED.glob("*.deb"):
            subprocess.run(["dpkg", "-x", deb, FETCHED], check=True)
    library = next(FETCHED.glob("usr/lib/**/libabigail.so*"), None)
    return library and ["env", f"LD_LIBRARY_PATH={library.parent}", str(FETCHED / "usr/bin" / program)]


def build(folder: Path) -> Path:
    source, library = folder / "ringmain.c", folder / "libringmain.so.0"
    source.write_text(bodies(HEADER.read_text()))
    options = ["-g", "-shared", "-fPIC", f"-I{HEADER.parents[1]}", f"-Wl,--version-script={MAP}"]
    options += [f"-ffile-prefix-map={folder}=.", f"-ffile-prefix-map={ROOT}=.", f"-Wl,-soname,{library.name}"]
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), *options, source, "-o", library], check=True)
    return library


def main() -> int:
    dump, diff = abigail("abidw"), abigail("abidiff")
    if not dump or not diff:
        print("there is no abidiff, and apt-get cannot fetch it: Debian's package is abigail-tools")
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        library = build(Path(scratch))
        if sys.argv[1:] == ["--record"]:
            options = ["--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", "--out-file", str(RECORD)]
            subprocess.run([*dump, *options, library], check=True)
            print(f"recorded: {RECORD.relative_to(ROOT)}")
            return 0
        done = subprocess.run([*diff, "--no-added-syms", RECORD, library], capture_output=True, text=True)
    print(done.stdout + done.stderr, end="")
    if done.returncode:
        print("not what the last release had: see the head of tools/abi.py")
        return 1
    print("all that the last release had is there, and is the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
