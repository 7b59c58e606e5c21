"""Containers: topics work between namespaces, and every promise holds there. A mounted directory is enough.

How: this process is the host. A child enters new namespaces: none (the control), each kind alone, all at once. In each
of them a process is killed, a reader blocks its writer, the shared memory is full, the user is another one. No process
may hang, no message may be lost on a contract that waits, and errors name the right participant.
"""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ringmain as rm
from ringmain._cli import main
from tests import contracts
from tests.conftest import PATIENCE_S, Child

ROOT = Path(__file__).parents[2]
USER, GROUP = 61002, 61500
ENTER = """
from tests.lab.container import enter
user = group = None
if sys.argv[2:]: user, group = map(int, sys.argv[2:])
try:
    enter(sys.argv[1], user, group)
except OSError as error:
    say("refused:", error)
    sys.exit()
say("in")
"""
needs_root = pytest.mark.privileged

Contain = Callable[..., Child]


# Anybody may make a user namespace, and in it the others.
NAMESPACES = ["user", "pid,user,ipc,mount", *(pytest.param(each, marks=needs_root) for each in ("pid", "ipc", "mount"))]


@pytest.fixture(params=["", *NAMESPACES], ids=lambda names: names or "none")
def contain(request: pytest.FixtureRequest, child: Callable[..., Child]) -> Contain:
    """Starts a script in new namespaces."""

    def start(script: str, *user_and_group: int) -> Child:
        inside = child(ENTER + textwrap.dedent(script), request.param, *user_and_group, env={"PYTHONPATH": str(ROOT)})
        if (said := inside.line()) != "in":
            pytest.skip(f"this system does not allow it: {said}")
        return inside

    return start


@pytest.fixture
def shared_with_group(runtime_dir: Path) -> Path:
    """As Kubernetes makes it of an fsGroup, but not writable by others."""
    os.chown(runtime_dir, -1, GROUP)
    os.chmod(runtime_dir, 0o2770)
    return runtime_dir


@pytest.fixture
def small_memory(runtime_dir: Path) -> Iterator[Path]:
    """The runtime directory is a tmpfs of 1 MiB."""
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(runtime_dir)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"this system does not allow it: {done.stderr.strip()}")
    yield runtime_dir
    subprocess.run(["umount", "-l", str(runtime_dir)], check=True)


def kill(inside: Child) -> None:
    """kill -9. In a pid namespace it is the child of the process that we started, which then ends, too."""
    for pid in Path(f"/proc/{inside.pid}/task/{inside.pid}/children").read_text().split() or [inside.pid]:
        os.kill(int(pid), signal.SIGKILL)
    inside.process.wait(PATIENCE_S)


def fill(pub: rm.Publisher) -> tuple[int, str]:
    """Sends numbers until a reader blocks: how many were sent, and what the error says."""
    sent = 0
    with pytest.raises(rm.Full) as caught:
        while True:
            pub.send(b"%d" % sent * 50, timeout=0)
            sent += 1
    return sent, str(caught.value)


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number * 50 for number in range(start, stop)]


def receive(sub: rm.Subscriber, count: int) -> list[bytes]:
    return [sub.recv(timeout=PATIENCE_S) for _ in range(count)]


TWO_WAYS = """
down = rm.Subscriber("down", name="inside")
up = rm.Publisher("up", name="inside")
say("joined")
"""


def test_kill(contain: Contain) -> None:
    """The container is killed: no process waits for it, and what it had sent is there."""
    with (
        rm.Publisher("down", contract="reliable", capacity=4096) as down,
        rm.Publisher("up", contract="reliable") as up,
        rm.Subscriber("up") as answers,
    ):
        inside = contain(TWO_WAYS + 'up.send_many([b"%d" % n for n in range(10)]); say("sent"); hear()')
        assert inside.line() == "joined"
        assert inside.line() == "sent"
        with rm.Subscriber("down", name="alive") as alive:
            sent, error = fill(down)
            assert "reader 'inside'" in error
            assert receive(alive, sent) == numbers(0, sent)
            kill(inside)
            for number in range(sent, 200):
                down.send(b"%d" % number * 50, timeout=PATIENCE_S)
                assert alive.recv(timeout=PATIENCE_S) == b"%d" % number * 50
            assert alive.lost == 0
            assert [reader.name for reader in rm.info("down").readers] == ["alive"]
        up.send(b"and on", timeout=PATIENCE_S)
        assert receive(answers, 11) == [*(b"%d" % n for n in range(10)), b"and on"]
        assert answers.lost == 0


