"""The place where processes are killed: forks a cast, arms the victims, watches the survivors, keeps the account.

Run with RINGMAIN_LAB set (tests/lab/test_killed_everywhere.py does):

    RINGMAIN_LAB=1 python tests/lab/arena.py die  --contract bus            every act, every point it passes
    RINGMAIN_LAB=1 python tests/lab/arena.py pair --contract bus --seed 7 --seconds 20
    RINGMAIN_LAB=1 python tests/lab/arena.py stop --contract bus --parallel 8

Prints one JSON line a scenario. This process itself never touches a topic, so that a child is armed by its environment
when it first does; forking it costs a millisecond, where a new interpreter would cost a hundred.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import players
from players import ACTS, ONE_WRITER, PATIENCE_S, WAITING, Board, Seat, Wrong, until

from ringmain.testing import crash_points, die_at, stop_at

STOPPED_S = 1.0
MAY_HOLD = ("read: hold announced", "read: message found, not copied", "read: taken, hold not moved")


@dataclass(frozen=True)
class Victim:
    act: str
    label: str | None = None
    nth: int = 1


@dataclass
class Result:
    """What became of one scenario."""

    contract: str
    victims: Sequence[Victim]
    how: str
    reached: list[bool] = field(default_factory=list)
    resumed_ms: float | None = None
    """From the death until every surviving reader had its next message."""
    timeouts: int = 0
    """Waits of the surviving writer that ended, naming who was stopped."""
    must_go_on: bool = False
    error: str = ""


class World:
    """One topic, its survivors and its victims, in a runtime directory of its own."""

    def __init__(self, contract: str, victims: Sequence[Victim], how: str) -> None:
        self.contract = contract
        self.victims = victims
        self.how = how
        self.acts = [ACTS[v.act] for v in victims]
        self.board = Board()
        self.directory = Path(tempfile.mkdtemp(prefix="ringmain-lab-", dir="/dev/shm"))
        self.notes = Path(tempfile.mkdtemp(prefix="ringmain-lab-notes-"))
        self.children: dict[int, str] = {}
        many = contract not in ONE_WRITER
        self.writer_first = many or not any(act.writes for act in self.acts)
        self.reader_first = contract != "pipe" or all(act.has_reader for act in self.acts)
        self.lingers = any(act.pauses for act in self.acts)
        self.reader_seats = [self.board.seat(i) for i in ((1,) if contract == "pipe" else (1, 2))]
        self.seats_given = 3

    # -------------------------------------------------------------------------------------------- processes

    def fork(self, name: str, program: Callable[..., None], *arguments: Any, env: dict[str, str] | None = None) -> int:
        pid = os.fork()
        if pid:
            self.children[pid] = name
            return pid
        code = 1
        try:
            os.environ.pop("RINGMAIN_CRASH", None)
            os.environ.update({"RINGMAIN_DIR": str(self.directory), **(env or {})})
            program(self.board, *arguments)
            code = 0
        except BaseException:
            (self.notes / f"{name}-{os.getpid()}").write_text(traceback.format_exc(limit=-4))
        finally:
            os._exit(code)

    def fails(self) -> bool:
        """Raises if somebody has left a note: nobody need wait for the rest."""
        for note in self.notes.iterdir():
            if note.name != "trace":
                raise Wrong(f"{note.name} failed")
        return False

    def next_seat(self) -> Seat:
        self.seats_given += 1
        return self.board.seat(self.seats_given - 1)

    def reap(self, pid: int, what: str, patience_s: float = PATIENCE_S + 15) -> int:
        """The exit code of a child, negative for a signal."""
        deadline = time.monotonic() + patience_s
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self.children[pid]
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                raise Wrong(f"{what} (pid {pid}) did not end within {patience_s} s")
            time.sleep(0.0003)

    def expect_success(self, pid: int, what: str) -> None:
        code = self.reap(pid, what)
        if code != 0:
            notes = "\n".join(note.read_text() for note in sorted(self.notes.iterdir()))
            raise Wrong(f"{what} ended with {code}\n{notes}")

    # ---------------------------------------------------------------------------------------------- the play

    def start_survivors(self) -> None:
        seats = self.reader_seats
        self.survivors = {
            "writer": self.fork("writer", players.writer, self.board.seat(0), self.contract, 1, seats),
        }
        for i, seat in enumerate(seats):
            slow = self.lingers and i == len(seats) - 1
            program = players.lingering_reader if slow else players.reader
            self.survivors[f"reader {i}"] = self.fork(f"reader-{i}", program, seat, self.contract)

    def set_the_stage(self) -> None:
        """Everything that must be there before the victims come."""
        first = all(act.survivors_first for act in self.acts)
        if first:
            self.start_survivors()
            if self.reader_first:
                self.board.go_reader = True
            if any(act.founded for act in self.acts) and self.reader_first:
                pid = self.fork("founder", players.found, self.next_seat(), self.contract, len(self.reader_seats))
                self.expect_success(pid, "the founder")
            if self.writer_first:
                self.board.go_writer = True
                until(lambda: self.board.seat(0).count or self.fails(), "the writer's first message")
                if self.reader_first:
                    until(
                        lambda: self.fails() or all(s.count for s in self.reader_seats), "the readers' first messages"
                    )
        if any(act.corpse for act in self.acts):
            seat = self.next_seat()
            as_writer = not first or (self.contract in ONE_WRITER and not self.writer_first)
            seat.done = as_writer
            if as_writer or self.contract != "pipe" or not self.reader_first:  # else its one reader lives
                pid = self.fork("corpse", players.die_in_the_topic, seat, self.contract, 40)
                self.reap(pid, "the corpse")
        self.board.paused = first and self.lingers

    def arm(self, victim: Victim) -> dict[str, str]:
        if self.how == "trace":
            return {"RINGMAIN_CRASH_LOG": str(self.notes / "trace")}
        assert victim.label is not None
        return (stop_at if self.how == "stop" else die_at)(victim.label, victim.nth)

    def run_victims(self) -> list[bool]:
        """Starts them all at once; who was killed where it should be?"""
        pids = []
        for i, (victim, act) in enumerate(zip(self.victims, self.acts, strict=True)):
            seat = self.next_seat()
            self.last_victim_seat = seat
            pids.append(
                self.fork(f"victim-{i}", act.run, seat, self.contract, 10 + i, env=self.arm(victim)),
            )
        reached = []
        ended: dict[int, int] = {}
        started = time.monotonic()
        while len(ended) < len(pids):
            for pid in pids:
                if pid in ended:
                    continue
                done, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
                if done and os.WIFSTOPPED(status):
                    self.watch_while_stopped(pid)
                elif done:
                    del self.children[pid]
                    ended[pid] = os.waitstatus_to_exitcode(status)
            if all(pid in ended for pid, act in zip(pids, self.acts, strict=True) if act.writes):
                self.board.go_writer = True  # the place is free
            if self.board.paused and (time.monotonic() - started > 0.15):
                self.board.paused = False
            if time.monotonic() - started > PATIENCE_S + 15:
                raise Wrong("a victim neither died nor finished")
            time.sleep(0.0002)
        self.board.paused = False
        for pid in pids:
            code = ended[pid]
            if code not in (0, -signal.SIGKILL):
                notes = "\n".join(note.read_text() for note in self.notes.iterdir())
                raise Wrong(f"a victim ended with {code}\n{notes}")
            reached.append(code == -signal.SIGKILL)
        return reached

    def watch_while_stopped(self, pid: int) -> None:
        """One second in which a process stands still in the middle of something. Others go on, or say who it is."""
        board = self.board
        board.impatient = True
        counts = [seat.count for seat in self.reader_seats]
        time.sleep(STOPPED_S)
        self.went_on = [seat.count - count for seat, count in zip(self.reader_seats, counts, strict=True)]
        writer = board.seat(0)
        self.blocked = writer.timeouts
        self.must_go_on = self.nobody_need_wait()
        if self.must_go_on and not all(self.went_on):
            raise Wrong(f"the readers received {self.went_on} messages while one process stood still")
        if writer.unnamed:
            raise Wrong("a writer's wait ended without naming the process that was stopped")
        board.impatient = False
        os.kill(pid, signal.SIGCONT)
        self.was_stopped = True

    def nobody_need_wait(self) -> bool:
        """Is this a stop that no other may feel? Where a slow reader is lapped: a reader that stops without a borrowed
        message, and, if the writer is another, whoever joins, leaves or repairs."""
        if self.contract in WAITING or not self.writer_first or self.lingers:
            return False
        (victim,) = self.victims
        if victim.act.startswith("read"):
            return self.contract == "broadcast" or victim.label not in MAY_HOLD
        return self.contract == "bus" and str(victim.label).startswith(("create", "join", "leave", "reap", "schema"))

    def watch_survivors_go_on(self) -> float:
        """Milliseconds until every reader had news."""
        died_ns = time.monotonic_ns()
        counts = [seat.count for seat in self.reader_seats]
        self.board.go_writer = self.board.go_reader = True
        slowest = 0.0
        for seat, count in zip(self.reader_seats, counts, strict=True):
            until(lambda seat=seat, count=count: seat.count > count or self.fails(), "a survivor's next message")  # type: ignore[misc]
            slowest = max(slowest, (time.monotonic_ns() - died_ns) / 1e6)
        return slowest

    def finish(self) -> None:
        self.board.stop = True
        for name, pid in self.survivors.items():
            self.expect_success(pid, f"the surviving {name}")
        left = sorted(p.name for p in self.directory.iterdir() if p.name != "bell")
        if left:
            raise Wrong(f"left behind after all have left: {left}")

    def check_pipe_goes_on(self) -> None:
        """The next reader of a pipe goes on where the dead one stopped."""
        if self.contract != "pipe" or self.reader_first or len(self.victims) != 1:
            return
        reported, first = self.last_victim_seat.counter, self.reader_seats[0].first
        in_hand = 5  # taken in one call, and not yet told
        if self.last_victim_seat.count and not reported <= first <= reported + in_hand + 1:
            raise Wrong(f"the dead reader had message {reported}, the next one begins with {first}")

    def play(self) -> Result:
        result = Result(self.contract, self.victims, self.how)
        self.was_stopped = False
        try:
            self.set_the_stage()
            result.reached = self.run_victims()
            first = all(act.survivors_first for act in self.acts)
            if not first:
                self.start_survivors()
            resumed = self.watch_survivors_go_on()
            if first:
                result.resumed_ms = round(resumed, 3)
            self.finish()
            self.check_pipe_goes_on()
            if self.how == "stop":
                result.reached = [self.was_stopped]
                if self.was_stopped:
                    result.timeouts, result.must_go_on = self.blocked, self.must_go_on
        except Exception as error:
            result.error = f"{type(error).__name__}: {error}"
            result.error += "".join("\n" + n.read_text() for n in sorted(self.notes.iterdir()) if n.name != "trace")
        finally:
            for pid in list(self.children):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            shutil.rmtree(self.directory, ignore_errors=True)
        return result

    def traced(self) -> Counter[str]:
        try:
            return Counter((self.notes / "trace").read_text().splitlines())
        except FileNotFoundError:
            return Counter()


# ------------------------------------------------------------------------------------------------- the account


def play(contract: str, victims: Sequence[Victim], how: str) -> Result:
    world = World(contract, victims, how)
    try:
        return world.play()
    finally:
        shutil.rmtree(world.notes, ignore_errors=True)


def trace(contract: str, act: str) -> Counter[str]:
    """Which points does this act pass, and how often?"""
    world = World(contract, [Victim(act)], "trace")
    try:
        result = world.play()
        if result.error:
            raise Wrong(f"{contract}, {act}, with nobody killed: {result.error}")
        return world.traced()
    finally:
        shutil.rmtree(world.notes, ignore_errors=True)


def passages(contract: str) -> list[tuple[Victim, int]]:
    """Every point of every act possible on this contract, with how often the act came by."""
    found = []
    for name, act in ACTS.items():
        if contract in act.contracts:
            seen = trace(contract, name)
            found += [(Victim(name, label), seen[label]) for label in crash_points() if seen[label]]
    return found


def killed(contract: str, later: bool) -> Iterator[Result]:
    for victim, times in passages(contract):
        nths = {1, 2 + times // 2} if later and times > 3 else {1}
        for nth in sorted(nths):
            armed = Victim(victim.act, victim.label, nth)
            for _attempt in range(3):  # a point that depends on the others' pace may be missed
                result = play(contract, [armed], "die")
                if result.error or result.reached[0]:
                    break
            yield result


def pairs(contract: str, seed: int, seconds: float) -> Iterator[Result]:
    points = [victim for victim, _ in passages(contract) if ACTS[victim.act].survivors_first]
    both = [(a, b) for i, a in enumerate(points) for b in points[i:]]
    random.Random(seed).shuffle(both)
    deadline = time.monotonic() + seconds
    for pair in both:
        if seconds and time.monotonic() > deadline:
            return
        yield play(contract, pair, "die")


def stopped(contract: str, every_act: bool, parallel: int) -> Iterator[Result]:
    wanted: dict[tuple[str, str], Victim] = {}
    for victim, _ in passages(contract):
        if ACTS[victim.act].survivors_first and victim.label:
            wanted.setdefault((victim.label, victim.act if every_act else ""), victim)
    yield from in_parallel([lambda v=v: play(contract, [v], "stop") for v in wanted.values()], parallel)  # type: ignore[misc]


def in_parallel(tasks: list[Callable[[], Result]], width: int) -> Iterator[Result]:
    """Scenarios that mostly stand still are played side by side, each in a process of its own."""
    running: dict[int, tuple[int, Path]] = {}
    folder = Path(tempfile.mkdtemp(prefix="ringmain-lab-results-"))
    waiting = list(enumerate(tasks))
    while waiting or running:
        while waiting and len(running) < width:
            index, task = waiting.pop(0)
            pid = os.fork()
            if pid == 0:
                (folder / str(index)).write_text(json.dumps(asdict(task())))
                os._exit(0)
            running[pid] = (index, folder / str(index))
        pid, _status = os.wait()
        if pid in running:
            _, file = running.pop(pid)
            data = json.loads(file.read_text())
            data["victims"] = [Victim(**v) for v in data["victims"]]
            yield Result(**data)
    shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["die", "pair", "stop"])
    parser.add_argument("--contract", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="for pairs: stop after so long; 0 plays all")
    parser.add_argument("--later", action="store_true", help="die also at a later passage, not only the first")
    parser.add_argument("--every-act", action="store_true", help="stop at a point in every act that passes it")
    parser.add_argument("--parallel", type=int, default=8)
    options = parser.parse_args()
    if not os.environ.get("RINGMAIN_LAB"):
        parser.error("set RINGMAIN_LAB=1: the crash points are in the lab build only")
    results = {
        "die": lambda: killed(options.contract, options.later),
        "pair": lambda: pairs(options.contract, options.seed, options.seconds),
        "stop": lambda: stopped(options.contract, options.every_act, options.parallel),
    }[options.what]()
    for result in results:
        print(json.dumps(asdict(result)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
