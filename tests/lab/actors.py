"""The programs of the lab's processes: those that survive, and those that are killed.

A survivor works until `Board.stop` and checks everything it sees: every message whole, in order, none missing
where none may be missing, and `lost` exact to the message. A victim does one thing (`ACTS`) over and over until it dies
of it. Both run in processes of their own, and report through the `Board`, a few words of shared memory.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import ringmain as rm
from ringmain._contracts import CONTRACTS

TOPIC = "lab/topic"
CAPACITY = 4096
OTHER_CAPACITY = 8192
PATIENCE_S = 60.0
"""Long, because the machine may be busy with other scenarios; only failures take that long."""
VICTIMS_PATIENCE_S = 0.5
"""A victim that finds no room stops after this time: it has died by then, or will not."""
SLICE_S = 0.25
"""A survivor's single wait."""
FIRST_POLL_S, LONGEST_POLL_S = 0.0005, 0.02
"""Dozens of processes poll at once. If all of them did so every half millisecond, they alone would keep two cores busy,
and then any process that is forked or ends waits for seconds in the kernel."""
WAITING = [one.name for one in CONTRACTS.values() if one.writer_waits]
SHARED = [one.name for one in CONTRACTS.values() if one.shared]
HOLDING = [one.name for one in CONTRACTS.values() if one.holds != "never"]
KEEPING = [one.name for one in CONTRACTS.values() if one.keeps_unread]
SURVIVOR = 1
"""The number of the surviving writer."""
ONE_WRITER = [one.name for one in CONTRACTS.values() if one.one_writer]
HEAD = struct.Struct("<IIQ")
FINAL = 0xFFFF
VICTIM = "victim"
CAST = (VICTIM, "survivor", "founder", "corpse")


class Wrong(AssertionError):
    """A promise was broken."""


class Board:
    """Words that all processes of a scenario share. Each word has one writer."""

    WORDS = 4096
    LIVES = 512
    """The first of the words that say in which lives the writers wrote; the records are below."""

    MOST_TASKS = 1 << 20

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, self.WORDS * 8)).cast("q")
        self._done = mmap.mmap(-1, self.MOST_TASKS)

    def finished(self, data: bytes) -> None:
        """On a shared contract: this message is done. Said before the worker is done with it, since it may die then."""
        writer, counter = parse(data)
        if writer == SURVIVOR:
            self._done[counter % self.MOST_TASKS] = 1

    def unfinished(self, sent: int) -> list[int]:
        return [counter for counter in range(min(sent, self.MOST_TASKS)) if not self._done[counter]]

    stop = property(lambda self: bool(self._words[0]), lambda self, v: self._words.__setitem__(0, v))
    go_writer = property(lambda self: bool(self._words[1]), lambda self, v: self._words.__setitem__(1, v))
    go_reader = property(lambda self: bool(self._words[4]), lambda self, v: self._words.__setitem__(4, v))
    paused = property(lambda self: bool(self._words[2]), lambda self, v: self._words.__setitem__(2, v))
    impatient = property(lambda self: bool(self._words[3]), lambda self, v: self._words.__setitem__(3, v))

    def record(self, index: int) -> Record:
        return Record(self._words[16 + 8 * index : 24 + 8 * index])

    def lives(self, writer: int) -> Lives:
        begin = self.LIVES + Lives.WORDS * writer
        return Lives(self._words[begin : begin + Lives.WORDS])


class Record:
    """One process's part of the board."""

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def tick(self, counter: int = 0) -> None:
        self._words[1] = time.monotonic_ns()
        self._words[2] = counter
        self._words[0] += 1

    count = property(lambda self: self._words[0])
    last_ns = property(lambda self: self._words[1])
    counter = property(lambda self: self._words[2])
    done = property(lambda self: bool(self._words[3]), lambda self, v: self._words.__setitem__(3, v))
    timeouts = property(lambda self: self._words[4], lambda self, v: self._words.__setitem__(4, v))
    unnamed = property(lambda self: self._words[5], lambda self, v: self._words.__setitem__(5, v))
    first = property(lambda self: self._words[6], lambda self, v: self._words.__setitem__(6, v))
    named = property(lambda self: self._words[7], lambda self, v: self._words.__setitem__(7, v))


