"""`ringmain config`: where the C++ and C library is, for CMake, pkg-config and compilers."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from ringmain import _ring
from ringmain._cli.exit_codes import CommandError

EXAMPLES = [
    ("all of it", "ringmain config"),
    ("CMake: what CMAKE_PREFIX_PATH is to name, for find_package(ringmain)", "ringmain config --cmake-dir"),
    ("c++ -std=c++20 driver.cpp with these words", "ringmain config --cflags --libs"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    for option, what in (
        ("cmake-dir", "the directory that CMAKE_PREFIX_PATH or ringmain_DIR is to name"),
        ("pkgconfig-dir", "the directory that PKG_CONFIG_PATH is to name"),
        ("cflags", "what to compile with"),
        ("libs", "what to link with; the program finds the library where it is now"),
    ):
        parser.add_argument(f"--{option}", action="store_true", help=f"print {what}")


def run(args: argparse.Namespace) -> None:
    there = root()
    library = next((there / "lib").glob("libringmain.so.*"))
    lib = str(library.parent)
    words = {
        "cmake_dir": [f"{lib}/cmake/ringmain"],
        "pkgconfig_dir": [f"{lib}/pkgconfig"],
        "cflags": [f"-I{there}/include"],
        "libs": [f"-L{lib}", f"-Wl,-rpath,{lib}", f"-l:{library.name}"],
    }
    asked = [name for name in words if getattr(args, name)]
    for name in () if asked else words:
        print(f"{name.replace('_', '-') + ':':<15}{shlex.join(words[name])}")
    if asked:
        print(shlex.join(word for name in asked for word in words[name]))


def root() -> Path:
    """Beside the native module, which is elsewhere than the Python files where those are used in place."""
    there = Path(_ring.__file__).parent / "cpp"
    if not (there / "include/ringmain/ringmain.hpp").exists():
        raise CommandError("this ringmain was installed without its C++ library: install it again, with a compiler")
    return there
