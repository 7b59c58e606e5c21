"""What a process does that has run out of something: descriptors, threads, memory, room in /dev/shm.

    python tests/lab/shortages.py                  every call, short of everything; seconds
    python tests/lab/shortages.py --of memory

A process opens what a call needs, runs out, and makes the call: it has to answer rightly, or with one clear error, in
time. Where the shortage can end, it does, and the same call has to go well. Meanwhile two others, who are short of
nothing, send and receive on the same topic. Then a process that is short of nothing makes the same call, which has to
go well; of recordings it reads first what the other has left: no row damaged, and none missing without being counted.
In the end no file is left. Exits with 1 if one of this was not so.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import child_processes
import failing_calls
import measured
import system_calls

import ringmain as rm
from bench import bars

BAR = "shortages: calls that were not answered, or others that did not go on"
PATIENCE_S = 30.0
CLEAR = (rm.RingmainError, OSError, MemoryError, RuntimeError)
"""`RuntimeError`: Python's own, where a thread cannot be started."""
Lift = Callable[[], None]


# ------------------------------------------------------------------------------------------------- shortages


def no_descriptors() -> Lift:
    return limited(resource.RLIMIT_NOFILE, len(os.listdir("/proc/self/fd")) - 1)


def no_memory() -> Lift:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return limited(resource.RLIMIT_AS, pages * os.sysconf("SC_PAGE_SIZE"))


def limited(what: int, most: int) -> Lift:
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most, hard))
    return lambda: resource.setrlimit(what, (soft, hard))


SHORTAGES: dict[str, Callable[[], Lift | None]] = {
    "descriptors": no_descriptors,
    "memory": no_memory,
    "mappings": lambda: system_calls.refuse(["mmap"], errno.ENOMEM),
    "threads": lambda: system_calls.refuse(["clone", "clone3"], errno.EAGAIN),
    "room in /dev/shm": lambda: system_calls.refuse(["fallocate"], errno.ENOSPC),
}
FILTERED = ("mappings", "threads", "room in /dev/shm")


# ----------------------------------------------------------------------------------------------------- calls


def publishes() -> Callable[[], object]:
    def call() -> None:
        with rm.Publisher("mine", capacity="64KiB") as pub:
            pub.send(b"x")

    return call


def subscribes() -> Callable[[], object]:
    def call() -> None:
        with rm.Subscriber("t") as sub:
            sub.try_recv()

    return call


def sends() -> Callable[[], object]:
    pub = rm.Publisher("t")
    return lambda: pub.send(b"mine", timeout=5)


def sends_much() -> Callable[[], object]:
    pub = rm.Publisher("t")
    return lambda: pub.send_many([bytes(1000)] * 8, timeout=5)


def receives(call: Callable[[rm.Subscriber[bytes]], object]) -> Callable[[], Callable[[], object]]:
    """The others send all the time, so something comes."""

    def prepared() -> Callable[[], object]:
        sub = rm.Subscriber("t")
        sub.try_recv()
        return lambda: call(sub)

    return prepared


def arecv(sub: rm.Subscriber[bytes]) -> object:
    return asyncio.run(sub.arecv(PATIENCE_S))


def fileno(sub: rm.Subscriber[bytes]) -> object:
    return select.select([sub.fileno()], [], [], PATIENCE_S)


def waits_for_many() -> Callable[[], object]:
    """More than the kernel takes in one call: threads wait."""
    subs = [rm.Subscriber("t"), *(rm.Subscriber(f"none/{number}") for number in range(140))]
    for sub in subs:
        sub.try_recv()
    return lambda: rm.wait(subs, PATIENCE_S)


def serves() -> Callable[[], object]:
    def call() -> None:
        with rm.Server("s") as server, rm.Client("s") as client:
            reply = client.submit(b"x", timeout=5)
            for request in server.take(1, timeout=5):
                request.reply(b"y")
            reply.result(5)

    return call


def passes_frames() -> Callable[[], object]:
    def call() -> None:
        with rm.FramePublisher("f", size=1 << 16) as pub, rm.FrameSubscriber("f") as sub:
            pub.send(bytes(1 << 16))
            frame = sub.recv(5)
            frame.release()

    return call