class Lives:
    """In which lives of the topic a writer wrote, recorded before it sends. A reader that did not join a life cannot
    know that there was one. A writer that stays in one life need not record it."""

    WORDS = 32

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def begin(self, epoch: int, counter: int) -> None:
        """Message `counter` will be the first in this life."""
        count = self._words[0]
        if count == 0 or self._words[2 * count - 1] != epoch:
            self._words[2 * count + 1], self._words[2 * count + 2] = epoch, counter
            self._words[0] = count + 1

    @property
    def count(self) -> int:
        return int(self._words[0])

    def of(self, counter: int) -> int | None:
        """The epoch of this message; None: not recorded."""
        for i in reversed(range(self._words[0])):  # the later one, if nothing could be sent in the one before
            if self._words[2 * i + 2] <= counter:
                return int(self._words[2 * i + 1])
        return None


# ------------------------------------------------------------------------------------------------ messages


def compose(writer: int, counter: int) -> bytes:
    """A message that shows by itself whether it is whole."""
    size = 1200 if counter % 40 == 39 else counter * 37 % 260
    return HEAD.pack(writer, size, counter) + bytes([(writer * 31 + counter * 7) & 0xFF]) * size


def parse(data: bytes) -> tuple[int, int]:
    writer, size, counter = HEAD.unpack_from(data)
    if len(data) != HEAD.size + size or data[HEAD.size :] != bytes([(writer * 31 + counter * 7) & 0xFF]) * size:
        raise Wrong(f"a torn message: writer {writer}, counter {counter}, {len(data)} bytes")
    return writer, counter


class Ledger:
    """What one reader has seen, and the checks of everything new.

    A contract that waits promises every message sent in a life of the topic from when the reader joined it to its end:
    after a removal, what is unread comes before the next life. That one the reader begins with the oldest message that
    is there, and what is gone by then is reported as lost, to the message. It promises nothing of a life that began and
    was removed while the reader was between two lives: removing a topic discards its messages.
    """

    def __init__(self, contract: str, board: Board | None = None) -> None:
        self.waiting = contract in WAITING
        self.shared = contract in SHARED  # what does not come went to another worker
        self.inherits = contract == "pipe"  # what the reader before it has read is not lost
        self.board = board
        self.epoch: int | None = None
        self.next_seq: int | None = None
        self.next_counter: dict[int, int] = {}
        self.lost: dict[int, int] = {}
        """Of each life that the reader joined: reported as lost, and not yet found missing."""

    def join(self, epoch: int) -> None:
        """From now on the reader takes part in this life."""
        self.lost.setdefault(epoch, 0)

    def enter(self, message: rm.Message, epoch: int) -> tuple[int, int]:
        writer, counter = parse(message.data)
        if self.shared:
            if message.lost:
                raise Wrong(f"{message.lost} messages lost before {message.seq} on a contract that waits")
            return writer, counter
        first_of_life = epoch != self.epoch
        if first_of_life:
            if message.lost > message.seq:
                raise Wrong(f"{message.lost} messages lost before message {message.seq}: there were not so many")
            if self.epoch is not None and message.lost != message.seq and not self.inherits:
                raise Wrong(f"a new life begins with message {message.seq}, but lost is {message.lost}")
            self.join(epoch)
            self.epoch = epoch
            self.next_seq = message.seq
            self.lost[epoch] += message.lost
        elif self.next_seq is not None:
            self.next_seq += message.lost
        if message.seq != self.next_seq:
            raise Wrong(f"message {message.seq} came where {self.next_seq} was due ({message.lost} lost)")
        if message.lost and self.waiting and not first_of_life:
            raise Wrong(f"{message.lost} messages lost before {message.seq} on a contract that waits")
        due = self.next_counter.get(writer)
        if due is not None and writer != FINAL:
            if counter < due:
                raise Wrong(f"writer {writer}'s message {counter} came after its {due - 1}")
            if self.waiting:
                for missing in range(due, counter):
                    self.miss(writer, missing, epoch)
        self.next_counter[writer] = counter + 1
        self.next_seq = message.seq + 1
        return writer, counter

    def miss(self, writer: int, counter: int, epoch: int) -> None:
        """A message did not come. It was one of those reported as lost, or of a life that the reader did not join."""
        life = (self.board and self.board.lives(writer).of(counter)) or epoch
        if life not in self.lost:
            return
        self.lost[life] -= 1
        if self.lost[life] < 0:
            raise Wrong(f"writer {writer}'s message {counter} is missing, of life {life}; now is {epoch}")


