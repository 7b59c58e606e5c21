"""Every system call fails once: strace makes the n-th use of a call in a running program fail with an error.

    make failing-calls                                 all of them: minutes
    python tests/lab/failing_calls.py send             of one program; names the answer to each

A program says that it is ready, is attached to, does its work, and ends with `done` (it checked what it did) or
`refused` and one clear error. Afterwards the same work is done again in the same directory, by a process to which
nothing happens: it must go well, and leave no file. So a failed call neither loses, tears, leaks nor blocks anything.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import select
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 30.0
USES = (1, 2, 100)

INTERPRETERS = "hung in the interpreter's Thread.start()"
"""If a new thread has no memory for its very beginning, it ends and says nothing, and start() waits for it without end:
python/cpython#140746. Nobody but the interpreter can answer that."""

BEGIN = """
import faulthandler, os, select, sys, tempfile
import ringmain as rm
faulthandler.dump_traceback_later({stuck_after})
def work():
{work}
{before}
os.write(1, b"ready\\n")
while not select.select([0], [], [], 0.01)[0]: pass
try:
    work()
    os.write(1, b"done\\n")
except (rm.RingmainError, OSError, MemoryError, RuntimeError) as error:
    os.write(1, f"refused {{type(error).__name__}}: {{error}}\\n".encode())
if "order" in globals():
    os.close(order)
    os.waitpid(sender, 0)
"""

SEND = """
    with rm.Publisher("t", contract={contract!r}, capacity=8192) as pub, rm.Subscriber("t", start="oldest") as sub:
        for number in range(150):
            data = b"%d" % number * 3
            if number % 3 == 0:
                pub.send(data, timeout=20)
            elif number % 3 == 1:
                with pub.reserve(len(data), timeout=20) as draft:
                    draft[:] = data
            else:
                pub.send_many([data], timeout=20)
            got = sub.recv(timeout=20)
            assert got == data, (got, data)
"""
SENDER = """
import time
orders, order = os.pipe()
if (sender := os.fork()) == 0:  # another process, to which nothing happens
    os.close(order)
    with rm.Publisher("t", capacity=8192) as pub:
        while os.read(orders, 1):
            time.sleep(0.002)
            pub.send(b"there")
    os._exit(0)
os.close(orders)
while not rm.topics():
    time.sleep(0.001)
"""
WAIT = """
    with rm.Subscriber("t", spin=0) as sub, rm.Subscriber("u") as other:
        for number in range(20):
            os.write(order, b"x")
            ready = rm.wait([sub, other], timeout=20) if number % 2 else [sub]
            assert ready == [sub] and sub.recv(timeout=20) == b"there"
        try:
            sub.recv(timeout=0.05)
        except rm.Timeout:
            pass
"""
RECORDINGS = """
import glob, itertools, pathlib
import ringmain.recording as recording
runs = itertools.count()
wanted = [b"%d" % number for number in range(150)]
def new():
    return "{{}}/recorded-{{}}-{{}}".format(os.environ["RINGMAIN_DIR"], os.getpid(), next(runs))
def rows(folder):
    return [bytes(payload.as_py()) for payload in rm.Recording(folder).to_arrow()["payload"]]
def check_what_others_left():
    for folder in glob.glob(os.environ["RINGMAIN_DIR"] + "/recorded-*"):
        if "-{{}}-".format(os.getpid()) not in folder and os.path.exists(folder + "/meta.json"):
            got = rows(folder)
            assert got == wanted[: len(got)], (folder, len(got))
{before}
work()
"""
RECORD = """
    check_what_others_left()
    folder = new()
    with (
        rm.Publisher("t", contract="reliable") as pub,
        rm.Recorder(folder, ["t"], segment_bytes=2000, flush_interval_s=0) as recorder,
    ):
        for data in wanted:
            pub.send(data, timeout=20)
    got = rows(folder)
    assert got == wanted, len(got)
"""
UPLOAD = """
    check_what_others_left()
    folder, store = new(), pathlib.Path(new().replace("recorded", "store"))
    with (
        rm.Publisher("t", contract="reliable") as pub,
        rm.Recorder(folder, ["t"], segment_bytes=2000, flush_interval_s=0, sealed_uri=store.as_uri()) as recorder,
    ):
        for data in wanted:
            pub.send(data, timeout=20)
    recording.upload(folder)
    assert rows(folder) == rows(store) == wanted, (len(rows(folder)), len(rows(store)))
    assert not glob.glob(folder + "/*.parquet")
"""
REPLAYED = """
folder = new()
with rm.Publisher("t", contract="reliable") as pub, rm.Recorder(folder, ["t"], segment_bytes=2000) as recorder:
    for data in wanted:
        pub.send(data, timeout=20)
"""
REPLAY = """
    with rm.Publisher("t", contract="reliable"), rm.Subscriber("t") as sub:  # who may not say that it waits comes later
        with rm.Player(folder, speed=float("inf")) as player:
            player.run()
        got = sub.recv_many(1000, timeout=20)
        assert got == wanted, len(got)
"""
# Recordings are made once before, since ringmain imports as it goes.
PROGRAMS = {
    "send on reliable": ("", SEND.format(contract="reliable")),
    "send on work": ("", SEND.format(contract="work")),
    "wait": (SENDER, WAIT),
    "record and seal": (RECORDINGS.format(before=""), RECORD),
    "upload": (RECORDINGS.format(before=""), UPLOAD),
    "replay": (RECORDINGS.format(before=REPLAYED), REPLAY),
}

