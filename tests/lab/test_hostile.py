"""Whatever a peer writes into shared memory: a clear error, never a crash, never a hang.

How: (1) Hypothesis writes arbitrary words and bytes over valid topic files, and one long-lived process does everything
it can with each. (2) A malicious peer flips bytes of a live topic, by a seed, while others write and read it. Both run
in processes of their own, whose death by a signal would be the finding. Truncating the file is the one thing that kills
(SIGBUS), and the last test shows who can do that.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ringmain as rm
from ringmain._native import LAYOUT
from tests import contracts
from tests.conftest import PATIENCE_S, Child

CONTRACTS = contracts.ALL
ROSTER, SCHEMA, SLOT = LAYOUT["roster_offset"], LAYOUT["schema_offset"], LAYOUT["Slot"]
DATA = SCHEMA + 8192

ABUSE = """
from contextlib import suppress

def attempt(errors, action):
    try:
        action()
    except rm.RingmainError as error:
        str(error).encode()          # what is shown is valid text
        errors.append(type(error).__name__)

def read(errors):
    with rm.Subscriber("t", start="oldest", on_lap="oldest") as sub:
        for action in (
            lambda: sub.recv_message(timeout=0), lambda: sub.recv_many(50), lambda: sub.recv_into(bytearray(9000), 0),
            lambda: bytes(sub.borrow(timeout=0).data), lambda: arrow(sub.recv_batch()), lambda: sub.schema,
        ):
            attempt(errors, action)

def arrow(batch):
    import pyarrow
    pyarrow.record_batch(batch).validate(full=True)

def write(errors):
    with rm.Publisher("t", spin=0) as pub:
        for size in (0, 100, 1900):
            attempt(errors, lambda: pub.send(b"x" * size, timeout=0.002))
        attempt(errors, lambda: pub.send_many([b"y" * 500] * 8, timeout=0.002))
        def stream():
            with pub.stream(timeout=0.002) as out: out.write(b"z" * 700); out.write(b"z" * 700)
        attempt(errors, stream)
        attempt(errors, lambda: pub.wait_for_readers(1, timeout=0))
        pub.all_read, pub.next_sequence

def everything():
    errors = []
    attempt(errors, lambda: rm.info("t"))
    attempt(errors, lambda: read(errors))
    attempt(errors, lambda: write(errors))
    attempt(errors, lambda: rm.topics())
    attempt(errors, lambda: rm.clean())
    attempt(errors, lambda: rm.unlink("t", force=True))
    return errors
"""

SERVER = (
    ABUSE
    + """
say("ready")
while hear() == "go":
    say(*everything(), ".")
"""
)


class Templates(dict[str, bytes]):
    """Valid topics with messages in them, one a contract."""

    def __repr__(self) -> str:
        return "templates"  # Hypothesis shows the arguments of what failed


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    made = Templates()
    before = os.environ.get("RINGMAIN_DIR")
    os.environ["RINGMAIN_DIR"] = str(tmp_path_factory.mktemp("templates"))
    try:
        for contract in CONTRACTS:
            with rm.Publisher("t", contract=contract, capacity=4096, sender="s") as pub, rm.Subscriber("t") as sub:
                for i in range(6):
                    pub.send(bytes([i]) * 100 * i, kind="k", timeout=1)
                made[contract] = (Path(os.environ["RINGMAIN_DIR"]) / "t.ring").read_bytes()
                sub.recv_many(100)
    finally:
        os.environ.pop("RINGMAIN_DIR") if before is None else os.environ.update(RINGMAIN_DIR=before)
    return made


WORDS = [8 * i for i in range(LAYOUT["Header.claim"] // 8)]
WORDS += [LAYOUT[f"Header.{f}"] for f in ("claim", "tail", "commit", "newest", "turn", "retired", "slots_used")]
WORDS += [LAYOUT["Header.schema_version"], LAYOUT["Header.schema_bytes"], LAYOUT["Header.schema_bytes"] + 8]
WORDS += [ROSTER + SLOT * slot + word for slot in range(4) for word in range(0, SLOT, 8)]
WORDS += [DATA + 8 * i for i in range(512)]

INTERESTING = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 20_000),
    st.sampled_from([2**64 - 1, 2**64 - 8, 2**63, 2**63 - 8, 2**32, 2**32 - 1, 2**31, 0x7FFFFFFF, 4096, 4104, 8192]),
    st.integers(0, 255).map(lambda b: int.from_bytes(bytes([b]) * 8)),
)
PATCHES = st.lists(st.tuples(st.sampled_from(WORDS), INTERESTING), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def server_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def server(server_dir: Path) -> Iterator[Child]:
    one = Child(SERVER, env={"RINGMAIN_DIR": str(server_dir)})
    assert one.line() == "ready"
    yield one
    one.dispose()


def put(directory: Path, content: bytes) -> None:
    """Gives the topic's name to a file of this content atomically: writing into a file that a peer has mapped would
    shrink it first, which no peer survives and only its owner may do."""
    (directory / "draft").write_bytes(content)
    os.chmod(directory / "draft", 0o600)
    os.replace(directory / "draft", directory / "t.ring")


def offer(server: Child, directory: Path, content: bytes) -> list[str]:
    """Lets the process loose on a topic of this content; returns the errors it met."""
    put(directory, content)
    server.tell("go")
    return server.line().split()[:-1]


@settings(max_examples=int(os.environ.get("RINGMAIN_EXAMPLES", "300")), deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(contract=st.sampled_from(CONTRACTS), patches=PATCHES)
def test_arbitrary_words_are_an_error_at_most(
    server: Child, server_dir: Path, templates: Templates, contract: str, patches: list[tuple[int, int]]
) -> None:
    content = bytearray(templates[contract])
    for offset, value in patches:
        content[offset : offset + 8] = struct.pack("<Q", value)
    offer(server, server_dir, bytes(content))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.one_of(st.binary(max_size=6000), st.integers(0, 60_000).map(bytes)))
def test_a_file_that_is_no_topic_is_corrupt(server: Child, server_dir: Path, content: bytes) -> None:
    assert "Corrupt" in offer(server, server_dir, content)


def test_a_topic_cut_short_is_corrupt(server: Child, server_dir: Path, templates: Templates) -> None:
    assert "Corrupt" in offer(server, server_dir, templates["bus"][:-4096])


def test_what_is_corrupt_can_be_taken_away(runtime_dir: Path) -> None:
    (runtime_dir / "t.ring").write_bytes(b"garbage" * 1000)
    with pytest.raises(rm.Corrupt):
        rm.unlink("t")
    rm.unlink("t", force=True)
    assert not (runtime_dir / "t.ring").exists()


PEER = (
    ABUSE
    + """
