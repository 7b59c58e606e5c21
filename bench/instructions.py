"""Instructions a message on the hot paths, counted by callgrind, against those in bench/instructions.json.

    python -m bench.instructions [--record]

Counts repeat where times do not, so this can guard. All paths run in one interpreter with a fixed hash seed, and the
counter is read between them. What is compared are the instructions of the native module itself: neither starting
Python, nor the length of a path, nor which build of Python it is counts. Grown by more than a tenth: it fails, and
an intended change records the new count in the same commit.

Of these instructions, the locked ones are counted apart, because each waits until the store buffer is empty: those with
a lock prefix, an exchange with memory (locked without the prefix), and mfence. callgrind says how often each address
was executed, objdump which addresses these are. No process sleeps and none competes while they are counted. One on the
calls of any contract, other than those of workers, fails; elsewhere more than recorded.

Without a valgrind on the machine one is fetched into build/, where apt-get can (no root needed); where it cannot, it
says that nothing was checked, and passes. The same goes for objdump (Debian: binutils, which g++ needs, too).
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ringmain import _ring
from ringmain._contracts import CONTRACTS

RECORD = Path(__file__).with_name("instructions.json")
FETCHED = Path(__file__).resolve().parent.parent / "build" / "valgrind"
GROWTH = 1.10
LOCKED_BAR = 0.0
"""The most locked instructions a message on any of CALLS, but those of CONTENDED."""
COUNT = 8192
SAME = 0.5
"""Instructions a message: two counts that differ less are the same."""
CALLS = ("send", "recv", "for", "send_many", "recv_many")
"""Counted on every contract."""
CONTENDED = ("recv, work", "for, work", "recv_many, work")
"""Workers compete for each message, so they compare and exchange: no more than recorded."""
VIEWED = "send, looked at by a view"
"""Counted on `broadcast`: as many instructions as without one, or it fails."""
OTHERS = ("typed send", "typed recv", "try_recv, nothing there", "frame sent and received", VIEWED)
"""Counted on a `pipe`, but for the view."""
PATHS = (*(f"{call}, {contract}" for contract in CONTRACTS for call in CALLS), *OTHERS)
LOCKED = re.compile(r"^\s*([0-9a-f]+):\s+(?:lock\s|xchg\s.*\(|mfence)", re.MULTILINE)
"""A line of objdump's that is a locked instruction, and its address."""
SCRIPT = '''
import gc
import os
import subprocess
import sys
import time

import msgspec

import ringmain as rm

VIEW = """
import select, sys
from ringmain.view._live import LiveTopics

live = LiveTopics(["viewed"], hz=10.0, points_hz=200.0)
while not select.select([sys.stdin], [], [], 0.05)[0]:
    list(live.take())
"""


class Point(msgspec.Struct):
    x: float
    y: float


def mark(path):  # from here to the next mark is `path`
    subprocess.run(["callgrind_control", f"--dump={path}", str(os.getpid())], stdout=subprocess.DEVNULL, check=True)


def calls(contract, count):  # a function: names of a module are looked up in dictionaries, which would be counted too
    message = bytes(32)
    messages = [message] * 64
    some, rest = range(count), iter(range(count))
    with rm.Publisher(contract, contract=contract, capacity="4MiB") as pub, rm.Subscriber(contract) as sub:
        send, recv, send_many, recv_many = pub.send, sub.recv, pub.send_many, sub.recv_many
        send(message), recv(), send_many(messages), recv_many(64)  # one-time work
        mark("before")
        for _ in some:
            send(message)
        mark(f"send, {contract}")
        for _ in some:
            recv()
        mark(f"recv, {contract}")
        send_many([message] * count)
        mark("between")
        for _, _ in zip(rest, sub):
            pass
        mark(f"for, {contract}")
        for _ in range(count // 64):
            send_many(messages)
        mark(f"send_many, {contract}")
        for _ in range(count // 64):
            recv_many(64)
        mark(f"recv_many, {contract}")


def viewed(count):
    message, some = bytes(32), range(count)
    with rm.Publisher("viewed", contract="broadcast", capacity="4MiB") as pub, rm.Subscriber("viewed"):
        send, view = pub.send, subprocess.Popen([sys.executable, "-c", VIEW], stdin=subprocess.PIPE)
        send(message)
        while not [each for each in rm.info("viewed").readers if each.role == "observer" and each.messages]:
            time.sleep(0.1)
        send(message)  # one-time work: somebody has joined
        mark("before")
        for _ in some:
            send(message)
        mark("send, looked at by a view")
        view.communicate()
        assert view.returncode == 0


def others(count):
    point, some = Point(1.0, 2.0), range(count)
    with (
        rm.Publisher("typed", contract="pipe", capacity="4MiB", type=Point) as points,
        rm.Subscriber("typed", type=Point) as told,
        rm.FramePublisher("frames", size=4096) as frames,
        rm.FrameSubscriber("frames") as viewer,
    ):
        tell, hear, try_recv = points.send, told.recv, told.try_recv
        tell(point), hear()  # one-time work
        frames.frame().commit(), viewer.recv().release()
        mark("before")
        for _ in some:
            tell(point)
        mark("typed send")
        for _ in some:
            hear()
        mark("typed recv")
        for _ in some:
            try_recv()
        mark("try_recv, nothing there")
        for _ in some:
            with frames.frame():
                pass
            with viewer.recv():
                pass
        mark("frame sent and received")


gc.disable()
mark("begin")
mark("a mark")  # what it costs itself
for contract in sys.argv[2:]:
    calls(contract, int(sys.argv[1]))
others(int(sys.argv[1]))
viewed(int(sys.argv[1]))
'''


