"""The soak: on topics of all contracts, participants join, work, leave, are killed and stopped, by a seed, as long as
asked. Every reader checks every message; a line of account every ten seconds; the first broken promise ends it.

    make soak MINUTES=30 [SEED=7]
    make soak-mixed MINUTES=10 [SEED=7]     every other participant is one of C++: `face.py`

What happens is decided by the seed; when exactly, by the machine: a seed replays the same cast and the same deaths, not
the same interleaving. On `work`, every message that was sent is done, and no two living workers have the same one:
writers and workers keep a diary, and a table of who has what. Some topics begin just below 2^32 and 2^63 bytes, so that
every counter is seen to wrap.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import child_processes
from actors import KEEPING, Board, Ledger, Record, Wrong, compose, parse

import ringmain as rm
from ringmain._contracts import CONTRACTS
from ringmain.testing import crash_points, die_at, stop_at

ORIGINS = (0, (1 << 32) - 4096, (1 << 63) - 4096)
CROWD = 6
"""Participants of a topic at the same time, at most."""
REFUSALS = (rm.TopicBusy, rm.TopicMismatch, rm.TakenOver, rm.TopicNotFound, rm.Timeout, rm.RosterFull)


def topic_of(contract: str, origin: int) -> str:
    return f"{contract}/{ORIGINS.index(origin)}"


class Diary:
    """Of a work topic: what was sent and done, in a file; and who has which message, in a table that all map."""

    SLOTS = 4096
    """More than a ring holds messages, so no two of them that are unfinished have the same slot."""

    def __init__(self, topic: str) -> None:
        directory = Path(os.environ["RINGMAIN_DIR"])
        self.path = directory / f"diary-{topic.replace('/', '-')}"
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        table = os.open(f"{self.path}-owners", os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(table, 8 * self.SLOTS)
        self._owners = memoryview(mmap.mmap(table, 8 * self.SLOTS)).cast("q")
        os.close(table)

    def note(self, what: str, epoch: int | None, seq: int) -> None:
        os.write(self._file, f"{what} {epoch} {seq}\n".encode())

    def take(self, message: rm.Message) -> None:
        owner = self._owners[message.seq % self.SLOTS]
        if owner and owner != os.getpid() and is_running(owner):
            raise Wrong(f"message {message.seq} is with pid {owner} and with pid {os.getpid()}")
        self._owners[message.seq % self.SLOTS] = os.getpid()

    def give_up(self, message: rm.Message) -> None:
        """Before it is done or given back: from then on another may have it."""
        self._owners[message.seq % self.SLOTS] = 0

    def missing(self) -> set[str]:
        lines = Counter(self.path.read_text().splitlines())
        sent = {line.partition(" ")[2] for line in lines if line.startswith("sent")}
        return sent - {line.partition(" ")[2] for line in lines if line.startswith("done")}


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def write(board: Board, record: Record, topic: str, contract: str, number: int, chance: random.Random) -> None:
    with rm.Publisher(topic, contract=contract, capacity=4096, takeover=chance.random() < 0.1) as pub:  # type: ignore[arg-type]
        diary = Diary(topic) if contract == "work" else None
        for counter in range(chance.randrange(20, 3000)):
            if chance.random() < 0.02:
                pub.send_many([compose(number, counter)], timeout=3)
            elif chance.random() < 0.02:
                message = compose(number, counter)
                with pub.reserve(len(message), timeout=3) as room:
                    room[:] = message
            else:
                sent = pub.send(compose(number, counter), timeout=3)
                if diary is not None:
                    diary.note("sent", pub.epoch, sent)
            record.tick(counter)
            if chance.random() < 0.05:
                time.sleep(chance.random() * 0.002)


def read(board: Board, record: Record, topic: str, contract: str, number: int, chance: random.Random) -> None:
    start = "oldest" if chance.random() < 0.5 else "next"
    ledger = Ledger(contract)
    with rm.Subscriber(topic, start=start, on_lap=chance.choice(["oldest", "next"])) as sub:  # type: ignore[arg-type]
        deadline = time.monotonic() + chance.random() * 4
        while time.monotonic() < deadline:
            message = sub.recv_message(timeout=1)
            assert sub.epoch is not None
            ledger.enter(message, sub.epoch)
            record.tick(message.seq)


def work(board: Board, record: Record, topic: str, contract: str, number: int, chance: random.Random) -> None:
    diary = Diary(topic)
    with rm.Subscriber(topic, spin=chance.choice([0, None])) as sub:
        deadline = time.monotonic() + chance.random() * 4
        while time.monotonic() < deadline:
            message = sub.recv_message(timeout=1)
            diary.take(message)
            parse(message.data)
            if chance.random() < 0.05:
                diary.give_up(message)
                sub.reject(message)
                continue
            diary.note("done", sub.epoch, message.seq)
            diary.give_up(message)
            record.tick(message.seq)


def speak_cpp() -> None:
    """From now on this process is one of C++: all it does with topics goes through `libringmain.so`."""
    globals()["rm"] = import_module("face")


@dataclass
class Running:
    record: Record
    index: int
    fate: str
    since: float
    stopped_until: float = 0


class Soak:
    """Keeps the crowds full, deals out fates, and keeps the account."""

    def __init__(self, seed: int, mixed: bool) -> None:
        self.mixed = mixed
        self.chance = random.Random(seed)
        self.directory = Path(tempfile.mkdtemp(prefix="ringmain-soak-", dir="/dev/shm"))
        os.environ["RINGMAIN_DIR"] = str(self.directory)
        self.board = Board()
        self.free = list(range(56))
        self.running: dict[int, Running] = {}
        self.account: Counter[str] = Counter()
        self.failed = ""
        self.born = 0

    def enter(self) -> None:
        contract, origin = self.chance.choice(list(CONTRACTS)), self.chance.choice(ORIGINS)
        program = self.chance.choice([write, work if contract == "work" else read])
        fate = self.chance.choice(["lives", "lives", "killed", "dies at", "stops at"])
        label = self.chance.choice(crash_points())
        nth = self.chance.choice([1, 1, 2, 5, 40])
        seed = self.chance.randrange(1 << 32)
        cpp = self.mixed and self.chance.random() < 0.5
        self.born += 1
        index = self.free.pop()
        record = self.board.record(index)
        record._words[0] = 0
        pid = child_processes.fork()
        if pid == 0:
            if cpp:
                speak_cpp()
            self.live(program, record, contract, origin, fate, label, nth, seed)
        self.running[pid] = Running(record, index, fate, time.monotonic())
        self.account[f"joined {contract} as {'writer' if program is write else 'reader'}"] += 1
        self.account["were C++"] += cpp

    def live(self, program, record, contract, origin, fate, label, nth, seed) -> None:  # type: ignore[no-untyped-def]
        code = 1
        try:
            if fate in ("dies at", "stops at"):
                os.environ.update((die_at if fate == "dies at" else stop_at)(label, nth))
            os.environ["RINGMAIN_LAB_ORIGIN"] = str(origin)
            program(self.board, record, topic_of(contract, origin), contract, self.born, random.Random(seed))
            code = 0
        except REFUSALS:
            code = 3
        except BaseException:
            (self.directory / f"broken-{os.getpid()}").write_text(f"{contract}\n{traceback.format_exc()}")
        finally:
            os._exit(code)

    def tend(self) -> None:
        """Who has ended, and how? Who is to be killed or woken?"""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                break
            if pid == 0:
                break
            one = self.running[pid]
            if os.WIFSTOPPED(status):
                self.account["stopped for a while"] += 1
                one.stopped_until = time.monotonic() + self.chance.random()
                continue
            del self.running[pid]
            self.free.append(one.index)
            self.account["messages"] += one.record.count
            code = os.waitstatus_to_exitcode(status)
            self.account[{0: "left", 3: "were refused or timed out", -9: "killed"}.get(code, "broke")] += 1
            if code not in (0, 3, -signal.SIGKILL):
                notes = [note.read_text() for note in self.directory.glob("broken-*")]
                self.failed = "\n".join(notes) or f"pid {pid} ended with {code}"
        now = time.monotonic()
        for pid, one in self.running.items():
            if one.stopped_until and now > one.stopped_until:
                one.stopped_until = 0
                os.kill(pid, signal.SIGCONT)
            elif one.fate == "killed" and self.chance.random() < 0.01:
                os.kill(pid, signal.SIGKILL)
            elif now - one.since > 120:
                self.failed = f"pid {pid} did not end within two minutes"

    def run(self, minutes: float) -> None:
        began = reported = time.monotonic()
        try:
            while not self.failed and time.monotonic() - began < minutes * 60:
                if len(self.running) < CROWD * 2 and self.free:
                    self.enter()
                self.tend()
                time.sleep(0.002)
                if time.monotonic() - reported > 10:
                    reported = time.monotonic()
                    self.report(reported - began)
            self.finish()
            self.report(time.monotonic() - began)
        finally:  # also on SIGTERM
            for pid in self.running:
                child_processes.kill(pid)
            shutil.rmtree(self.directory, ignore_errors=True)

    def finish(self) -> None:
        """All leave. Only topics of dead processes and pipes with unread messages may be left, and can be cleaned."""
        deadline = time.monotonic() + 60
        while self.running and time.monotonic() < deadline and not self.failed:
            self.tend()
            time.sleep(0.01)
        if self.running and not self.failed:
            self.failed = f"{len(self.running)} processes did not end"
        while self.running:
            child_processes.kill(self.running.popitem()[0])
        for origin in ORIGINS:
            self.finish_work(topic_of("work", origin))
        self.account["topics of dead processes cleaned up"] += len(rm.clean())
        for info in rm.topics():
            if info.contract in KEEPING:
                rm.unlink(info.name, force=True)
        left = [p.name for p in self.directory.glob("*.ring")]
        if left and not self.failed:
            self.failed = f"left behind: {left}"

    def finish_work(self, topic: str) -> None:
        """What is left of a work topic is done, and then all that was sent must be."""
        diary = Diary(topic)
        if topic in [info.name for info in rm.topics()]:
            with rm.Subscriber(topic) as sub:
                while (message := sub.try_recv_message()) is not None:
                    diary.note("done", sub.epoch, message.seq)
                    self.account["tasks left at the end"] += 1
        if missing := diary.missing():
            self.failed = self.failed or f"{topic}: {len(missing)} messages were sent and never done: {missing}"

    def report(self, elapsed_s: float) -> None:
        print(
            f"{elapsed_s:7.0f} s  " + ", ".join(f"{n} {what}" for what, n in sorted(self.account.items())), flush=True
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--mixed", action="store_true", help="every other participant is one of C++")
    options = parser.parse_args()
    if not os.environ.get("RINGMAIN_LAB"):
        parser.error("set RINGMAIN_LAB=1: the crash points are in the lab build only")
    child_processes.clean_up_on_sigterm()
    print(f"seed {options.seed}", flush=True)
    if options.mixed:
        import_module("face")  # before all forks
    soak = Soak(options.seed, options.mixed)
    soak.run(options.minutes)
    if soak.failed:
        print(f"BROKEN with seed {options.seed}:\n{soak.failed}")
    return int(bool(soak.failed))


if __name__ == "__main__":
    sys.exit(main())
