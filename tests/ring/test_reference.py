"""The native ring and the reference ring in Python give the same answers to any order of operations.

How: Hypothesis makes up operations by several writers and readers, and each is done twice, in shared memory and in a
fake world; what comes back (values, numbers, losses, the kind of error) is compared after every one. A failure prints
the shortest program that shows the difference.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import hypothesis.strategies as st
import msgspec
import pyarrow
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

import ringmain as rm
from ringmain import _extension
from ringmain._contracts import CONTRACTS, ContractName
from ringmain._extension import Said
from ringmain.backends.fake import _world as worlds
from ringmain.testing import World, fake

SIZES = st.one_of(st.integers(0, 40), st.integers(0, 700), st.integers(1500, 4200))
NAMES = st.sampled_from(["", "a", "bb", "a longer name"])
SAID = NAMES | st.sampled_from(
    [
        _extension.with_trace(_extension.of_request(7, True), f"00-{'4b' * 16}-{'f0' * 8}-01"),
        Said(_extension.of_reply(3, "gone") + b"a"),
        *map(Said, (b"\xff", b"\xff\x02", b"\xff\x00bb", b"\xff\x03\x01\x02\x03a", b"\xff\x01\x09a longer name")),
    ]
)


class Twins(RuleBasedStateMachine):
    """Every endpoint is a pair: the native one and the fake one."""

    contract: ContractName = "broadcast"
    writers: Bundle[Any] = Bundle("writers")
    readers: Bundle[Any] = Bundle("readers")
    leases: Bundle[Any] = Bundle("leases")
    reservations: Bundle[Any] = Bundle("reservations")

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="ringmain-twins-", dir="/dev/shm")
        self.before = os.environ.get("RINGMAIN_DIR")
        os.environ["RINGMAIN_DIR"] = self.directory
        self.world = World()
        worlds.push(self.world)
        self.pairs: list[tuple[Any, Any]] = []
        self.open_leases: list[tuple[Any, Any]] = []
        self.open_reservations: list[tuple[Any, Any]] = []
        self.count = 0

    def teardown(self) -> None:
        for pair in [*self.open_leases, *self.open_reservations]:
            for one in pair:
                with suppress(rm.RingmainError):
                    (one.release if hasattr(one, "release") else one.discard)()
        for pair in self.pairs:
            for one in pair:
                one.close()
        worlds.pop(self.world)
        shutil.rmtree(self.directory)
        if self.before is None:
            del os.environ["RINGMAIN_DIR"]
        else:
            os.environ["RINGMAIN_DIR"] = self.before

    def both(self, pair: tuple[Any, Any], do: Callable[[Any], Any], shown: Callable[[Any], Any] = lambda x: x) -> Any:
        """Do it to both; the same must come back, or the same kind of error. Returns both results, or None."""
        results, answers = [], []
        for one in pair:
            try:
                result = do(one)
            except (rm.RingmainError, ValueError) as error:
                answers.append((type(error), getattr(error, "sent", None)))
            else:
                results.append(result)
                answers.append(shown(result))
        assert answers[0] == answers[1], f"shm answered {answers[0]!r}, the model {answers[1]!r}"
        return tuple(results) if len(results) == 2 else None

    def make(self, cls: Any, **options: Any) -> Any:
        made = self.both(("shm", "fake"), lambda backend: cls("t", backend=backend, **options), lambda made: "made")
        if made is not None:
            self.pairs.append(made)
        return made

    def payload(self, size: int) -> bytes:
        self.count += 1
        return (b"%d." % self.count * (size // 2 + 1))[:size]

    @initialize(target=writers, capacity=st.sampled_from([4096, 8192]))
    def first_writer(self, capacity: int) -> Any:
        return self.make(rm.Publisher, contract=self.contract, capacity=capacity, name="w0")

    @rule(target=writers, sender=NAMES, takeover=st.booleans(), capacity=st.sampled_from([None, None, 4096, 16384]))
    def add_writer(self, sender: str, takeover: bool, capacity: int | None) -> Any:
        if self.open_reservations and takeover:
            return multiple()  # a takeover waits for the reservation to end: for a second, on the real clock
        made = self.make(rm.Publisher, sender=sender, takeover=takeover, capacity=capacity, contract=self.contract)
        return multiple() if made is None else made

    @rule(
        target=readers,
        start=st.sampled_from(["next", "oldest", "newest"]),
        on_lap=st.sampled_from(["next", "oldest"]),
        conflate=st.booleans(),
        senders=st.sets(NAMES, max_size=1),
        kinds=st.sets(NAMES, max_size=1),
        only=st.none() | st.sets(NAMES, max_size=2),
        observe=st.sampled_from(["never", "pipes", "always"]),
    )
    def add_reader(self, senders: set[str], kinds: set[str], only: set[str] | None, **options: Any) -> Any:
        screens = {"ignore_senders": senders, "ignore_kinds": kinds, "only_kinds": only}
        made = self.make(rm.Subscriber, **screens, **options)
        return multiple() if made is None else made

    @rule(writer=writers, size=SIZES, kind=SAID)
    def send(self, writer: Any, size: int, kind: str) -> None:
        data = self.payload(size)
        self.both(writer, lambda w: w.send(data, kind, timeout=0))

    @rule(writer=writers, sizes=st.lists(st.integers(0, 300), max_size=12))
    def send_many(self, writer: Any, sizes: list[int]) -> None:
        batch = [self.payload(size) for size in sizes]
        self.both(writer, lambda w: w.send_many(batch, timeout=0))

    @rule(writer=writers, skipped=st.integers(0, 5), kind=SAID)
    def send_as(self, writer: Any, skipped: int, kind: str) -> None:
        self.both(writer, lambda w: w._send_as(b"as", w.next_sequence + skipped, 42, kind, 0.0))

    @rule(target=reservations, writer=writers, size=SIZES, kind=SAID)
    def reserve(self, writer: Any, size: int, kind: str) -> Any:
        made = self.both(writer, lambda w: w.reserve(size, kind=kind, timeout=0), len)
        if made is None:
            return multiple()
        self.open_reservations.append(made)
        return made

    @rule(reservation=consumes(reservations), used=st.integers(0, 4200), send=st.booleans())
    def finish(self, reservation: Any, used: int, send: bool) -> None:
        self.open_reservations.remove(reservation)
        data = self.payload(used)

        def do(one: Any) -> Any:
            used_now = min(used, len(one))
            one[:used_now] = data[:used_now]
            one.truncate(used_now)
            return one.commit() if send else one.discard()

        self.both(reservation, do)

    @rule(writer=writers, sizes=st.lists(st.integers(0, 1500), max_size=4), fails=st.booleans())
    def stream(self, writer: Any, sizes: list[int], fails: bool) -> None:
        parts = [self.payload(size) for size in sizes]

        def do(one: Any) -> int:
            with one.stream(kind="s", timeout=0) as out:
                for part in parts:
                    out.write(part)
                if fails:
                    out.discard()
            return int(one.next_sequence)

        self.both(writer, do)

    @rule(reader=readers)
    def receive(self, reader: Any) -> None:
        def shown(message: Any) -> Any:
            # The time is the clock's; all the rest must agree.
            return message and msgspec.structs.replace(message, time_ns=0)

        self.both(reader, lambda r: r.try_recv_message(), shown)

    @rule(reader=readers, most=st.integers(0, 20))
    def receive_many(self, reader: Any, most: int) -> None:
        self.both(reader, lambda r: r.recv_many(most))

    @rule(reader=readers, most=st.integers(0, 20))
    def receive_batch(self, reader: Any, most: int) -> None:
        def shown(batch: Any) -> Any:
            rows = pyarrow.record_batch(batch).to_pylist()
            return [{name: row[name] for name in ("seq", "lost", "sender", "kind", "data")} for row in rows]

        self.both(reader, lambda r: r.recv_batch(most), shown)

    @rule(reader=readers, room=st.integers(0, 800))
    def receive_into(self, reader: Any, room: int) -> None:
        def do(one: Any) -> bytes:
            buffer = bytearray(room)
            return bytes(buffer[: one.recv_into(buffer, timeout=0)])

        self.both(reader, do)

    @rule(target=leases, reader=readers)
    def borrow(self, reader: Any) -> Any:
        def shown(lease: Any) -> Any:
            return lease.seq, lease.sender, lease.kind, lease.extension, lease.lost, len(lease)

        made = self.both(reader, lambda r: r.borrow(timeout=0), shown)
        if made is None:
            return multiple()
        self.open_leases.append(made)
        return made

    @rule(lease=consumes(leases))
    def give_back(self, lease: Any) -> None:
        self.open_leases.remove(lease)

        def do(one: Any) -> bytes:
            data = bytes(one.data)
            one.release()
            return data

        self.both(lease, do)

    @rule(readers=st.lists(readers, min_size=1, max_size=3))
    def wait(self, readers: list[Any]) -> None:
        def do(group: tuple[Any, ...]) -> list[int]:
            return [group.index(found) for found in rm.wait(list(group), timeout=0)]

        # A worker that is ready may find nothing that it wants.
        works = CONTRACTS[self.contract].shared
        ready = self.both(tuple(zip(*readers, strict=True)), do, (lambda _: "ready") if works else list)
        assert ready is None or set(ready[1]) <= set(ready[0])

    @rule(reader=readers, senders=st.sets(NAMES, max_size=2))
    def screen(self, reader: Any, senders: set[str]) -> None:
        for one in reader:
            one.ignore_senders = senders

    @rule(reader=readers)
    def close_reader(self, reader: Any) -> None:
        self.both(reader, lambda r: r.close())

    @rule(writer=writers)
    def close_writer(self, writer: Any) -> None:
        self.both(writer, lambda w: w.close())

    @invariant()
    def the_same_is_known(self) -> None:
        for pair in self.pairs:
            self.both(pair, lambda one: one.closed)
            if isinstance(pair[0], rm.Subscriber):
                self.both(pair, lambda one: (one.lost, one.attached))
            else:
                self.both(pair, lambda one: (one.next_sequence, one.all_read, one.capacity, one.max_message_bytes))


def twins(contract: ContractName) -> type[Twins]:
    return type("Twins", (Twins,), {"contract": contract})


@pytest.mark.parametrize("contract", CONTRACTS)
def test_native_ring_and_model_agree(contract: ContractName) -> None:
    examples = int(os.environ.get("RINGMAIN_EXAMPLES", "25"))
    every = settings(max_examples=examples, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(twins(contract), settings=every)


# ------------------------------------------------------------------------ programs that once showed a difference


@contextmanager
def program(contract: ContractName) -> Iterator[Twins]:
    """For the steps that Hypothesis prints of a machine that failed, as they are; at the end the same must be known."""
    state = twins(contract)()
    try:
        yield state
        state.the_same_is_known()
    finally:
        state.teardown()


def a_reader(state: Twins, **options: Any) -> Any:
    usual = {"start": "next", "on_lap": "next", "conflate": False, "observe": "never"}
    return state.add_reader(senders=set(), kinds=set(), only=None, **{**usual, **options})


def test_who_asks_for_no_message_is_not_done_with_the_last() -> None:
    with program("work") as state:
        writer = state.first_writer(capacity=4096)
        reader = a_reader(state)
        state.send(writer, size=0, kind="")
        state.receive(reader)
        state.receive_many(reader, most=0)


@pytest.mark.parametrize("receive", [Twins.receive_many, Twins.receive_batch])
def test_a_list_and_a_batch_are_of_one_life_of_the_topic(receive: Any) -> None:
    with program("broadcast") as state:
        first = state.first_writer(capacity=4096)
        reader = a_reader(state)
        state.receive(reader)
        state.send(first, size=1, kind="")
        state.close_writer(first)
        second = state.add_writer(sender="", takeover=False, capacity=16384)
        state.send(second, size=1, kind="")
        receive(state, reader, most=20)


@pytest.fixture
def world() -> Iterator[None]:
    with fake():
        yield


@pytest.mark.parametrize("backend", ["shm", "fake"])
def test_a_subscriber_that_could_not_join_does_not_wait_for_the_next_life(
    runtime_dir: Any, world: None, backend: Any
) -> None:
    """It was enrolled in the first life and refused there. The one slot of the second life is for another."""
    with rm.Subscriber("t", start="newest", backend=backend) as refused:
        with rm.Publisher("t", contract="pipe", capacity=4096, backend=backend):
            with pytest.raises(rm.TopicBusy):
                rm.Subscriber("t", backend=backend)
            with pytest.raises(rm.TopicMismatch):
                refused.recv(timeout=0)
        with rm.Publisher("t", contract="pipe", backend=backend), rm.Subscriber("t", backend=backend) as reader:
            assert reader.attached


@pytest.mark.parametrize("backend", ["shm", "fake"])
def test_of_those_that_wait_the_lowest_slot_is_enrolled(runtime_dir: Any, world: None, backend: Any) -> None:
    """The slot in front was left, and the next to come has taken it: it is before one that waits for longer."""
    first, second = (rm.Subscriber("t", name=name, backend=backend) for name in ("first", "second"))
    first.close()
    with second, rm.Subscriber("t", name="third", backend=backend) as third:
        with rm.Publisher("t", contract="pipe", backend=backend), pytest.raises(rm.TopicBusy):
            second.recv(timeout=0)
        assert third.try_recv() is None


@pytest.mark.parametrize("backend", ["shm", "fake"])
def test_wait_with_a_closed_subscriber_has_looked_at_those_before_it(
    runtime_dir: Any, world: None, backend: Any
) -> None:
    early, closed = rm.Subscriber("t", backend=backend), rm.Subscriber("t", backend=backend)
    closed.close()
    with early, rm.Publisher("t", backend=backend):
        with pytest.raises(rm.Closed):
            rm.wait([early, closed], timeout=0)
        assert early.attached


@pytest.mark.parametrize("backend", ["shm", "fake"])
@pytest.mark.parametrize("look", ["try_recv", "recv_many", "wait"])
def test_after_a_lap_by_what_is_not_yet_sent_all_is_read(
    runtime_dir: Any, world: None, backend: Any, look: str
) -> None:
    """The reservation has overwritten all that the reader had before it, and is no message yet."""
    looks: dict[str, Callable[[Any], Any]] = {
        "try_recv": lambda reader: reader.try_recv(),
        "recv_many": lambda reader: reader.recv_many(9),
        "wait": lambda reader: rm.wait([reader], timeout=0),
    }
    with (
        rm.Publisher("t", contract="bus", capacity=4096, backend=backend) as first,
        rm.Publisher("t", contract="bus", backend=backend) as second,
    ):
        first.send_many([bytes(1500), bytes(10), bytes(1400)])
        with rm.Subscriber("t", start="oldest", on_lap="next", backend=backend) as reader:
            reader.recv(timeout=0)
            second.send(bytes(1900))
            reservation = second.reserve(1900)
            assert not first.all_read
            assert not looks[look](reader)
            assert (reader.lost, first.all_read) == (3, True)
            reservation.discard()