def valgrind() -> dict[str, str] | None:
    """The environment in which `valgrind` and `callgrind_control` are found, or None."""
    if shutil.which("valgrind"):
        return dict(os.environ)
    if not (FETCHED / "usr/bin/valgrind").exists() and not _fetch():
        return None
    library = next(FETCHED.glob("usr/lib*/**/valgrind"), FETCHED)
    path = f"{FETCHED / 'usr/bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "VALGRIND_LIB": str(library)}


def _fetch() -> bool:
    """The distribution's package, unpacked under build/."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return False
    FETCHED.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FETCHED.parent) as scratch:
        for command in (["apt-get", "download", "valgrind"], ["dpkg", "-x", "{deb}", "unpacked"]):
            deb = next((path.name for path in Path(scratch).glob("*.deb")), "")
            try:
                filled = [part.replace("{deb}", deb) for part in command]
                subprocess.run(filled, cwd=scratch, check=True, capture_output=True, timeout=120)
            except (subprocess.SubprocessError, OSError):
                return False
        shutil.rmtree(FETCHED, ignore_errors=True)
        (Path(scratch) / "unpacked").replace(FETCHED)
    return True


class Count(NamedTuple):
    """Instructions on one path, of all messages or of one."""

    module: float
    """Of the native module itself."""
    everything: float
    """With what it calls, and Python's loop."""
    locked: float | None
    """Of the module's; None where they were not looked for."""


def locked_addresses(module: Path) -> frozenset[int] | None:
    """Where the module has locked instructions; None without objdump, or on another kind of processor."""
    if platform.machine() not in ("x86_64", "AMD64") or not shutil.which("objdump"):
        return None
    listing = subprocess.run(
        ["objdump", "--disassemble", "--no-show-raw-insn", module], capture_output=True, text=True, check=True
    )
    return locked_in(listing.stdout)


def locked_in(listing: str) -> frozenset[int]:
    return frozenset(int(found, 16) for found in LOCKED.findall(listing))


