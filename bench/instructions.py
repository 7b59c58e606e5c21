"""Instructions a message on the hot paths, counted by callgrind, against those in bench/instructions.json.

    python -m bench.instructions [--record]

Counts repeat where times do not, so this can guard. All paths run in one interpreter with a fixed hash seed, and the
counter is read between them. What is compared are the instructions of the native module itself: neither starting
Python, nor the length of a path, nor which build of Python it is counts. Grown by more than a tenth: it fails, and
an intended change records the new count in the same commit.

Without a valgrind on the machine one is fetched into build/, where apt-get can (no root needed); where it cannot, it
says that nothing was checked, and passes.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

RECORD = Path(__file__).with_name("instructions.json")
FETCHED = Path(__file__).resolve().parent.parent / "build" / "valgrind"
GROWTH = 1.10
COUNT = 16_384
PATHS = (
    "send", "recv", "for", "send_many", "recv_many", "typed send", "typed recv", "try_recv, nothing there",
    "frame sent and received",
)  # fmt: skip
"""In the order in which the script runs them."""
SCRIPT = """
import gc
import os
import subprocess
import sys

import msgspec

import ringmain as rm


class Point(msgspec.Struct):
    x: float
    y: float


def mark(path):  # from here to the next mark is `path`
    subprocess.run(["callgrind_control", f"--dump={path}", str(os.getpid())], stdout=subprocess.DEVNULL, check=True)


def main(count):  # a function: names of a module are looked up in dictionaries, which would be counted too
    message, point = bytes(32), Point(1.0, 2.0)
    messages = [message] * 64
    some, rest = range(count), iter(range(count))
    with (
        rm.Publisher("plain", contract="pipe", capacity="4MiB") as pub,
        rm.Subscriber("plain") as sub,
        rm.Publisher("typed", contract="pipe", capacity="4MiB", type=Point) as points,
        rm.Subscriber("typed", type=Point) as told,
        rm.FramePublisher("frames", size=4096) as frames,
        rm.FrameSubscriber("frames") as viewer,
    ):
        send, recv, send_many, recv_many = pub.send, sub.recv, pub.send_many, sub.recv_many
        try_recv, tell, hear = sub.try_recv, points.send, told.recv
        send(message), recv(), send_many(messages), recv_many(64), tell(point), hear()  # one-time work
        frames.frame().commit(), viewer.recv().release()
        gc.disable()
        mark("begin")
        mark("a mark")  # what it costs itself
        for _ in some:
            send(message)
        mark("send")
        for _ in some:
            recv()
        mark("recv")
        send_many([message] * count)
        mark("between")
        for _, _ in zip(rest, sub):
            pass
        mark("for")
        for _ in range(count // 64):
            send_many(messages)
        mark("send_many")
        for _ in range(count // 64):
            recv_many(64)
        mark("recv_many")
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


main(int(sys.argv[1]))
"""


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


def measure(environment: dict[str, str]) -> dict[str, tuple[float, float]]:
    """Instructions a message, by path: of the native module, and with what it calls and Python's loop."""
    with tempfile.TemporaryDirectory(prefix="ringmain-bench-", dir="/dev/shm") as directory:
        out = Path(directory) / "callgrind"
        (Path(directory) / "topics").mkdir(mode=0o700)
        environment = {
            **environment,
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "RINGMAIN_DIR": f"{directory}/topics",
        }
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", sys.executable, "-c", SCRIPT]
        done = subprocess.run(
            [*command, str(COUNT)], env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode != 0:
            raise SystemExit(f"callgrind failed ({done.returncode}):\n{done.stderr[-2000:]}")
        found = dict(filter(None, map(_dumped, Path(directory).glob("callgrind*"))))
    missing = {"a mark", *PATHS} - set(found)
    if missing:
        raise SystemExit(f"callgrind wrote nothing for {', '.join(sorted(missing))}:\n{done.stderr[-2000:]}")
    mark = found["a mark"][1]
    return {path: (found[path][0] / COUNT, (found[path][1] - mark) / COUNT) for path in PATHS}


def _dumped(path: Path) -> tuple[str, tuple[int, int]] | None:
    """What was dumped: its name, the instructions of the native module itself, and all of them."""
    lines = path.read_text(errors="replace").splitlines()
    why = next((line.removeprefix("desc: Trigger: dump ") for line in lines if line.startswith("desc: Trigger: ")), "")
    total = next((int(line.split()[1]) for line in lines if line.startswith("totals: ")), 0)
    objects: dict[str, str] = {}
    ours, here, skip = 0, "", False
    for line in lines:
        if line.startswith(("ob=", "cob=")):
            number, _, name = line.partition("=")[2].partition(" ")
            objects.setdefault(number, name)
            if line.startswith("ob="):
                here = objects[number]
        elif line.startswith("calls="):
            skip = True  # the line after it is what the callee cost, which is counted there
        elif line[:1].isdigit() or line[:1] in ("+", "-", "*"):
            if not skip and "/_ring." in here:
                ours += int(line.split()[-1])
            skip = False
    return (why, (ours, total)) if why and total else None


def main() -> int:
    environment = valgrind()
    if environment is None:
        print("instructions: NOT CHECKED, there is no valgrind here and none could be fetched (Debian: valgrind)")
        return 0
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    about = f"{platform.machine()}, Python {platform.python_version().rpartition('.')[0]}"
    both = measure(environment)
    found = {path: round(ours, 1) for path, (ours, _) in both.items()}
    if "--record" in sys.argv[1:]:
        RECORD.write_text(json.dumps({**recorded, about: found}, indent=1, sort_keys=True) + "\n")
        recorded[about] = found
    if about not in recorded:
        print(f"instructions: NOT CHECKED, nothing is recorded for {about}: `python -m bench.instructions --record`")
    before = recorded.get(about, found)
    grown = [path for path in PATHS if found[path] > GROWTH * before.get(path, found[path])]
    for path, (ours, everything) in both.items():
        verdict = f"recorded {before[path]:.0f}" if path in before else "not recorded"
        grew = " GROWN" if path in grown else ""
        print(f"{path:24}{ours:6.0f} instructions a message, {verdict}{grew}; {everything:.0f} with Python's")
    if grown:
        print("instructions: grown by more than a tenth. If that is intended, `python -m bench.instructions --record`")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