def sends_frames() -> Callable[[], object]:
    pub, sub = rm.FramePublisher("f", size=1 << 16), rm.FrameSubscriber("f")
    sub.try_recv()

    def call() -> None:
        pub.send(bytes(1 << 16), timeout=5)
        sub.recv(5).release()
        while (left := sub.try_recv()) is not None:  # of a call that was refused after it had sent
            left.release()

    return call


def records() -> Callable[[], object]:
    """What the others send: with a recorder that was there before, and with one that is opened now."""
    check_rows()
    running = [new_recorder().start()]

    def call() -> None:
        recorder = running.pop() if running else new_recorder().start()
        enough = recorder.status().messages + 20
        end_s = time.monotonic() + PATIENCE_S
        while recorder.status().state == "recording" and recorder.status().messages < enough:
            assert time.monotonic() < end_s, recorder.status()
            time.sleep(0.01)
        recorder.close()
        assert rows_of(recorder.path) >= enough - 20
        check_rows()

    return call


def new_recorder() -> rm.Recorder:
    """Of small segments, so that it also seals some."""
    folder = f"{os.environ['RINGMAIN_DIR']}/recorded-{os.getpid()}-{time.monotonic_ns()}"
    return rm.Recorder(folder, ["t"], segment_bytes=2000, flush_interval_s=0)


def check_rows() -> None:
    for folder in Path(os.environ["RINGMAIN_DIR"]).glob("recorded-*"):
        if (folder / "meta.json").exists():
            rows_of(folder)


def rows_of(folder: Path) -> int:
    """All whole, and where one is missing it is counted."""
    rows = rm.Recording(folder).to_arrow().select(["seq", "lost", "payload"]).to_pylist()
    for before, row in pairwise(rows):
        assert row["seq"] == before["seq"] + 1 + row["lost"], (folder, before, row)
    assert all(row["payload"] == b"there" for row in rows if len(row["payload"]) != 4), folder
    return len(rows)


def as_in(program: str) -> Callable[[], Callable[[], object]]:
    """A program of failing_calls.py. It checks what it has done, and first what others have left."""

    return lambda: names_of(program)["work"]


def names_of(program: str) -> dict[str, Any]:
    before, work = failing_calls.PROGRAMS[program]
    names: dict[str, Any] = {"os": os, "rm": rm}
    exec(f"def work():\n{work}\n{before}", names)
    return names


def replays() -> Callable[[], object]:
    """To a topic that is there, with a player that has opened it."""
    names = names_of("replay")
    pub, sub = rm.Publisher("mine", contract="reliable"), rm.Subscriber("mine")
    sub.try_recv()

    def new_player() -> rm.Player:
        player = rm.Player(names["folder"], speed=float("inf"), rename={"t": "mine"})
        player.open()
        return player

    players = [new_player()]

    def call() -> None:
        while sub.try_recv() is not None:  # of a replay that was refused in the middle
            pass
        with players.pop() if players else new_player() as player:
            player.run()
        got = sub.recv_many(1000, timeout=20)
        assert got == names["wanted"], (len(got), pub)

    return call


PROGRAMS = ("record and seal", "upload", "replay")
OPENED_BEFORE = "replay, opened before"
WITH_TOPICS_OF_ITS_OWN = (*PROGRAMS, OPENED_BEFORE)
NOT_ANSWERED = {(of, OPENED_BEFORE): failing_calls.INTERPRETERS for of in ("memory", "mappings")}
"""What is not run, and why."""
CALLS: dict[str, Callable[[], Callable[[], object]]] = {
    "open a publisher": publishes,
    "open a subscriber": subscribes,
    "send": sends,
    "send_many": sends_much,
    "recv": receives(lambda sub: sub.recv(PATIENCE_S)),
    "recv_batch": receives(lambda sub: sub.recv_batch(8, timeout=PATIENCE_S)),
    "borrow": receives(lambda sub: sub.borrow(PATIENCE_S).release()),
    "wait": receives(lambda sub: rm.wait([sub], PATIENCE_S)),
    "wait for 141": waits_for_many,
    "arecv": receives(arecv),
    "fileno": receives(fileno),
    "a request": serves,
    "frames": passes_frames,
    "send a frame": sends_frames,
    "record": records,
    **{program: as_in(program) for program in PROGRAMS},
    OPENED_BEFORE: replays,
    "topics and info": lambda: lambda: (rm.topics(), rm.info("t")),
}