def measure(environment: dict[str, str], locked: frozenset[int] | None) -> dict[str, Count]:
    """Instructions a message, by path."""
    with tempfile.TemporaryDirectory(prefix="ringmain-bench-", dir="/dev/shm") as directory:
        out = Path(directory) / "callgrind"
        (Path(directory) / "topics").mkdir(mode=0o700)
        environment = {
            **environment,
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "RINGMAIN_DIR": f"{directory}/topics",
        }
        command = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--compress-pos=no"]
        command += [f"--callgrind-out-file={out}", sys.executable, "-c", SCRIPT, str(COUNT), *CONTRACTS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode != 0:
            raise SystemExit(f"callgrind failed ({done.returncode}):\n{done.stderr[-2000:]}")
        dumps = [dumped(path, locked) for path in Path(directory).glob("callgrind*")]
    found = {dump[0]: dump[1] for dump in dumps if dump}
    missing = {"a mark", *PATHS} - set(found)
    if missing:
        raise SystemExit(f"callgrind wrote nothing for {', '.join(sorted(missing))}:\n{done.stderr[-2000:]}")
    return {path: _per_message(found[path], found["a mark"]) for path in PATHS}


def _per_message(count: Count, mark: Count) -> Count:
    locked = None if count.locked is None else count.locked / COUNT
    return Count(count.module / COUNT, (count.everything - mark.everything) / COUNT, locked)


def dumped(path: Path, locked: frozenset[int] | None) -> tuple[str, Count] | None:
    """The name of a dump and its instructions."""
    lines = path.read_text(errors="replace").splitlines()
    why = next((line.removeprefix("desc: Trigger: dump ") for line in lines if line.startswith("desc: Trigger: ")), "")
    total = next((int(line.split()[1]) for line in lines if line.startswith("totals: ")), 0)
    objects: dict[str, str] = {}
    ours, slow, here, skip = 0, 0, "", False
    for line in lines:
        if line.startswith(("ob=", "cob=")):
            number, _, name = line.partition("=")[2].partition(" ")
            objects.setdefault(number, name)
            if line.startswith("ob="):
                here = objects[number]
        elif line.startswith("calls="):
            skip = True  # the line after it is what the callee cost, which is counted there
        elif line.startswith("0x"):
            if not skip and "/_ring." in here:
                address, *_, cost = line.split()
                ours += int(cost)
                slow += int(cost) if locked and int(address, 16) in locked else 0
            skip = False
    return (why, Count(ours, total, None if locked is None else slow)) if why and total else None


class Record(NamedTuple):
    """What bench/instructions.json has for one kind of machine."""

    instructions: Mapping[str, float]
    locked: Mapping[str, float]


def too_many(found: Mapping[str, Count], before: Record) -> list[str]:
    """What has grown, or is above the bar: a sentence each."""
    said = []
    if VIEWED in found and abs(found[VIEWED].module - found["send, broadcast"].module) > SAME:
        plain, seen = found["send, broadcast"].module, found[VIEWED].module
        said.append(f"{VIEWED}: {seen:.1f} instructions a message, and {plain:.1f} without one")
    for path, count in found.items():
        limit = before.instructions.get(path)
        if limit is not None and count.module > GROWTH * limit:
            said.append(f"{path}: {count.module:.1f} instructions a message, recorded {limit:.1f}")
        allowed = before.locked.get(path)
        if path not in (*OTHERS, *CONTENDED):
            allowed = LOCKED_BAR
        if count.locked is not None and allowed is not None and round(count.locked, 2) > allowed:
            said.append(f"{path}: {count.locked:.2f} locked instructions a message, allowed {allowed:.2f}")
    return said


def table(found: Mapping[str, Count]) -> str:
    """The calls by contract, then the other paths: instructions a message, and the locked ones after a slash."""

    def cell(path: str) -> str:
        count = found[path]
        return f"{count.module:.0f} / {'?' if count.locked is None else f'{count.locked:.2f}'}"

    lines = [f"{'instructions / locked':24}" + "".join(f"{contract:>14}" for contract in CONTRACTS)]
    lines += [f"{call:24}" + "".join(f"{cell(f'{call}, {one}'):>14}" for one in CONTRACTS) for call in CALLS]
    lines += [f"{path:24}{cell(path):>14}   {found[path].everything:.0f} with Python's" for path in OTHERS]
    return "\n".join(lines)


def main() -> int:
    environment = valgrind()
    if environment is None:
        print("instructions: NOT CHECKED, there is no valgrind here and none could be fetched (Debian: valgrind)")
        return 0
    locked = locked_addresses(Path(_ring.__file__))
    if locked is None:
        print("instructions: locked ones NOT CHECKED, that needs objdump (Debian: binutils) and an x86-64 processor")
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    about = f"{platform.machine()}, Python {platform.python_version().rpartition('.')[0]}"
    found = measure(environment, locked)
    if "--record" in sys.argv[1:]:
        recorded[about] = {
            "instructions": {path: round(count.module, 1) for path, count in found.items()},
            "locked": {path: round(count.locked, 2) for path, count in found.items() if count.locked is not None},
        }
        RECORD.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    if about not in recorded:
        print(f"instructions: NOT CHECKED, nothing is recorded for {about}: `python -m bench.instructions --record`")
    print(table(found))
    grown = too_many(found, Record(**recorded.get(about, {"instructions": {}, "locked": {}})))
    for sentence in grown:
        print(f"GROWN: {sentence}")
    if grown:
        print("instructions: more than recorded. If that is intended, `python -m bench.instructions --record`")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
