"""The public API is typed: a small program passes `mypy --strict`, and a wrong one does not."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

PROGRAM = """
import ringmain as rm

def tour() -> int:
    with rm.Publisher("imu", contract="pipe", capacity="1MiB", sender="s") as pub:
        number: int = pub.send(b"...", kind="k", timeout=1.0)
        count: int = pub.send_many([b"a", bytearray(b"b")])
        with pub.reserve(16) as buf:
            buf[:5] = b"hello"
            buf.truncate(5)
        with pub.stream() as out:
            out.write(b"part")
        pub.wait_for_readers(0, timeout=1.0)
        done: bool = pub.all_read
    with rm.Subscriber("imu", start="oldest", on_lap="oldest", conflate=False, ignore_kinds={"x"}) as sub:
        data = sub.recv(timeout=1.0)
        maybe = sub.try_recv()
        message: rm.Message = sub.recv_message()
        when: int = message.time_ns
        many = sub.recv_many(10)
        size: int = sub.recv_into(bytearray(10))
        with sub.borrow(timeout=1.0) as lease:
            seq: int = lease.seq
        lost: int = sub.lost
        ready: list[rm.Subscriber] = rm.wait([sub], timeout=0)
        batch: rm.Batch = sub.recv_batch(10)
        sub.ignore_senders.add("me")
    info: rm.TopicInfo = rm.info("imu")
    lag: int = info.readers[0].lag_messages
    names: list[str] = [topic.name for topic in rm.topics()] + rm.clean()
    try:
        rm.unlink("imu", force=True)
    except rm.TopicNotFound as error:
        print(error.errno)
    except (rm.TopicBusy, rm.Full):
        pass
    return number + count + size + seq + lost + lag + when + len(ready) + len(batch) + len(names) + len(many) + done
"""


TYPES = """
from dataclasses import dataclass
from typing import Any
import ringmain as rm

@dataclass
class Imu:
    x: float

async def tour(anything: Any, plain: rm.Subscriber) -> None:
    with rm.Subscriber("imu", type=Imu, start="oldest") as sub, rm.Subscriber("raw", name="n") as raw:
        reveal_type(sub)
        reveal_type(sub.recv(timeout=1.0))
        reveal_type(sub.try_recv())
        reveal_type(sub.recv_message())
        reveal_type(sub.recv_message().data)
        reveal_type(sub.recv_many(3))
        reveal_type(sub.recv_messages(3))
        reveal_type(next(iter(sub)))
        reveal_type(await sub.arecv())
        async for each in sub:
            reveal_type(each)
        reveal_type(raw.recv())
        reveal_type(rm.Subscriber("x", type=dict[str, int]).recv())
        reveal_type(rm.Subscriber("x", type=anything).recv())
        reveal_type(plain.recv())
    with rm.Publisher("imu", type=Imu) as pub:
        pub.send_many([Imu(1.0), Imu(2.0)], kinds=["a", "b"], timeout=1.0)
"""
REVEALED = [
    "Subscriber[Imu]",
    "Imu",
    "Imu | None",
    "Message[Imu]",
    "Imu",
    "list[Imu]",
    "list[Message[Imu]]",
    "Imu",
    "Imu",
    "Imu",
    "bytes",
    "dict[str, int]",
    "Any",
    "Any",
]


Check = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """What mypy says of a program. It looks at ringmain once, and keeps what it found."""
    folder = tmp_path_factory.mktemp("program")

    def run(program: str) -> subprocess.CompletedProcess[str]:
        (folder / "program.py").write_text(program)
        options = ["--strict", "--cache-dir", str(folder / "cache"), "--config-file", ""]
        command = [sys.executable, "-m", "mypy", *options, "program.py"]
        return subprocess.run(command, capture_output=True, text=True, timeout=250, cwd=folder)

    return run


def test_a_users_program_is_checked(check: Check) -> None:
    good = check(PROGRAM)
    assert good.returncode == 0, good.stdout + good.stderr
    bad = check('import ringmain as rm\npub = rm.Publisher("x", contract="telepathy")\nn: str = pub.send(b"")\n')
    assert bad.returncode == 1
    assert bad.stdout.count("error:") == 2, bad.stdout


def test_a_subscriber_is_of_the_type_that_it_was_given(check: Check) -> None:
    checked = check(TYPES)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    revealed = re.findall(r'Revealed type is "(.*)"', checked.stdout)
    assert [re.sub(r"(\w+\.)+", "", each) for each in revealed] == REVEALED
    wrong = check(TYPES + "\n\ndef f(sub: rm.Subscriber[Imu]) -> bytes:\n    return sub.recv()\n")
    assert "Incompatible return value" in wrong.stdout
