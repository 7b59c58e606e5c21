"""A program written for commaai's msgq runs with its import changed: sockets and pollers, made in any order, in threads
and in processes. What each test expects was first seen on msgq-ipc 1.0."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ringmain.compat import msgq
from tests.conftest import PATIENCE_S, Child

PATIENCE_MS = int(PATIENCE_S * 1000)
METHODS = ["fork", "spawn", "forkserver"]


def test_all_the_names_are_there() -> None:
    names = """Context Poller SubSocket PubSocket SocketEventHandle MultiplePublishersError IpcError toggle_fake_events
        set_fake_prefix get_fake_prefix delete_fake_prefix wait_for_one_event NO_TRAVERSAL_LIMIT context
        fake_event_handle pub_sock sub_sock drain_sock_raw"""
    assert set(names.split()) <= set(msgq.__all__)
    assert msgq.NO_TRAVERSAL_LIMIT == 2**64 - 1
    assert isinstance(msgq.context, msgq.Context)
    assert issubclass(msgq.MultiplePublishersError, msgq.IpcError)
    msgq.Context().term()


def test_pub_sub_in_any_order() -> None:
    early = msgq.sub_sock("carState", timeout=0)
    pub = msgq.pub_sock("carState")
    late = msgq.sub_sock("carState")
    pub.send(b"one")
    assert (early.receive(), late.receive()) == (b"one", b"one")
    assert early.receive() is None
    assert late.receive(non_blocking=True) is None
    pub.send(b"two")
    assert msgq.drain_sock_raw(late, wait_for_one=True) == [b"two"]
    assert msgq.drain_sock_raw(late) == []


def test_the_long_way_with_str_and_bytes() -> None:
    for endpoint, address in [("one", "127.0.0.1"), (b"one", b"127.0.0.1")]:
        pub, sub = msgq.PubSocket(), msgq.SubSocket()
        pub.connect(msgq.context, endpoint, 65536)
        sub.connect(msgq.context, endpoint, address, False, 65536)
        pub.send(b"x")
        assert sub.receive() == b"x"
    assert msgq.sub_sock(b"two", addr=b"127.0.0.1", timeout=0).receive() is None
    sub.connect(context=msgq.context, endpoint="two", address="127.0.0.1", conflate=True, segment_size=0)


def test_any_name_is_an_endpoint_and_no_two_are_the_same() -> None:
    names = ["a b", "a.b", "a:b", "a.2eb", "a-b", "a_b", "ä", b"\xff"]
    pubs = [msgq.pub_sock(name) for name in names]
    subs = [msgq.sub_sock(name) for name in names]
    for number, pub in enumerate(pubs):
        pub.send(b"%d" % number)
    assert [msgq.drain_sock_raw(sub) for sub in subs] == [[b"%d" % number] for number in range(len(names))]


def test_programs_with_another_prefix_have_other_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENPILOT_PREFIX", "test 1")
    pub, sub = msgq.pub_sock("carState"), msgq.sub_sock("carState")
    monkeypatch.setenv("OPENPILOT_PREFIX", "2")
    other = msgq.pub_sock("carState")
    monkeypatch.delenv("OPENPILOT_PREFIX")
    third = msgq.sub_sock("carState")
    pub.send(b"one")
    other.send(b"two")
    assert msgq.drain_sock_raw(sub) == [b"one"]
    assert msgq.drain_sock_raw(third) == []


def test_conflate() -> None:
    pub, sub = msgq.pub_sock("c"), msgq.sub_sock("c", conflate=True)
    for i in range(10):
        pub.send(b"%d" % i)
    assert msgq.drain_sock_raw(sub) == [b"9"]


def test_all_readers_updated() -> None:
    pub = msgq.pub_sock("r")
    assert not pub.all_readers_updated(), "there are none"
    with pytest.raises(TimeoutError, match="no reader of 'r'"):
        pub.wait_for_readers(0.01, 0.001)
    sub = msgq.sub_sock("r")
    pub.wait_for_readers()
    pub.send(b"x")
    assert not pub.all_readers_updated()
    assert sub.receive() == b"x"
    assert pub.all_readers_updated()


def test_waiting_for_a_reader_of_another_thread(in_thread: Callable[..., Callable[[], object]]) -> None:
    pub = msgq.pub_sock("t")
    end = in_thread(lambda: msgq.sub_sock("t").receive())
    pub.wait_for_readers(timeout=PATIENCE_S)
    pub.send(b"x")
    assert end() == b"x"


def test_a_second_publisher_takes_over() -> None:
    first, second, sub = msgq.pub_sock("p"), msgq.pub_sock("p"), msgq.sub_sock("p")
    with pytest.raises(msgq.MultiplePublishersError):
        first.send(b"old")
    second.send(b"new")
    assert sub.receive() == b"new"


def test_a_publisher_comes_back_for_readers_that_stayed() -> None:
    sub = msgq.sub_sock("p", timeout=PATIENCE_MS)
    for message, size in [(b"first", 0), (b"second", 250 * 1024), (b"third", 2 * 1024 * 1024)]:
        pub = msgq.pub_sock("p", segment_size=size)
        pub.send(message)
        assert sub.receive() == message
        del pub


def test_taking_over_with_another_size() -> None:
    first, sub = msgq.pub_sock("p", segment_size=250 * 1024), msgq.sub_sock("p")
    second = msgq.pub_sock("p", segment_size=2 * 1024 * 1024)
    with pytest.raises(msgq.MultiplePublishersError):
        first.send(b"old")
    second.send(b"new")
    assert sub.receive() == b"new"


def test_sizes() -> None:
    pub, sub = msgq.pub_sock("small", segment_size=4096), msgq.sub_sock("small")
    with pytest.raises(msgq.IpcError, match="too large"):
        pub.send(b"x" * 10_000)
    big = msgq.pub_sock("big")
    heard = msgq.sub_sock("big")
    big.send(bytes(349_000))  # a third of the ring that msgq makes by itself: the largest message it takes
    assert heard.receive() == bytes(349_000)
    assert sub.receive(non_blocking=True) is None


def test_the_128th_reader_is_refused_and_no_other_is_evicted() -> None:
    pub = msgq.pub_sock("many")
    subs = [msgq.sub_sock("many") for _ in range(127)]  # and the publisher
    pub.send(b"x")
    with pytest.raises(msgq.IpcError):
        msgq.sub_sock("many").receive(non_blocking=True)
    assert [sub.receive() for sub in subs] == [b"x"] * 127


def test_more_readers_than_there_were_slots() -> None:
    subs = [msgq.sub_sock("popular") for _ in range(40)]
    pub = msgq.pub_sock("popular")
    for message in (b"a", b"b"):
        pub.send(message)
    assert [msgq.drain_sock_raw(sub) for sub in subs] == [[b"a", b"b"]] * 40


def test_poller() -> None:
    poller = msgq.Poller()
    assert poller.poll(1) == []
    a, b = msgq.sub_sock("a", poller), msgq.sub_sock("b", poller)
    assert poller.poll(10) == []
    pub = msgq.PubSocket()
    pub.connect(msgq.Context(), b"b")

    sender = threading.Timer(0.01, pub.send, [b"x"])
    sender.start()
    assert poller.poll(PATIENCE_MS) == [b]
    assert b.receive() == b"x"
    assert a.receive(non_blocking=True) is None
    sender.join()
    c = msgq.SubSocket()
    c.connect(msgq.context, "c")
    poller.registerSocket(c)
    others = [msgq.pub_sock("c"), msgq.pub_sock("a")]
    for other in others:
        other.send(b"y")
    assert poller.poll(-1) == [a, c]


def test_errors_say_why() -> None:
    with pytest.raises(msgq.IpcError, match="not connected"):
        msgq.PubSocket().send(b"x")
    with pytest.raises(msgq.IpcError, match="not connected"):
        msgq.SubSocket().receive()
    with pytest.raises(msgq.IpcError, match="another machine"):
        msgq.sub_sock("x", addr="10.0.0.1")
    with pytest.raises(msgq.IpcError, match="not a topic's name"):
        msgq.pub_sock("")
    with pytest.raises(TypeError, match="the first is a Context"):
        msgq.PubSocket().connect("endpoint", 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="str"):
        msgq.pub_sock("x").send("text")  # type: ignore[arg-type]
    error = msgq.MultiplePublishersError(b"carState", "why")
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == "Messaging failure with carState: why"


def test_a_receive_without_end_heeds_ctrl_c(child: Callable[..., Child]) -> None:
    waiting = child(
        """
        from ringmain.compat import msgq
        sub = msgq.sub_sock("silence")
        try:
            say("there")
            sub.receive()
        except KeyboardInterrupt:
            say("interrupted")
        """
    )
    assert waiting.line() == "there"
    os.kill(waiting.pid, signal.SIGINT)
    assert waiting.line() == "interrupted"
    waiting.finish()


def _echo(source: str, target: str, rounds: int) -> None:
    sub, pub = msgq.sub_sock(source, timeout=PATIENCE_MS), msgq.pub_sock(target)
    pub.wait_for_readers(PATIENCE_S)
    pub.send(b"ready")
    for _ in range(rounds):
        data = sub.receive()
        assert data is not None
        pub.send(data)


@pytest.mark.parametrize("first", ["subscriber", "publisher"])
@pytest.mark.parametrize("method", METHODS)
def test_processes(method: Any, first: str) -> None:
    """The other process's sockets come before, between or after ours."""
    other = multiprocessing.get_context(method).Process(target=_echo, args=("there", "back", 50))
    if first == "publisher":
        pub = msgq.pub_sock("there")
    back = msgq.sub_sock("back", timeout=PATIENCE_MS)
    other.start()
    assert back.receive() == b"ready"
    if first == "subscriber":
        pub = msgq.pub_sock("there")
    for i in range(50):
        pub.send(b"%d" % i)
    assert [back.receive() for _ in range(50)] == [b"%d" % i for i in range(50)]
    other.join(PATIENCE_S)
    assert other.exitcode == 0