# ------------------------------------------------------------------------------------------------ one scenario


@dataclass
class Answer:
    text: str
    wrong: str


def others(topic: str) -> tuple[int, int]:
    """A process that sends and receives on the topic; its pid, and where it writes each time that both went well."""
    end, to = os.pipe()
    pid = child_processes.fork()
    if pid == 0:
        with rm.Publisher(topic, contract="bus", capacity="64KiB") as pub, rm.Subscriber(topic) as sub:
            sub.try_recv()
            stop = threading.Event()
            signal.signal(signal.SIGTERM, lambda *_: stop.set())
            while not stop.wait(0.001):
                pub.send(b"there", timeout=5)
                if sub.recv(PATIENCE_S):
                    with suppress(BlockingIOError):
                        os.write(to, b".")
                    os.set_blocking(to, False)
        os._exit(0)
    os.close(to)
    return pid, end


def short(of: str | None, what: str, to: int) -> None:
    """In a child: what it says, one line each."""
    call = CALLS[what]()
    asyncio.run(asyncio.sleep(0))  # what the first loop imports
    lift = SHORTAGES[of]() if of else None
    for left in (True, False):
        try:
            call()
            said = "done"
        except CLEAR as error:
            said = f"{'refused' if left else 'FAILED'} {type(error).__name__}: {error}"
        if left and lift is not None:
            lift()
        os.write(to, f"{said}\n".encode())
        if lift is None:
            return


def answer_to(of: str, what: str) -> Answer:
    with measured.runtime_directory("shortages") as directory:
        peer, end = others("others" if what in WITH_TOPICS_OF_ITS_OWN else "t")
        try:
            if not moved_on(end):
                return Answer("", "the others did not begin")
            said = said_by(of, what)
            wrong = said if "FAILED" in said or said.startswith("it ") else ""
            after = said_by(None, what)
            wrong = wrong or ("" if after == "done" else f"then, short of nothing: {after}")
            if not moved_on(end):
                wrong = wrong or "the others do not go on"
            os.kill(peer, signal.SIGTERM)
            _, status = os.waitpid(peer, 0)
            peer = 0
            rm.clean()
            left = [path.name for path in Path(directory).glob("*.ring")]
            wrong = wrong or (f"the others ended with {status}" if status else f"left behind: {left}" if left else "")
            return Answer(said, wrong)
        finally:
            if peer:
                child_processes.kill(peer)
            os.close(end)


def said_by(of: str | None, what: str) -> str:
    end, to = os.pipe()
    pid = child_processes.run(lambda: short(of, what, to))
    os.close(to)
    said = ""
    try:
        while select.select([end], [], [], PATIENCE_S + 5)[0]:
            text = os.read(end, 65536).decode()
            if not text:
                _, status = os.waitpid(pid, 0)
                pid = 0
                return said.strip().replace("\n", "; ") if status == 0 else f"it ended with {status}: {said}"
            said += text
        return f"it hangs: {said}"
    finally:
        if pid:
            child_processes.kill(pid)
        os.close(end)


def moved_on(end: int) -> bool:
    """Forgets what was there, and waits for something new."""
    os.set_blocking(end, False)
    with suppress(BlockingIOError):
        while os.read(end, 65536):
            pass
    return all(select.select([end], [], [], PATIENCE_S)[0] and os.read(end, 1) for _ in range(2))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", choices=SHORTAGES, action="append")
    parser.add_argument("--call", choices=CALLS, action="append")
    measured.add_option(parser)
    args = parser.parse_args()
    not_run, made = [], []
    for of in args.of or SHORTAGES:
        if of in FILTERED and not system_calls.can_refuse():
            not_run.append(f"short of {of}: this kernel does not filter system calls")
            continue
        for what in args.call or CALLS:
            if (of, what) in NOT_ANSWERED:
                not_run.append(f"short of {of}, {what}: {NOT_ANSWERED[of, what]}")
                continue
            answer = answer_to(of, what)
            print(f"{of:18} {what:18} {answer.text}{'   WRONG: ' + answer.wrong if answer.wrong else ''}", flush=True)
            made.append(bars.quiet(BAR, int(bool(answer.wrong)), f"{of}, {what}"))
    return measured.conclude(made, args.json, not_run)


if __name__ == "__main__":
    sys.exit(main())