role, rounds = sys.argv[1], 0
say("ready")
while not os.path.exists(os.path.join(os.environ["RINGMAIN_DIR"], "stop")):
    errors = []
    attempt(errors, lambda: (read if role == "reader" else write)(errors))
    rounds += 1
    if rounds == 1:
        say("took part")
say(rounds)
"""
)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_flipped_bytes_in_a_live_topic(
    contract: str, runtime_dir: Path, child: Callable[..., Child], seed: int, templates: Templates
) -> None:
    """Identity, words, roster and data are flipped under readers and writers, and at times restored."""
    chance = random.Random(seed)
    put(runtime_dir, templates[contract])
    peers = [child(PEER, role) for role in ("reader", "writer", "reader")]
    for peer in peers:
        assert peer.line() == "ready"
    for _ in range(40):
        path = runtime_dir / "t.ring"
        if not path.exists():
            put(runtime_dir, templates[contract])
        try:
            file = open(path, "r+b")  # noqa: SIM115 -- the last participant may just have removed it
        except FileNotFoundError:
            continue
        with file, mmap.mmap(file.fileno(), 0) as memory:
            for _ in range(400):
                offset = chance.choice(WORDS) + chance.randrange(8)
                memory[offset] ^= 1 << chance.randrange(8)
            for offset, content in ((0, templates[contract][:384]), (384, templates[contract][384:ROSTER])):
                if chance.random() < 0.8:
                    memory[offset : offset + len(content)] = content
    for peer in peers:  # a busy machine may not have let it run until now
        assert peer.line() == "took part"
    (runtime_dir / "stop").touch()
    for peer in peers:
        assert int(peer.finish()[-1]) > 0
    (runtime_dir / "t.ring").unlink(missing_ok=True)


def test_names_that_are_not_text_are_still_shown(runtime_dir: Path) -> None:
    """A sender's name that is not UTF-8 becomes text that is, in messages and in Arrow columns alike."""
    pa = pytest.importorskip("pyarrow")
    with rm.Publisher("t", sender="\u00fc\u00fc", capacity=4096) as pub, rm.Subscriber("t") as sub:
        pub.send(b"one")
        pub.send(b"two")
        content = (runtime_dir / "t.ring").read_bytes()
        at = content.index("\u00fc\u00fc".encode(), DATA)
        with open(runtime_dir / "t.ring", "r+b") as file:
            for offset in (at, content.index("\u00fc\u00fc".encode(), at + 1)):
                file.seek(offset)
                file.write(b"\xff\xfe")
        assert sub.recv_message(timeout=1).sender == "\ufffd\ufffd\u00fc"
        batch = pa.record_batch(sub.recv_batch())
        batch.validate(full=True)
        assert batch["sender"].to_pylist() == ["\ufffd\ufffd\u00fc"]