class Follower(rm.Subscriber):
    """A subscriber that enters in its ledger which lives of the topic it has part in, also if it gets nothing there."""

    def __init__(self, ledger: Ledger, topic: str) -> None:
        self._ledger = ledger
        super().__init__(topic, name="survivor", on_lap="oldest", spin=0)

    def _attached(self) -> None:
        super()._attached()
        assert self.epoch is not None
        self._ledger.join(self.epoch)


# ----------------------------------------------------------------------------------------------- survivors


def until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Polls more and more slowly: it notices after at most a tenth of the time that it took."""
    deadline, pause_s = time.monotonic() + patience_s, FIRST_POLL_S
    while not condition():
        if time.monotonic() > deadline:
            raise Wrong(f"waited {patience_s} s for {what}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.1, LONGEST_POLL_S)


def wait_for_start(go: Callable[[], bool]) -> None:
    """The arena decides when, and how long it waits for the processes before us. If it dies, so do we."""
    until(go, "the start", math.inf)


def open_when_free(board: Board, make: Callable[[], rm.Publisher | rm.Subscriber], record: Record) -> object:
    """Opens as soon as the one writer or reader before it is gone."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return make()
        except (rm.TopicBusy, rm.TopicMismatch, rm.Timeout) as error:
            if time.monotonic() > deadline:
                raise Wrong(f"could not open within {PATIENCE_S} s: {error}") from error
            if board.impatient:
                record.timeouts += isinstance(error, rm.Timeout)
                record.named += names_victim(error)
            time.sleep(0.002)


def note_timeout(board: Board, record: Record, error: rm.Timeout, since: float) -> None:
    """A wait that timed out is tried again; many times only while a process is stopped."""
    if not board.impatient:
        if time.monotonic() - since > PATIENCE_S:
            raise Wrong(f"stuck: {error}") from error
        return
    record.timeouts += 1
    record.named += names_victim(error)
    # On a busy machine it may be another survivor that is slow.
    if not names_victim(error) and not any(who in str(error) for who in CAST) and isinstance(error, rm.Full):
        record.unnamed += 1


def names_victim(error: Exception) -> bool:
    """By name; by its process, where it stopped with the roster locked; or as the reader a pipe does not have yet."""
    return any(text in str(error) for text in (VICTIM, "stayed locked by pid", "who has not come yet"))


def writer(board: Board, record: Record, contract: str, number: int, readers: list[Record]) -> None:
    """Sends without end; opens anew when it was taken over or the topic removed; says goodbye until all heard it."""
    wait_for_start(lambda: board.go_writer)
    counter = 0
    said_goodbye = False
    since = time.monotonic()
    pub: rm.Publisher | None = None
    try:
        while True:
            if pub is None:
                made = open_when_free(
                    board,
                    lambda: rm.Publisher(TOPIC, contract=contract, capacity=CAPACITY, sender="survivor", spin=0),
                    record,
                )
                assert isinstance(made, rm.Publisher)
                pub = made
                board.lives(number).begin(pub.epoch, counter)
            if board.stop and all(reader.done for reader in readers):
                return
            leaving = board.stop
            leaves_unread = contract in KEEPING and (contract not in SHARED or not pub.all_read)
            if leaving and said_goodbye and leaves_unread:
                # Unread ones would stay: once is enough on a pipe, and where they are shared one after the other.
                time.sleep(0.0005)
                continue
            try:
                pub.send(HEAD.pack(FINAL, 0, 0) if leaving else compose(number, counter), timeout=SLICE_S)
            except rm.Timeout as error:
                note_timeout(board, record, error, since)
                continue
            except (rm.TakenOver, rm.TopicNotFound):
                pub.close()
                pub = None
                continue
            since = time.monotonic()
            counter += not leaving
            said_goodbye = leaving
            record.tick(counter)
            if leaving or counter % 8 == 0:
                time.sleep(0.0005)
    finally:
        if pub is not None:
            pub.close()


