"""Where processes are killed: forks a cast, arms the victims, watches the survivors.

The process itself never touches a topic, so that a child is armed by its environment when it first does; forking it
costs a millisecond, where a new interpreter would cost a hundred. `program.py` says which scenarios are played.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import actors
import child_processes
from actors import ACTS, ONE_WRITER, PATIENCE_S, SHARED, SURVIVOR, WAITING, Board, Record, Wrong, until

from ringmain.testing import die_at, stop_at

STOPPED_S = 1.0
POLL_S = 0.01
AT_REST_S = 0.03
"""If no process has moved for so long, those that should be waiting for a held message are waiting."""
MAY_HOLD = tuple(
    f"read: {where}"
    for where in ("hold moved, bell not rung", "hold announced", "message found, not copied", "taken, hold not moved")
)


scratch = "/dev/shm"
"""Where scenarios have their directories; `program.py` removes it at the end, or on SIGTERM."""


in_cpp: tuple[str, ...] = ()
"""Whose processes are those of C++: what their names begin with."""
CPP = {"victims": ("victim",), "survivors": ("writer", "reader", "founder", "corpse", "last")}


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
    """Waits of the surviving writer that ended while one was stopped."""
    named: int = 0
    """Those of them whose error named the one that was stopped."""
    must_go_on: bool = False
    error: str = ""


class World:
    """One topic, its survivors and its victims, in a runtime directory of its own."""

    def __init__(self, contract: str, victims: Sequence[Victim], how: str) -> None:
        child_processes.expect_changes()
        self.contract = contract
        self.victims = victims
        self.how = how
        self.acts = [ACTS[v.act] for v in victims]
        self.board = Board()
        self.directory = Path(tempfile.mkdtemp(prefix="ringmain-lab-", dir=scratch))
        self.notes = Path(tempfile.mkdtemp(prefix="ringmain-lab-notes-", dir=scratch))
        self.children: dict[int, str] = {}
        many = contract not in ONE_WRITER
        self.writer_first = many or not any(act.writes for act in self.acts)
        self.reader_first = contract != "pipe" or all(act.has_reader for act in self.acts)
        self.lingers = any(act.pauses for act in self.acts)
        self.reader_records = [self.board.record(i) for i in ((1,) if contract == "pipe" else (1, 2))]
        self.records_given = 3

    # -------------------------------------------------------------------------------------------- processes

    def fork(self, name: str, program: Callable[..., None], *arguments: Any, env: dict[str, str] | None = None) -> int:
        pid = child_processes.fork()
        if pid:
            self.children[pid] = name
            return pid
        code = 1
        try:
            os.environ.pop("RINGMAIN_CRASH", None)
            os.environ.update({"RINGMAIN_DIR": str(self.directory), **(env or {})})
            if name.startswith(in_cpp):
                actors.speak_cpp()
            program(self.board, *arguments)
            code = 0
        except BaseException:
            (self.notes / f"{name}-{os.getpid()}").write_text(traceback.format_exc(limit=-4))
        finally:
            os._exit(code)

    def fails(self) -> bool:
        """Raises if a process has reported an error: there is no need to wait for the rest."""
        for note in self.notes.iterdir():
            if note.name != "trace":
                raise Wrong(f"{note.name} failed")
        return False

    def next_record(self) -> Record:
        self.records_given += 1
        return self.board.record(self.records_given - 1)

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
            child_processes.wait_for_change(POLL_S)

    def expect_success(self, pid: int, what: str) -> None:
        code = self.reap(pid, what)
        if code != 0:
            notes = "\n".join(note.read_text() for note in sorted(self.notes.iterdir()))
            raise Wrong(f"{what} ended with {code}\n{notes}")

    # ---------------------------------------------------------------------------------------------- the play

    def start_survivors(self) -> None:
        records = self.reader_records
        self.survivors = {
            "writer": self.fork("writer", actors.writer, self.board.record(0), self.contract, SURVIVOR, records),
        }
        for i, record in enumerate(records):
            slow = self.lingers and i == len(records) - 1
            program = actors.lingering_reader if slow else actors.reader
            self.survivors[f"reader {i}"] = self.fork(f"reader-{i}", program, record, self.contract)

    def set_the_stage(self) -> None:
        """Everything that must be there before the victims come."""
        first = all(act.survivors_first for act in self.acts)
        if first:
            self.start_survivors()
            if self.reader_first:
                self.board.go_reader = True
            if any(act.founded for act in self.acts) and self.reader_first:
                pid = self.fork("founder", actors.found, self.next_record(), self.contract, len(self.reader_records))
                self.expect_success(pid, "the founder")
            if self.writer_first:
                self.board.go_writer = True
                until(lambda: self.board.record(0).count or self.fails(), "the writer's first message")
                if self.reader_first:
                    until(
                        lambda: self.fails() or all(s.count for s in self.reader_records), "the readers' first messages"
                    )
        if any(act.corpse for act in self.acts):
            record = self.next_record()
            as_writer = not first or (self.contract in ONE_WRITER and not self.writer_first)
            record.done = as_writer
            if as_writer or self.contract != "pipe" or not self.reader_first:  # else its one reader is alive
                pid = self.fork("corpse", actors.die_in_the_topic, record, self.contract, 40)
                self.reap(pid, "the corpse")
        self.board.paused = first and self.lingers

    def arm(self, victim: Victim) -> dict[str, str]:
        if self.how == "trace":
            return {"RINGMAIN_CRASH_LOG": str(self.notes / "trace")}
        assert victim.label is not None
        return (stop_at if self.how == "stop" else die_at)(victim.label, victim.nth)

    def run_victims(self) -> list[bool]:
        """Starts them all at once; who was killed where it should be?"""
        pids, records = [], []
        for i, (victim, act) in enumerate(zip(self.victims, self.acts, strict=True)):
            records.append(self.next_record())
            pids.append(
                self.fork(f"victim-{i}", act.run, records[-1], self.contract, 10 + i, env=self.arm(victim)),
            )
        self.last_victim_record = records[-1]
        reached = []
        ended: dict[int, int] = {}
        started = moved = time.monotonic()
        counts: list[int] = []
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
                self.board.go_writer = True  # the one writer is gone
            now = time.monotonic()
            if self.board.paused:
                before, counts = counts, [record.count for record in (*records, self.board.record(0))]
                if counts != before or (not all(counts[:-1]) and now - started < 5 * AT_REST_S):
                    moved = now
                self.board.paused = now - moved < AT_REST_S
            if now - started > PATIENCE_S + 15:
                raise Wrong("a victim neither died nor finished")
            child_processes.wait_for_change(POLL_S)
        self.board.paused = False
        for pid in pids:
            code = ended[pid]
            if code not in (0, -signal.SIGKILL):
                notes = "\n".join(note.read_text() for note in self.notes.iterdir())
                raise Wrong(f"a victim ended with {code}\n{notes}")
            reached.append(code == -signal.SIGKILL)
        return reached

    def watch_while_stopped(self, pid: int) -> None:
        """One second in which a process is stopped in the middle of something. Others go on, or name it."""
        board = self.board
        board.impatient, board.paused = True, False
        writer = board.record(0)
        self.must_go_on = self.must_not_delay_others()
        time.sleep(STOPPED_S / 2)  # by now the ring is full, if the stopped process blocks it
        received, sent = [record.count for record in self.reader_records], writer.count
        time.sleep(STOPPED_S / 2)  # more time for a busy machine
        if self.must_go_on:
            until(
                lambda: (
                    all(record.count > n for record, n in zip(self.reader_records, received, strict=True))
                    or self.fails()
                ),
                "the readers' next messages while one process is stopped",
            )
        elif self.writer_first:
            until(
                lambda: writer.count > sent or writer.named or self.fails(),
                "the writer to go on, or to name the process it waits for",
            )
        self.blocked, self.named = writer.timeouts, writer.named
        if writer.unnamed:
            raise Wrong("a writer's wait ended without naming a process")
        board.impatient = False
        os.kill(pid, signal.SIGCONT)
        self.was_stopped = True

    def must_not_delay_others(self) -> bool:
        """Where a slow reader is lapped, these stops must not delay others: a reader that stops without a borrowed
        message and, if the writer is another process, one that joins, leaves or repairs."""
        if self.contract in WAITING or not self.writer_first or self.lingers:
            return False
        (victim,) = self.victims
        if victim.act.startswith("read"):
            return self.contract == "broadcast" or victim.label not in MAY_HOLD
        return self.contract == "bus" and str(victim.label).startswith(("create", "join", "leave", "reap", "schema"))

    def watch_survivors_go_on(self) -> float:
        """Milliseconds until every reader had a new message."""
        died_ns = time.monotonic_ns()
        counts = [record.count for record in self.reader_records]
        self.board.go_writer = self.board.go_reader = True
        slowest = 0.0
        for record, count in zip(self.reader_records, counts, strict=True):
            until(lambda record=record, count=count: record.count > count or self.fails(), "a survivor's next message")  # type: ignore[misc]
            slowest = max(slowest, (time.monotonic_ns() - died_ns) / 1e6)
        return slowest

    def finish(self) -> None:
        self.board.stop = True
        for name, pid in self.survivors.items():
            self.expect_success(pid, f"the surviving {name}")
        self.check_work_is_done()
        if self.contract in SHARED and (self.directory / "lab+topic.ring").exists():
            self.expect_success(
                self.fork("last", actors.last_worker, self.next_record(), self.contract), "the last worker"
            )
        left = sorted(p.name for p in self.directory.iterdir() if p.name != "bell")
        if left:
            raise Wrong(f"left behind after all have left: {left}")

    def check_work_is_done(self) -> None:
        """On a shared contract, all that the surviving writer sent; but removing a topic discards its messages."""
        if self.contract not in SHARED or self.board.lives(SURVIVOR).count > 1:
            return
        if unfinished := self.board.unfinished(self.board.record(0).counter):
            raise Wrong(f"messages that no worker has done: {unfinished[:20]}")

    def check_pipe_goes_on(self) -> None:
        """The next reader of a pipe goes on where the dead one stopped."""
        if self.contract != "pipe" or self.reader_first or len(self.victims) != 1:
            return
        reported, first = self.last_victim_record.counter, self.reader_records[0].first
        in_hand = 5  # taken in one call, and not yet reported
        if self.last_victim_record.count and not reported <= first <= reported + in_hand + 1:
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
                    result.timeouts, result.named, result.must_go_on = self.blocked, self.named, self.must_go_on
        except Exception as error:
            result.error = f"{type(error).__name__}: {error}"
            result.error += "".join("\n" + n.read_text() for n in sorted(self.notes.iterdir()) if n.name != "trace")
        finally:
            for pid in list(self.children):
                child_processes.kill(pid)
            shutil.rmtree(self.directory, ignore_errors=True)
        return result

    def traced(self) -> Counter[str]:
        try:
            return Counter((self.notes / "trace").read_text().splitlines())
        except FileNotFoundError:
            return Counter()


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
            raise Wrong(f"{contract}, {act}, with no process killed: {result.error}")
        return world.traced()
    finally:
        shutil.rmtree(world.notes, ignore_errors=True)