TRUNCATED = """
sub = rm.Subscriber("t")
say("ready")
hear()
sub.recv(timeout=1)
"""


def test_truncating_a_topic_kills_and_only_its_owner_can(runtime_dir: Path, child: Callable[..., Child]) -> None:
    """The kernel offers no way to survive this: the pages are gone. See docs/internals/security.md."""
    with rm.Publisher("t", capacity=4096):
        reader = child(TRUNCATED)
        assert reader.line() == "ready"
        os.truncate(runtime_dir / "t.ring", 0)
        reader.tell()
        assert reader.process.wait(30) == -signal.SIGBUS
        os.truncate(runtime_dir / "t.ring", DATA + 4096)  # so that we ourselves can leave
    (runtime_dir / "t.ring").unlink(missing_ok=True)


IMPOSSIBLE_TURNS = (1 << 31, (1 << 31) | 129, 129, 0xFFFFFFFF, 0x7FFFFFFE)


@pytest.mark.parametrize("turn", IMPOSSIBLE_TURNS)
@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_turn_that_is_no_writers(contract: str, turn: int, runtime_dir: Path, child: Callable[..., Child]) -> None:
    """It names no slot: sending, replacing and removing say so or go on, and none reads beside the roster."""
    program = child(
        """
        import sys
        for action in (
            lambda: pub.send(b"x", timeout=0.01),
            lambda: rm.Publisher("t", contract=sys.argv[1], capacity=8192),
            lambda: rm.unlink("t", force=True),
            lambda: rm.Publisher("t", contract=sys.argv[1]).send(b"x"),
        ):
            if action.__code__.co_names[0] == "pub":
                pub = rm.Publisher("t", contract=sys.argv[1], capacity=4096); say("in"); hear()
            try: action()
            except rm.RingmainError as error: str(error)
        pub.close(); rm.unlink("t", force=True) if rm.topics() else None
        say("done")
    """,
        contract,
    )
    assert program.line() == "in"
    with open(runtime_dir / "t.ring", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        struct.pack_into("<I", memory, LAYOUT["Header.turn"], turn)
    program.tell()
    assert program.finish()[-1] == "done"


@pytest.mark.parametrize("contract", [name for name in contracts.MANY_WRITERS if name in contracts.TO_ALL])
def test_a_hold_in_a_writers_slot_does_not_end_the_writer(contract: str, runtime_dir: Path) -> None:
    """A writer's slot never holds. A writer that is blocked by its own resets it, and stays in the topic."""
    with (
        rm.Publisher("t", contract=contract, capacity=4096, spin=0) as pub,
        rm.Publisher("t", contract=contract, spin=0) as other,
    ):
        for each in (pub, other):
            hold = ROSTER + each._describe()["slot"] * SLOT + LAYOUT["Slot.hold"]
            with open(runtime_dir / "t.ring", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
                struct.pack_into("<Q", memory, hold, 0)
        for _ in range(30):
            pub.send(bytes(500), timeout=1)
        assert len(rm.info("t").writers) == 2
        assert (runtime_dir / "t.ring").exists()


@pytest.mark.parametrize("contract", contracts.MANY_WRITERS)
def test_a_writer_says_that_words_are_wrong_for_as_long_as_they_are(contract: str, runtime_dir: Path) -> None:
    """It reads them when it takes the turn, and would keep that."""
    with (
        rm.Publisher("t", contract=contract, capacity=4096) as pub,
        rm.Subscriber("t"),
        open(runtime_dir / "t.ring", "r+b") as file,
        mmap.mmap(file.fileno(), 0) as memory,
    ):
        struct.pack_into("<Q", memory, LAYOUT["Header.claim"], 4093)
        for _ in range(3):
            with pytest.raises(rm.Corrupt):
                pub.send(b"a", timeout=PATIENCE_S)
        struct.pack_into("<Q", memory, LAYOUT["Header.claim"], 0)
        assert [pub.send(b"b", timeout=PATIENCE_S), pub.send(b"c", timeout=PATIENCE_S)] == [0, 1]
        rm.unlink("t", force=True)


def test_a_writer_whose_topic_was_taken_from_it_is_told(runtime_dir: Path) -> None:
    """Its slot is freed by a process that writes where it must not, and the last reader removes the topic."""
    with rm.Publisher("t", contract="bus", capacity=4096) as pub:
        with rm.Subscriber("t"):
            state = ROSTER + pub._describe()["slot"] * SLOT + LAYOUT["Slot.state"]
            with open(runtime_dir / "t.ring", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
                struct.pack_into("<I", memory, state, 0)
        assert not (runtime_dir / "t.ring").exists()
        with pytest.raises(rm.TopicNotFound):
            pub.send(b"into nothing")