# What the manual pages say that each may fail with. A call that is not here cannot fail, or is the interpreter's own.
ERRORS: dict[str, tuple[str, ...]] = {
    "openat": ("EMFILE", "EACCES", "ENOMEM"),
    "mkdir": ("ENOSPC", "EACCES"),
    "fallocate": ("ENOSPC", "EINTR", "EOPNOTSUPP"),
    "ftruncate": ("EIO", "EINTR"),
    "mmap": ("ENOMEM", "EAGAIN"),
    "madvise": ("ENOMEM", "EINVAL"),
    "fcntl": ("ENOLCK", "EINTR"),
    "flock": ("ENOLCK", "EINTR"),
    "fstat": ("ENOMEM",),
    "newfstatat": ("ENOMEM", "EACCES"),
    "linkat": ("EACCES", "ENOSPC"),
    "link": ("EACCES", "ENOSPC"),
    "rename": ("EACCES", "ENOSPC"),
    "renameat2": ("EACCES", "ENOSPC"),
    "unlink": ("EACCES", "EBUSY"),
    "unlinkat": ("EACCES", "EBUSY"),
    "fsync": ("EIO",),
    "fdatasync": ("EIO",),
    "write": ("ENOSPC", "EINTR"),
    "pwrite64": ("ENOSPC", "EINTR"),
    "writev": ("ENOSPC", "EINTR"),
    "read": ("EIO", "EINTR"),
    "pread64": ("EIO", "EINTR"),
    "futex_waitv": ("EINTR", "EAGAIN", "ENOSYS", "ENOMEM"),
    "membarrier": ("EPERM", "ENOSYS"),
    "eventfd2": ("EMFILE", "ENOMEM"),
    "epoll_create1": ("EMFILE", "ENOMEM"),
    "epoll_ctl": ("ENOMEM", "ENOSPC"),
    "epoll_wait": ("EINTR",),
    "pidfd_open": ("EMFILE", "ENOSYS", "EPERM"),
    "clone3": ("EAGAIN",),
    "memfd_create": ("EMFILE",),
    "getrandom": ("EINTR",),
}
"""A failing `close` has closed all the same, and `munmap` fails only for lack of a mapping's own room. strace cannot
tell a futex that waits from one that wakes, which cannot fail: the C library ends the process if one does."""


@dataclass(frozen=True)
class Failure:
    program: str
    call: str
    error: str
    use: int

    def __str__(self) -> str:
        return f"{self.program}: {self.call} fails with {self.error} at use {self.use}"


class Answer(str):
    """What the program said last."""


def script(program: str) -> str:
    before, work = PROGRAMS[program]
    return BEGIN.format(before=before, work=work, stuck_after=PATIENCE_S - 5)


