"""SyncQueue: every member receives from every other, nothing is lost, a dead member blocks no other, and the last to
leave removes the queue."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from typing import Any

import pytest

import ringmain as rm
from tests.conftest import PATIENCE_S, Child


def test_everybody_hears_everybody_but_itself() -> None:
    with rm.SyncQueue("q", "a") as a, rm.SyncQueue("q", "b") as b, rm.SyncQueue("q", "c") as c:
        assert (a.members, a.serial) == (3, 0)
        assert a.append("greet", "hello ü") == 0
        assert b.append("raw", b"\x00\xff") == 1
        for member in (b, c):
            message = member.pop()
            assert message is not None
            assert (message.sender, message.kind, message.text, message.seq) == ("a", "greet", "hello ü", 0)
            assert message.topic == "q"
        assert [m.data for m in a] == [b"\x00\xff"]
        assert [m.sender for m in c] == ["b"]
        assert b.pop() is None


def test_screening_changes_while_running() -> None:
    with rm.SyncQueue("q", "a") as a, rm.SyncQueue("q", "b", ignore_kinds={"noise"}) as b:
        a.append("noise", "1")
        a.append("news", "2")
        assert [m.text for m in b] == ["2"]
        b.ignore_kinds.discard("noise")
        b.ignore_senders.add("a")
        a.append("noise", "3")
        assert b.pop() is None
        b.ignore_senders.clear()
        a.append("noise", "4")
        b.append("own", "5")
        assert [m.text for m in b] == ["4", "5"], "having cleared the set, it hears itself too"


def test_full_names_the_slowest_and_nothing_is_lost() -> None:
    with rm.SyncQueue("q", "fast", capacity=4096) as fast, rm.SyncQueue("q", "slow") as slow:
        sent = 0
        with pytest.raises(rm.Full, match="'slow'"):
            while True:
                fast.append("n", str(sent))
                sent += 1
        with pytest.raises(TimeoutError, match="'slow'"):
            fast.append("n", "x", block=True, timeout=0.01)
        assert [int(m.text) for m in slow] == list(range(sent))
        fast.append("n", "again")


def test_a_member_that_only_sends_does_not_stop_itself() -> None:
    with rm.SyncQueue("q", "talker", capacity=4096) as talker, rm.SyncQueue("q", "ear") as ear:
        for i in range(1000):
            talker.append("n", str(i))
            assert ear.pop() is not None


def _fill(queue: rm.SyncQueue) -> int:
    sent = 0
    with pytest.raises(rm.Full):
        while True:
            queue.append("n", "x" * 100)
            sent += 1
    return sent


def test_a_member_that_would_wait_for_itself_is_told() -> None:
    with rm.SyncQueue("q", "ada", capacity=4096) as ada, rm.SyncQueue("q", "bob") as bob:
        sent = _fill(ada)
        with pytest.raises(rm.Full, match=r"'bob' itself has not read: call pop\(\)"):
            bob.append("answer", "y", block=True)
        assert len(list(bob)) == sent
        bob.append("answer", "y", block=True)
        assert [message.text for message in ada] == ["y"]


def test_a_member_waits_for_another_that_is_further_behind(in_thread: Any) -> None:
    with (
        rm.SyncQueue("q", "ada", capacity=4096) as ada,
        rm.SyncQueue("q", "bob") as bob,
        rm.SyncQueue("q", "eve") as eve,
    ):
        sent = _fill(ada)
        for _ in range(sent - 1):
            bob.pop()
        answered = in_thread(lambda: (bob.pop(), bob.append("answer", "y", block=True, timeout=PATIENCE_S)))
        assert len([eve.pop(block=True, timeout=PATIENCE_S) for _ in range(sent)]) == sent
        answered()


def test_a_member_waits_for_another_thread_that_reads_for_it(in_thread: Any) -> None:
    with rm.SyncQueue("q", "ada", capacity=4096) as ada, rm.SyncQueue("q", "bob") as bob:
        sent = _fill(ada)
        bob.pop()
        _fill(ada)
        waiting = threading.Event()

        def answer() -> int:
            waiting.set()
            return bob.append("answer", "y", block=True, timeout=PATIENCE_S)

        answered = in_thread(answer)
        assert waiting.wait(PATIENCE_S)
        assert len([bob.pop(block=True, timeout=PATIENCE_S) for _ in range(sent)]) == sent
        answered()


def test_an_observer_is_no_member() -> None:
    with rm.SyncQueue("q", "ada") as ada, rm.Subscriber("q", observe="always"):
        assert ada.members == 1


def test_pop_waits() -> None:
    with rm.SyncQueue("q", "a") as a:
        assert a.pop(block=True, timeout=0.01) is None


def test_a_dead_member_blocks_no_other(child: Callable[..., Child]) -> None:
    dead = child('q = rm.SyncQueue("q", "dead", capacity=4096); say("in"); hear()')
    dead.line()
    with rm.SyncQueue("q", "a") as a:
        assert a.members == 2
        dead.kill()
        for i in range(1000):
            a.append("n", str(i), block=True, timeout=PATIENCE_S)
        assert a.members == 1


def _echo(queue: rm.SyncQueue, name: str) -> None:
    with queue.member(name) as mine:
        mine.append("ready", name)
        while True:
            message = mine.pop(block=True, timeout=PATIENCE_S)
            assert message is not None
            if message.kind == "stop":
                return
            if message.kind == "ask":
                mine.append("answer", message.text + name)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children(method: Any) -> None:
    context = multiprocessing.get_context(method)
    with rm.SyncQueue("q", "parent") as queue:
        children = [context.Process(target=_echo, args=(queue, name)) for name in ("x", "y")]
        for one in children:
            one.start()
        ready: set[str] = set()
        while ready != {"x", "y"}:
            message = queue.pop(block=True, timeout=PATIENCE_S)
            assert message is not None
            if message.kind == "ready":
                ready.add(message.text)
        queue.append("ask", "who ")
        answers: set[str] = set()
        while len(answers) < 2:
            message = queue.pop(block=True, timeout=PATIENCE_S)
            assert message is not None
            if message.kind == "answer":
                answers.add(message.text)
        assert answers == {"who x", "who y"}
        queue.append("stop", "")
        for one in children:
            one.join(PATIENCE_S)
            assert one.exitcode == 0


def test_strangers_that_only_know_the_name(child: Callable[..., Child]) -> None:
    with rm.SyncQueue("q", "a") as a:
        stranger = child("""
            with rm.SyncQueue("q", "stranger") as q:
                q.append("hi", "there")
                say(q.pop(block=True, timeout=30).text)
        """)
        message = a.pop(block=True, timeout=PATIENCE_S)
        assert message is not None
        assert message.sender == "stranger"
        a.append("reply", "welcome")
        assert stranger.line() == "welcome"
        stranger.finish()


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        rm.SyncQueue("q", "")
    with rm.Publisher("other", contract="broadcast"), pytest.raises(rm.TopicMismatch):
        rm.SyncQueue("other", "a")