def test_sockets_cross_a_fork() -> None:
    """A child uses the sockets that its parent made: then the publisher's place is the child's."""
    pub, sub = msgq.pub_sock("up"), msgq.sub_sock("up", timeout=PATIENCE_MS)
    orders = msgq.pub_sock("down")
    heard = msgq.sub_sock("down", timeout=PATIENCE_MS)

    def work() -> None:
        data = heard.receive()
        assert data is not None
        pub.send(b"child got " + data)

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    orders.wait_for_readers(PATIENCE_S)
    answer = None
    while answer is None and child.is_alive():  # the child's place begins when it first receives
        orders.send(b"go")
        sub.setTimeout(50)
        answer = sub.receive()
    assert (answer or sub.receive()) == b"child got go"
    child.join(PATIENCE_S)
    assert child.exitcode == 0


def test_threads() -> None:
    """Every thread has sockets of its own on the same endpoints, and hears everything in order."""
    count, results = 4, {}
    pub = msgq.pub_sock("all")
    there = threading.Barrier(count + 1)

    def hear(number: int) -> None:
        sub = msgq.sub_sock("all", timeout=PATIENCE_MS)
        there.wait(PATIENCE_S)
        results[number] = [sub.receive() for _ in range(100)]

    threads = [threading.Thread(target=hear, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    there.wait(PATIENCE_S)
    for i in range(100):
        pub.send(b"%d" % i)
    for thread in threads:
        thread.join(PATIENCE_S)
    expected = [b"%d" % i for i in range(100)]
    assert [results[number] for number in range(count)] == [expected] * count
