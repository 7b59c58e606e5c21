"""A writer that keeps the last message of each kind dies in the middle of it: a reader that joins gets the last of
every kind all the same, none of them torn, and the next writer goes on.

How: the writer is killed at each crash point of `native/rule/kept.hpp`, the first time and later. Each message is one
byte many times over, so that a torn one shows.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

import ringmain as rm
from ringmain.testing import die_at, stop_at
from tests import contracts

POINTS = [label for label in importlib.import_module("ringmain._ring_lab").CRASH_POINTS if label.startswith("keep:")]
KINDS = 5
VICTIM = f"""
import ringmain as rm, sys
with rm.Publisher("prices", contract=sys.argv[1], capacity=4096, keep_last_per_kind=8, persist=True) as pub:
    for i in range(2000):
        pub.send(bytes([i % 251]) * (i * 7 % 600), f"k{{i % {KINDS}}}")
        print(i, flush=True)
"""


def write_until(environment: dict[str, str], contract: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", VICTIM, contract]
    return subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)


def check_last(sent: int) -> None:
    """After messages 0 to `sent`, or one more: its writer died before it could say so."""
    with rm.Subscriber("prices", start="newest") as sub:
        got = list(iter(sub.try_recv_message, None))
    assert [m.seq for m in got] == list(range(got[-1].seq - KINDS + 1, got[-1].seq + 1))
    assert got[-1].seq in (sent, sent + 1)
    for message in got:
        assert message.kind == f"k{message.seq % KINDS}"
        assert message.data == bytes([message.seq % 251]) * (message.seq * 7 % 600)


@pytest.mark.parametrize("contract", contracts.TO_ALL)
@pytest.mark.parametrize("nth", [1, 2, 7, 100])
@pytest.mark.parametrize("label", POINTS)
def test_old_or_new_and_never_torn(label: str, nth: int, contract: Any) -> None:
    with write_until(die_at(label, nth), contract) as writer:
        assert writer.stdout is not None
        said = writer.stdout.read().split()
        assert writer.wait(60) == -signal.SIGKILL
    check_last(int(said[-1]))
    with rm.Publisher("prices", contract=contract) as pub:
        for i in range(pub.next_sequence, pub.next_sequence + 300):
            pub.send(bytes([i % 251]) * (i * 7 % 600), f"k{i % KINDS}")
            check_last(i)
    info = rm.info("prices")
    assert (info.kept_kinds, info.not_kept) == (KINDS, 0)
    rm.unlink("prices", force=True)


def test_a_writer_that_stops_there_keeps_no_reader_waiting() -> None:
    with write_until(stop_at("keep: message half copied", 3), "broadcast") as writer:
        try:
            _, status = os.waitpid(writer.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            with rm.Subscriber("prices", start="newest") as sub:
                last = [message.seq for message in iter(sub.try_recv_message, None)]
            check_last(last[-1])
        finally:
            writer.kill()
    rm.unlink("prices", force=True)
