"""Every allocation of an operation fails once: of the native module, and of Python in its own calls.

    make failing-calls                                    before the system calls: about a minute
    python tests/lab/failing_allocations.py borrow        of the operations that have this in their names

An operation is done again and again, and at the n-th time its n-th allocation fails, until it makes no more. It raises
MemoryError, or does what it is for: nothing else. Afterwards memory is there again, and the same endpoints go on: every
message is received once and in order, and when they are closed no topic is left. So a failed allocation loses no
message, keeps no turn, lock or slot, and stops no thread.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import random
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from operations import FAILED, ON_EACH, ONCE, Case

import ringmain as rm
from ringmain import _contracts

PYTHON_SUCCEEDS = 25
"""So many times in a row without a failure: then the call makes fewer allocations of Python's."""

OF_PYTHON = {
    *("send", "send_many", "try_recv", "recv_many", "recv_messages", "recv_into", "borrow_many", "recv_batch"),
    *("replay", "decode"),
}
"""Short calls of the native module, of which Python's allocations can fail one by one. Others run much Python code."""


def attempts() -> Iterator[tuple[str, Callable[[str, str, Case], tuple[int, int]], str, Case]]:
    """Each with its title."""
    each = [(name, contract, check) for name, check in ON_EACH.items() for contract in _contracts.CONTRACTS]
    for name, contract, check in [*each, *((name, "", check) for name, check in ONCE.items())]:
        title = f"{name}, {contract}" if contract else name
        yield f"{title}, C++", of_cpp, contract, check
        if name in OF_PYTHON:
            yield f"{title}, Python", of_python, contract, check


def attempt(check: Case, contract: str, begin: Callable[[], Any], end: Callable[[], Any]) -> tuple[Any, Any]:
    """What it came to, and what `end` says."""
    steps = check(contract)
    act = next(steps)
    begin()
    try:
        result = act()
    except MemoryError:
        result = FAILED
    finally:
        said = end()
    try:
        steps.send(result)
    except StopIteration:
        pass
    else:
        raise AssertionError("one operation at a time")
    if result is FAILED:
        gc.collect()  # what was half made may be in a cycle
    left = [path.name for path in Path(os.environ["RINGMAIN_DIR"]).iterdir() if path.name != "bell"]
    assert not left, f"left: {left}"
    return result, said


def of_cpp(name: str, contract: str, check: Case) -> tuple[int, int]:
    """How many allocations failed, and after how many of these it raised MemoryError."""
    raised = 0
    for n in count(1):
        result, made = attempt(check, contract, lambda n=n: _library.fail_at(n), _library.stop_failing)
        raised += result is FAILED
        if made < n:
            assert result is not FAILED, name
            return n - 1, raised
    raise AssertionError


def of_python(name: str, contract: str, check: Case) -> tuple[int, int]:
    import _testcapi

    raised = in_a_row = 0
    for n in count(0):
        result, _ = attempt(check, contract, lambda n=n: _testcapi.set_nomemory(n, n + 1), _testcapi.remove_mem_hooks)
        raised += result is FAILED
        in_a_row = 0 if result is FAILED else in_a_row + 1
        if in_a_row == PYTHON_SUCCEEDS:
            return n + 1 - PYTHON_SUCCEEDS, raised
    raise AssertionError


def run(titles: set[str]) -> int:
    bad = 0
    for title, fail_each, contract, check in attempts():
        if title not in titles:
            continue
        try:
            failed, raised = fail_each(title, contract, check)
            print(f"{title}: {failed} failed, {raised} raised MemoryError", flush=True)
        except Exception as error:  # the others go on
            bad += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(f"{title}: WRONG: {type(error).__name__} in line {where.lineno}: {str(error)[:200]}", flush=True)
            for topic in list(rm.topics()):
                rm.unlink(topic.name, force=True)
    print(f"{len(titles)} operations, {bad} answered wrongly", flush=True)
    return 1 if bad else 0


def run_with_preload(arguments: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    """This program again, in a process of which allocations can fail."""
    sys.path.append(str(Path(__file__).parents[2]))

    sys.path.append(str(Path(__file__).parents[2]))
    from tests import preloads

    library, topics = preloads.build("failing_allocations", directory), directory / "topics"
    topics.mkdir(mode=0o700)
    environment = {**os.environ, "LD_PRELOAD": str(library), "RINGMAIN_DIR": str(topics)}
    command = [sys.executable, __file__, "--inside", str(library), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names: `borrow`, `recv, work`, `Python`")
    parser.add_argument("--sample", type=int, default=0, help="only so many, chosen by --seed")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside is None:
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="ringmain-allocations-") as directory:
            done = run_with_preload(sys.argv[1:], Path(directory))
        print(done.stdout + done.stderr, end="")
        return done.returncode
    global _library
    _library = ctypes.CDLL(str(args.inside))
    _library.fail_at.argtypes = [ctypes.c_long]
    _library.stop_failing.restype = ctypes.c_long
    titles = [title for title, *_ in attempts() if not args.names or any(name in title for name in args.names)]
    if args.sample:
        titles = random.Random(args.seed).sample(titles, min(args.sample, len(titles)))
    return run(set(titles))


if __name__ == "__main__":
    sys.exit(main())