def test_kill_while_it_writes(contain: Contain, in_thread: Callable[..., Callable[[], object]]) -> None:
    """The container is killed in the middle of sending: whole messages only, no gap, and the next writer goes on."""
    with rm.Publisher("up", contract="reliable", capacity=4096) as up, rm.Subscriber("up") as answers:
        inside = contain('up = rm.Publisher("up")\nwhile True: up.send(b"x" * 300)')
        received = [answers.recv_message(timeout=PATIENCE_S) for _ in range(500)]
        kill(inside)
        sending = in_thread(lambda: up.send(b"and on", timeout=PATIENCE_S))
        while received[-1].data != b"and on":
            received.append(answers.recv_message(timeout=PATIENCE_S))
        assert [message.seq for message in received] == list(range(len(received)))
        assert sending() == received[-1].seq
        assert {message.data for message in received[:-1]} == {b"x" * 300}


@pytest.mark.parametrize("contract", contracts.WAITING_FOR_EACH)
def test_a_reader_that_blocks(
    contain: Contain,
    contract: str,
    in_thread: Callable[..., Callable[[], object]],
    until: Callable[[Callable[[], object]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The writer on the host waits for the reader in the container; everything arrives once it reads."""
    with rm.Publisher("down", contract=contract, capacity=4096) as down:
        inside = contain("""
            sub = rm.Subscriber("down", name="inside")
            say("joined")
            for _ in range(int(hear())): say(sub.recv(timeout=30).decode())
            say(sub.lost)
        """)
        assert inside.line() == "joined"
        sent, error = fill(down)
        assert "reader 'inside'" in error
        waiting = in_thread(lambda: [down.send(data, timeout=PATIENCE_S) for data in numbers(sent, 200)])
        until(lambda: rm.info("down").writers[0].waits_for == "inside")
        main(["doctor", "down"])
        assert "inside" in capsys.readouterr().out
        inside.tell("200")
        waiting()
        assert [inside.line().encode() for _ in range(200)] == numbers(0, 200)
        assert inside.finish() == ["0"]


def test_a_writer_in_the_container_waits_for_the_host(contain: Contain) -> None:
    with rm.Publisher("up", contract="reliable", capacity=4096), rm.Subscriber("up", name="outside") as answers:
        inside = contain("""
            up, sent = rm.Publisher("up"), 0
            try:
                while True: sent = up.send(b"%d" % sent * 50, timeout=0) + 1
            except rm.Full as error: say(error)
            for number in range(sent, 200): up.send(b"%d" % number * 50, timeout=30)
            say("sent")
        """)
        assert "reader 'outside'" in inside.line()
        assert receive(answers, 200) == numbers(0, 200)
        assert inside.finish() == ["sent"]
        assert answers.lost == 0


@needs_root
def test_full_shared_memory(small_memory: Path, contain: Contain) -> None:
    """A topic that does not fit is refused, with what to do; topics that exist work on, though nothing is free."""
    with (
        rm.Publisher("down", contract="reliable", capacity="256KiB") as down,
        rm.Publisher("up", contract="reliable", capacity="256KiB"),
        rm.Subscriber("up") as answers,
    ):
        inside = contain(
            TWO_WAYS
            + """
try: rm.Publisher("large", capacity="1MiB")
except OSError as error: say(error)
while data := down.recv(timeout=30): up.send(data, timeout=30)
"""
        )
        assert inside.line() == "joined"
        error = inside.line()
        assert "No space left on device" in error
        assert "topic 'large'" in error
        assert "emptyDir" in error
        (small_memory / "filler").touch()
        with pytest.raises(OSError, match="No space"), open(small_memory / "filler", "wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        for round_ in range(10):
            down.send(b"%d" % round_ * 100_000, timeout=PATIENCE_S)
            assert answers.recv(timeout=PATIENCE_S) == b"%d" % round_ * 100_000
        down.send(b"", timeout=PATIENCE_S)
        inside.finish()


@needs_root
def test_another_user(shared_with_group: Path, contain: Contain) -> None:
    """Another user in the directory's group takes part where the topic's mode says so, and only there; then it dies."""
    with (
        rm.Publisher("down", contract="reliable", capacity=4096, mode=0o660) as down,
        rm.Publisher("up", contract="reliable", mode=0o660),
        rm.Publisher("secret"),
        rm.Subscriber("up") as answers,
    ):
        inside = contain(
            TWO_WAYS
            + """
try: rm.Subscriber("secret")
except rm.NotAllowed as error: say(error)
for _ in range(100): up.send(down.recv(timeout=30), timeout=30)
hear()
""",
            USER,
            GROUP,
        )
        assert inside.line() == "joined"
        assert "'secret'" in inside.line()
        for data in numbers(0, 100):
            down.send(data, timeout=PATIENCE_S)
        assert receive(answers, 100) == numbers(0, 100)
        _, error = fill(down)
        assert "reader 'inside'" in error
        kill(inside)
        for data in numbers(0, 100):
            down.send(data, timeout=PATIENCE_S)
        assert answers.lost == 0