def line_of(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
    return process.stdout.readline().decode(errors="replace").strip() if ready else "silence"


def run(program: str, directory: Path, inject: str | None, log: Path | None = None) -> str:
    """The last line of the program, or `hung`, or how it ended; while strace lets a call fail, or only watches."""
    environment = {**os.environ, "RINGMAIN_DIR": str(directory)}
    process = subprocess.Popen(
        [sys.executable, "-c", script(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    tracer = None
    try:
        if line_of(process) != "ready":
            return f"did not begin: {process.communicate()[1].decode()}"
        if inject is not None:
            tracer = subprocess.Popen(
                ["strace", "-f", "-qq", "-p", str(process.pid), "-o", str(log or os.devnull), *inject.split()],
                stderr=subprocess.PIPE,
            )
            wait_for_tracer(process.pid, tracer)
        try:
            out, errors = process.communicate(b"go\n", timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            stacks = process.communicate()[1].decode(errors="replace")
            return INTERPRETERS if re.search(r"in wait\n.*threading\.py\", line \d+ in start\n", stacks) else "hung"
        said = out.decode(errors="replace").strip().splitlines()
        if process.returncode or not said or not said[-1].startswith(("done", "refused")):
            last = (errors.decode(errors="replace").strip().splitlines() or ["nothing"])[-1]
            return f"ended with {process.returncode}: {last}"
        return said[-1]
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        if tracer is not None:
            tracer.communicate(timeout=PATIENCE_S)


def wait_for_tracer(pid: int, tracer: subprocess.Popen[bytes]) -> None:
    for _ in range(int(PATIENCE_S / 0.005)):
        status = Path(f"/proc/{pid}/status").read_text()
        found = re.search(r"^TracerPid:\t(\d+)$", status, re.MULTILINE)
        if found and found[1] != "0":
            return
        if tracer.poll() is not None:
            assert tracer.stderr is not None
            raise PermissionError(tracer.stderr.read().decode().strip())
        select.select([], [], [], 0.005)
    raise PermissionError("strace did not attach")


def uses_of(program: str) -> Counter[str]:
    """How often the program uses each call, when nothing fails."""
    directory = Path(tempfile.mkdtemp(prefix="ringmain-calls-", dir="/dev/shm"))
    log = directory / "log"
    try:
        (directory / "topics").mkdir()
        answer = run(program, directory / "topics", "-e trace=all", log)
        if answer != "done":
            raise RuntimeError(f"{program}: {answer}")
        return Counter(re.findall(r"^\d+ +(\w+)\(", log.read_text(errors="replace"), re.MULTILINE))
    finally:
        shutil.rmtree(directory)


def failures_of(program: str) -> Iterator[Failure]:
    uses = uses_of(program)
    for call, errors in ERRORS.items():
        for error in errors:
            for use in USES:
                if use <= uses[call]:
                    yield Failure(program, call, error, use)


def is_right(answer: str, failure: Failure) -> bool:
    """An interrupted call is made again, and nothing that a call refuses makes a sound file a corrupt one."""
    return answer in ("done", INTERPRETERS) or (
        answer.startswith("refused") and failure.error != "EINTR" and not answer.startswith("refused Corrupt")
    )


def answer_to(failure: Failure) -> tuple[str, str]:
    """What the program said, and what is wrong about it or about what it left; empty if nothing is."""
    directory = Path(tempfile.mkdtemp(prefix="ringmain-calls-", dir="/dev/shm"))
    try:
        answer = run(failure.program, directory, f"-e inject={failure.call}:error={failure.error}:when={failure.use}")
        wrong = "" if is_right(answer, failure) else answer
        after = run(failure.program, directory, None)
        if not wrong and after != "done":
            wrong = f"then, without a failure: {after}"
        left = sorted(path.name for path in directory.iterdir() if path.suffix == ".ring")
        if not wrong and left:
            wrong = f"left: {', '.join(left)}"
        return answer, wrong
    finally:
        shutil.rmtree(directory)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"parts of their names: {', '.join(PROGRAMS)}")
    parser.add_argument("--call", action="append", help="only these calls")
    parser.add_argument("--sample", type=int, help="only so many, chosen by --seed")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    chosen = [name for name in PROGRAMS if not args.programs or any(part in name for part in args.programs)]
    if not chosen:
        parser.error(f"no program has {' or '.join(args.programs)} in its name")
    every = [one for name in chosen for one in failures_of(name) if not args.call or one.call in args.call]
    if args.sample:
        every = random.Random(args.seed).sample(every, min(args.sample, len(every)))
    bad = 0
    for failure in every:
        answer, wrong = answer_to(failure)
        print(f"{failure}: {f'WRONG: {wrong}' if wrong else answer}", flush=True)
        bad += bool(wrong)
    print(f"{len(every)} failures, {bad} of them answered wrongly")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
