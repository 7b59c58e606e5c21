"""A program written for commaai's msgq runs with its import changed: sockets, poller, and events across processes."""

from __future__ import annotations

import gc
import multiprocessing
import threading
from collections.abc import Iterator

import pytest

from ringmain.compat import msgq

from ..conftest import PATIENCE_S


@pytest.fixture(params=["", "test"])
def fake(request: pytest.FixtureRequest) -> Iterator[None]:
    msgq.toggle_fake_events(True)
    msgq.set_fake_prefix(request.param)
    yield
    msgq.toggle_fake_events(False)
    msgq.delete_fake_prefix()


def test_pub_sub_in_any_order() -> None:
    early = msgq.sub_sock("carState", timeout=0)
    pub = msgq.pub_sock("carState")
    late = msgq.sub_sock(b"carState")  # type: ignore[arg-type]  # bytes where they take either
    pub.send(b"one")
    assert (early.receive(), late.receive()) == (b"one", b"one")
    assert early.receive() is None
    assert late.receive(non_blocking=True) is None
    assert pub.all_readers_updated()
    pub.send(b"two")
    assert not pub.all_readers_updated()
    assert pub.wait_for_readers(2, timeout=PATIENCE_S)
    assert not pub.wait_for_readers(3, timeout=0)
    assert msgq.drain_sock_raw(late, wait_for_one=True) == [b"two"]


def test_conflate() -> None:
    pub, sub = msgq.pub_sock("c"), msgq.sub_sock("c", conflate=True)
    for i in range(10):
        pub.send(b"%d" % i)
    assert msgq.drain_sock_raw(sub) == [b"9"]


def test_a_second_publisher_takes_over() -> None:
    first, second, sub = msgq.pub_sock("p"), msgq.pub_sock("p"), msgq.sub_sock("p")
    with pytest.raises(msgq.MultiplePublishersError):
        first.send(b"old")
    second.send(b"new")
    assert sub.receive() == b"new"


def test_poller() -> None:
    poller = msgq.Poller()
    a, b = msgq.sub_sock("a", poller), msgq.sub_sock("b", poller)
    assert poller.poll(10) == []
    pub = msgq.PubSocket()
    pub.connect(msgq.Context(), b"b")

    sender = threading.Timer(0.01, pub.send, [b"x"])
    sender.start()
    assert poller.poll(int(PATIENCE_S * 1000)) == [b]
    assert b.receive() == b"x"
    assert a.receive(non_blocking=True) is None
    sender.join()


def test_errors_say_why() -> None:
    with pytest.raises(msgq.IpcError, match="not connected"):
        msgq.PubSocket().send(b"x")
    with pytest.raises(msgq.IpcError, match="another machine"):
        msgq.sub_sock("x", addr="10.0.0.1")
    pub = msgq.pub_sock("small", segment_size=4096)
    with pytest.raises(msgq.IpcError, match="too large"):
        pub.send(b"x" * 10_000)


def test_event_by_itself() -> None:
    handle = msgq.fake_event_handle("carState")
    event = handle.recv_called_event
    assert not handle.enabled
    assert event.fd >= 0
    assert not event.peek()
    with pytest.raises(RuntimeError):
        event.wait(0)
    event.set()
    event.wait(PATIENCE_S)
    assert event.peek()
    event.clear()
    assert not event.peek()


def test_an_event_that_nobody_made() -> None:
    handle = msgq.fake_event_handle("ubloxGnss", override=False)
    assert (handle.enabled, handle.recv_called_event.fd, handle.recv_ready_event.fd) == (False, -1, -1)


def _set(endpoint: str) -> None:
    msgq.fake_event_handle(endpoint, override=False).recv_called_event.set()


def test_events_between_processes() -> None:
    handles = [msgq.fake_event_handle(name) for name in ("carState", "controlsState")]
    other = multiprocessing.get_context("spawn").Process(target=_set, args=("controlsState",))
    other.start()
    assert msgq.wait_for_one_event([h.recv_called_event for h in handles], PATIENCE_S) == 1
    other.join(PATIENCE_S)


def test_enabled_and_not(fake: None) -> None:
    handle = msgq.fake_event_handle("gnss", enable=True)
    pub, sub = msgq.pub_sock("gnss"), msgq.sub_sock("gnss")
    handle.recv_ready_event.set()
    pub.send(b"test")
    assert sub.receive() == b"test"
    assert handle.recv_called_event.peek()
    handle.recv_called_event.clear()
    handle.enabled = False
    pub.send(b"test")
    assert sub.receive() == b"test"
    assert not handle.recv_called_event.peek()


def _republish(source: str, target: str) -> None:
    pub, sub = msgq.pub_sock(target), msgq.sub_sock(source)
    frame = 0
    while sub.receive(non_blocking=True) is not None:
        pub.send(frame.to_bytes(8, "little"))
        frame += 1


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_is_led_message_by_message(fake: None, method: str) -> None:
    handle = msgq.fake_event_handle("in", enable=True)
    called, ready = handle.recv_called_event, handle.recv_ready_event
    pub, sub = msgq.pub_sock("in"), msgq.sub_sock("out", timeout=int(PATIENCE_S * 1000))
    other = multiprocessing.get_context(method).Process(target=_republish, args=("in", "out"))  # type: ignore[attr-defined]
    other.start()
    for i in range(10):
        called.wait(PATIENCE_S)
        called.clear()
        pub.send(b"go")
        ready.set()
        answer = sub.receive()
        assert answer is not None
        assert int.from_bytes(answer, "little") == i
    called.wait(PATIENCE_S)
    ready.set()  # nothing was sent: it ends
    other.join(PATIENCE_S)
    assert other.exitcode == 0


@pytest.fixture(autouse=True)
def _collect() -> Iterator[None]:
    yield
    gc.collect()  # sockets have no close in programs of old: they go with their last reference