def reader(board: Board, record: Record, contract: str) -> None:
    """Receives and checks until the goodbye."""
    wait_for_start(lambda: board.go_reader)
    ledger = Ledger(contract, board)
    made = open_when_free(board, lambda: Follower(ledger, TOPIC), record)
    assert isinstance(made, Follower)
    since = time.monotonic()
    with made as sub:
        while True:
            try:
                message = sub.recv_message(timeout=SLICE_S)
            except rm.Timeout as error:
                note_timeout(board, record, error, since)
                continue
            since = time.monotonic()
            assert sub.epoch is not None
            who, counter = ledger.enter(message, sub.epoch)
            board.finished(message.data)
            if record.count == 0:
                record.first = counter
            record.tick(counter)
            if record.count % 16 == 0:
                check_schema(sub._schema())
            if who == FINAL and board.stop:
                record.done = True
                return


def lingering_reader(board: Board, record: Record, contract: str) -> None:
    """A reader that, while paused, keeps a message for itself, so that writers must wait where the contract says so."""
    wait_for_start(lambda: board.go_reader)
    made = open_when_free(board, lambda: rm.Subscriber(TOPIC, name="survivor", on_lap="oldest", spin=0), record)
    assert isinstance(made, rm.Subscriber)
    since = time.monotonic()
    with made as sub:
        while True:
            try:
                with suppress(rm.Lapped), sub.borrow(timeout=SLICE_S) as message:
                    who, counter = parse(bytes(message.data))
                    record.tick(counter)
                    until(lambda: not board.paused, "the end of the pause")
                    board.finished(bytes(message.data))
                since = time.monotonic()
            except Wrong:
                if CONTRACTS[contract].holds != "never":
                    raise
                continue
            except rm.Timeout as error:
                note_timeout(board, record, error, since)
                continue
            if who == FINAL and board.stop:
                record.done = True
                return


def last_worker(_board: Board, record: Record, _contract: str) -> None:
    """On a shared contract a topic stays while there is work in it: a victim may have sent, or given back, after the
    survivors had left. Does that work, and then the topic goes."""
    with rm.Subscriber(TOPIC, name="last", spin=0) as sub:
        done = 0
        while sub.try_recv() is not None:
            done += 1
    if not done:
        raise Wrong("the topic stayed, and there was no work in it")
    record.done = True


SCHEMAS = tuple(bytes([letter]) * size for letter, size in ((65, 900), (66, 1500), (67, 40)))


def check_schema(schema: bytes) -> None:
    if schema and schema not in SCHEMAS and not is_of_a_struct(schema):
        raise Wrong(f"a torn schema: {len(schema)} bytes, {set(schema)}")


def is_of_a_struct(schema: bytes) -> bool:
    """One that a publisher of C++ has written, and whole?"""
    try:
        return bool(json.loads(schema)["codec"] == "struct")
    except (ValueError, KeyError, TypeError):
        return False


def speak_cpp() -> None:
    """From now on this process is one of C++: all it does with topics goes through `libringmain.so`."""
    import face

    globals().update(rm=face, Follower=face.Follower)


# ------------------------------------------------------------------------------------------------- victims


