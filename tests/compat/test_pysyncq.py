"""A program written for pysyncq runs with its import changed: the original's documentation, step by step, and its own
demo's pattern under fork and spawn."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import ringmain as rm
from ringmain.compat import pysyncq as pq
from tests.conftest import PATIENCE_S, Child


def test_documentation_step_by_step() -> None:
    q, other = pq.PySyncQ("doc", size=4096), pq.PySyncQ("doc", create=False)
    q.open("me")
    other.open("you")
    assert other.pop() is None
    q.append("type_of_message", "The body of the message.")
    assert other.pop() == ("me", "type_of_message", "The body of the message.")
    assert q.pop() is None, "its own messages are screened"
    q.append()
    assert other.pop() == ("me", "", "")
    q.append(7, 3.5)
    assert other.pop(decode=False) == (b"me", b"7", b"3.5")
    q.append("bytes", b"\x00\xff")
    assert other.pop(block=True, timer=PATIENCE_S, decode=False) == (b"me", b"bytes", b"\x00\xff")
    for i in range(3):
        q.append("n", i)
    assert [m[2] for m in other] == ["0", "1", "2"]
    q.append("n", 9)
    assert [m[2] for m in other(block=True, timer=0.01)] == ["9"]
    other.close()
    q.close()
    assert not rm.topics(), "the last to close unlinks"


def test_full_is_a_memory_error() -> None:
    q, slow = pq.PySyncQ("full", size=256), pq.PySyncQ("full", create=False)
    q.open("q")
    slow.open("slow")
    with pytest.raises(MemoryError, match="'slow'"):
        for _ in range(10_000):
            q.append("n", "x" * 50)
    with pytest.raises(MemoryError):
        q.append("n", "x" * 50, block=True, timer=0.01)
    with pytest.raises(MemoryError, match="too large"):
        q.append("n", "x" * 1_000_000)
    for _ in slow:
        pass
    q.append("n", "fits again")
    for one in (q, slow):
        one.close()


def test_screening_sets_take_str_and_bytes() -> None:
    q, other = pq.PySyncQ("scr"), pq.PySyncQ("scr", create=False)
    q.open("q")
    other.open("o", filtself=False)
    assert other.scrnsend == set()
    other.scrntype.add("noise")
    other.scrntype.add(b"chatter")
    for kind in ("noise", "chatter", "news"):
        q.append(kind, kind)
    assert [m[1] for m in other] == ["news"]
    other.scrntype.remove("noise")
    other.append("own", "heard too")
    q.append("noise", "now heard")
    assert [m[1] for m in other] == ["own", "noise"]
    for one in (q, other):
        one.close()


def test_errors() -> None:
    with pytest.raises(ValueError, match="start method"):
        pq.PySyncQ("x", start="teleport")
    q = pq.PySyncQ("x")
    with pytest.raises(ValueError, match="open"):
        q.append("a", "b")
    q.close()
    q.close()


def test_a_queue_is_created_once() -> None:
    q = pq.PySyncQ("once")
    with pytest.raises(FileExistsError, match="create=False joins it"):
        pq.PySyncQ("once")
    joined = pq.PySyncQ("once", create=False)
    joined.open("other")
    q.close()
    with pytest.raises(FileExistsError):
        pq.PySyncQ("once")
    joined.close()
    pq.PySyncQ("once").close()
    with pytest.raises(FileNotFoundError, match="once"):
        pq.PySyncQ("once", create=False)


def test_a_queue_whose_processes_were_killed_can_be_created_again(child: Callable[..., Child]) -> None:
    left = child(
        """
        from ringmain.compat import pysyncq as pq
        q = pq.PySyncQ("left")
        q.open("dead")
        q.append("n", "said before the end")
        say("there")
        hear()
        """
    )
    assert left.line() == "there"
    left.kill()
    q = pq.PySyncQ("left")
    q.open("me", filtself=False)
    q.append("n", "new")
    assert q.pop() == ("me", "n", "new")
    q.close()


def test_a_process_that_is_killed_does_not_stop_the_others(child: Callable[..., Child]) -> None:
    q = pq.PySyncQ("go-on", size=4096)
    q.open("me")
    slow = child(
        """
        from ringmain.compat import pysyncq as pq
        q = pq.PySyncQ("go-on", create=False)
        q.open("slow")
        say("there")
        hear()
        """
    )
    assert slow.line() == "there"
    with pytest.raises(MemoryError, match="'slow'"):
        while True:
            q.append("n", "x" * 50)
    slow.kill()
    q.append("n", "x" * 50, block=True, timer=PATIENCE_S)
    q.close()


def test_names_and_defaults() -> None:
    q = pq.PySyncQ()
    assert q.name
    q.open()
    assert q.sender is not None
    assert q.sender.decode().isdecimal(), "the pid"
    assert "PySyncQ(name=" in str(q)
    other = pickle.loads(pickle.dumps(q))
    assert (other.name, other.size, other.create, other.scrnsend) == (q.name, q.size, False, q.scrnsend)
    other.open("other")
    q.append("t", "b")
    assert other.pop() is None, "what was set before it was passed on is set there too"
    named = pq.PySyncQ("with space/and: signs")
    named.open("me", filtself=False)
    named.append("t", "b")
    assert list(named) == [("me", "t", "b")]
    for one in (q, other, named):
        one.close()


def test_waiting_without_end(in_thread: Callable[..., Callable[[], object]]) -> None:
    q, other = pq.PySyncQ("wait", size=4096), pq.PySyncQ("wait", create=False)
    q.open("q")
    other.open("o")
    end = in_thread(lambda: next(other(True, None, False)))
    q.append("t", "b")
    assert end() == (b"q", b"t", b"b")
    with pytest.raises(MemoryError):
        while True:
            q.append("t", "x" * 100)
    end = in_thread(lambda: q.append("t", "y", True, None))
    while other.pop(block=True, timer=PATIENCE_S) != ("q", "t", "y"):
        pass
    end()
    for one in (q, other):
        one.close()


def _child(q: pq.PySyncQ, name: str) -> None:
    q.open(name)
    q.append("opened", name, block=True, timer=PATIENCE_S)
    while True:
        message = q.pop(block=True, timer=PATIENCE_S)
        assert message is not None
        match message:
            case ["parent", "user", "stop"]:
                break
            case ["parent", "user", word]:
                q.append("echo", f"{word} {name}", block=True, timer=PATIENCE_S)
    q.close()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children(method: Any) -> None:
    context = multiprocessing.get_context(method)
    q = pq.PySyncQ("kids", size=4096, start=method)
    children = [context.Process(target=_child, args=(q, f"Child-{i}")) for i in range(2)]
    q.open("parent", filtself=False)  # the children inherit its sets, and are to hear it
    for one in children:
        one.start()
    q.scrnsend.add("parent")
    heard: list[Any] = []

    def hear(kind: str, count: int) -> list[str]:
        while sum(m[1] == kind for m in heard) < count:
            message = q.pop(block=True, timer=PATIENCE_S)
            assert message is not None
            heard.append(message)
        return sorted(m[2] for m in heard if m[1] == kind)

    assert hear("opened", 2) == ["Child-0", "Child-1"]
    q.append("user", "start")
    assert hear("echo", 2) == ["start Child-0", "start Child-1"]
    q.append("user", "stop", block=True, timer=PATIENCE_S)
    for one in children:
        one.join(PATIENCE_S)
        assert one.exitcode == 0
    q.close()