@dataclass(frozen=True)
class Act:
    """What a victim does, and what the world must be for it."""

    run: Callable[[Board, Record, str, int], None]
    survivors_first: bool = True
    """Are the others there before it?"""
    has_reader: bool = True
    """May the survivors' reader be the one reader?"""
    pauses: bool = False
    """Is a reader to hold on to a message meanwhile?"""
    founded: bool = False
    """Is the topic to be there, with readers and, where there is one writer, without it?"""
    corpse: bool = False
    """Has a process died in the topic before?"""
    writes: bool = False
    """Does it want to be the one writer, where there is one?"""
    contracts: Sequence[str] = tuple(CONTRACTS)


ROUNDS = 16


@contextmanager
def refused() -> Iterator[None]:
    """Errors that a victim may get when another process died or replaced it: expected."""
    with suppress(rm.TopicBusy, rm.TopicMismatch, rm.TakenOver, rm.TopicNotFound, rm.Full, rm.Timeout):
        yield


def slot_of_a_writer(contract: str, capacity: int = CAPACITY) -> rm.Publisher:
    """Opens to write; where another victim is the one writer, as soon as it is dead."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return rm.Publisher(TOPIC, contract=contract, capacity=capacity, name=VICTIM, spin=0)  # type: ignore[arg-type]
        except rm.TopicBusy:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)


def write(board: Board, record: Record, contract: str, number: int) -> None:
    with refused(), slot_of_a_writer(contract) as pub:
        counter = 0
        for _ in range(ROUNDS):
            pub.send(compose(number, counter), timeout=VICTIMS_PATIENCE_S)
            pub.send_many([compose(number, counter + i) for i in (1, 2, 3)], timeout=VICTIMS_PATIENCE_S)
            message = compose(number, counter + 4)
            with pub.reserve(len(message), timeout=VICTIMS_PATIENCE_S) as room:
                room[:] = message
            message = compose(number, counter + 5)
            with pub.stream(timeout=VICTIMS_PATIENCE_S) as out:
                out.write(message[:7])
                out.write(message[7:])
            counter += 6
            record.tick(counter)


def read(board: Board, record: Record, contract: str, number: int) -> None:
    with refused(), rm.Subscriber(TOPIC, name=VICTIM, on_lap="oldest", spin=0) as sub:
        buffer = bytearray(4096)
        for _ in range(ROUNDS):
            data = sub.recv(timeout=VICTIMS_PATIENCE_S)
            board.finished(data)
            record.tick(parse(data)[1])
            for data in sub.recv_many(4):
                board.finished(data)
                record.tick(parse(data)[1])
            size = sub.recv_into(buffer, timeout=VICTIMS_PATIENCE_S)
            board.finished(bytes(buffer[:size]))
            record.tick(parse(bytes(buffer[:size]))[1])
            with suppress(rm.Lapped), sub.borrow(timeout=VICTIMS_PATIENCE_S) as message:
                data = bytes(message.data)
                if contract in SHARED:  # before the block ends; elsewhere it may be overwritten until then
                    board.finished(data)
            with suppress(Wrong):
                record.tick(parse(data)[1])


def give_back(board: Board, record: Record, contract: str, number: int) -> None:
    """A worker that rejects every other message."""
    with refused(), rm.Subscriber(TOPIC, name=VICTIM, spin=0) as sub:
        for _ in range(ROUNDS):
            sub.reject(sub.recv(timeout=VICTIMS_PATIENCE_S))
            data = sub.recv(timeout=VICTIMS_PATIENCE_S)
            board.finished(data)
            record.tick(parse(data)[1])


def create(board: Board, record: Record, contract: str, number: int) -> None:
    with refused(), slot_of_a_writer(contract) as pub:
        for counter in range(10):
            pub.send(compose(number, counter), timeout=VICTIMS_PATIENCE_S)
            record.tick(counter)


def wait_for_the_topic(board: Board, record: Record, contract: str, number: int) -> None:
    """A reader before there is a topic, and the writer that creates it: the reader receives all that is sent."""
    with refused(), rm.Subscriber(TOPIC, name=VICTIM, spin=0) as sub, slot_of_a_writer(contract) as pub:
        for counter in range(10):
            pub.send(compose(number, counter), timeout=VICTIMS_PATIENCE_S)
        for counter in range(10):
            if parse(sub.recv(timeout=VICTIMS_PATIENCE_S)) != (number, counter):
                raise Wrong(f"message {counter} is not the next one of a reader that waited for the topic")
            record.tick(counter)


def leave_last(board: Board, record: Record, contract: str, number: int) -> None:
    with (
        rm.Publisher(TOPIC, contract=contract, capacity=CAPACITY, name=VICTIM, spin=0) as pub,
        rm.Subscriber(TOPIC, start="oldest", name=VICTIM, spin=0) as sub,
    ):
        pub.send(compose(number, 0))
        sub.recv(timeout=VICTIMS_PATIENCE_S)


def take_over(board: Board, record: Record, contract: str, number: int) -> None:
    counter = 0
    for _ in range(3):
        with refused(), rm.Publisher(TOPIC, contract=contract, name=VICTIM, takeover=True, spin=0) as pub:
            board.lives(number).begin(pub.epoch, counter)
            for _ in range(10):
                pub.send(compose(number, counter), timeout=VICTIMS_PATIENCE_S)
                counter += 1
                record.tick(counter)


def remove(board: Board, record: Record, contract: str, number: int) -> None:
    with refused():
        rm.unlink(TOPIC, force=True)


def replace(board: Board, record: Record, contract: str, number: int) -> None:
    with refused(), slot_of_a_writer(contract, OTHER_CAPACITY) as pub:
        pub.send(compose(number, 0), timeout=VICTIMS_PATIENCE_S)


def retype(board: Board, record: Record, contract: str, number: int) -> None:
    with refused(), slot_of_a_writer(contract) as pub:
        for counter in range(9):
            pub._set_schema(SCHEMAS[counter % 3])
            check_schema(pub._schema())
            pub.send(compose(number, counter), timeout=VICTIMS_PATIENCE_S)
            record.tick(counter)


def clean(board: Board, record: Record, contract: str, number: int) -> None:
    rm.clean()


ACTS = {
    "write": Act(write, writes=True, founded=True),
    "write, blocked": Act(write, writes=True, founded=True, pauses=True, contracts=HOLDING),
    "write where one died": Act(write, writes=True, founded=True, corpse=True),
    "read": Act(read, has_reader=False),
    "read where one died": Act(read, has_reader=False, corpse=True),
    "give back": Act(give_back, has_reader=False, contracts=SHARED),
    "create": Act(create, writes=True),
    "wait for the topic": Act(wait_for_the_topic, survivors_first=False),
    "leave as the last": Act(leave_last, survivors_first=False),
    "take over": Act(take_over, contracts=ONE_WRITER),
    "remove": Act(remove),
    "replace": Act(replace, writes=True, founded=True),
    "change the schema": Act(retype, writes=True, founded=True),
    "clean": Act(clean, survivors_first=False, corpse=True),
}


# --------------------------------------------------------------------------------------------------- extras


def found(board: Board, record: Record, contract: str, readers: int) -> None:
    """Makes the topic and leaves it to its readers."""
    with rm.Publisher(TOPIC, contract=contract, capacity=CAPACITY, name="founder") as pub:
        record.tick()
        pub.wait_for_readers(readers, timeout=PATIENCE_S)


def die_in_the_topic(board: Board, record: Record, contract: str, number: int) -> None:
    """Joins and dies, in the slot that the next process needs."""
    if record.done:  # where there is one writer, or no other process: a writer
        pub = rm.Publisher(TOPIC, contract=contract, capacity=CAPACITY, name="corpse")
        pub.send(compose(number, 0), timeout=VICTIMS_PATIENCE_S)
    else:
        sub = rm.Subscriber(TOPIC, name="corpse")
        sub.recv(timeout=PATIENCE_S)
    os.kill(os.getpid(), signal.SIGKILL)
