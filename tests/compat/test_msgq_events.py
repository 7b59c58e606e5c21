"""msgq's fake events: a test leads a subscriber of another process, or of its own, message by message. What each test
expects was first seen on msgq-ipc 1.0, but that there an event nobody made ends the process."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmain.compat import msgq
from ringmain.compat.msgq import Event
from tests.conftest import PATIENCE_S, Child

PATIENCE_MS = int(PATIENCE_S * 1000)


@pytest.fixture(params=["", "test", b"bytes"])
def fake(request: pytest.FixtureRequest) -> Iterator[None]:
    msgq.toggle_fake_events(True)
    msgq.set_fake_prefix(request.param)
    yield
    msgq.toggle_fake_events(False)
    msgq.delete_fake_prefix()


def test_event_by_itself() -> None:
    handle = msgq.fake_event_handle("carState")
    event = handle.recv_called_event
    assert not handle.enabled
    assert event.fd >= 0
    assert event.fd == handle.recv_called_event.fd != handle.recv_ready_event.fd
    assert not event.peek()
    with pytest.raises(RuntimeError):
        event.wait(0)
    event.set()
    event.set()
    event.wait(PATIENCE_S)
    assert event.peek()
    assert (event.clear(), event.clear()) == (2, 0)
    assert not event.peek()


def test_prefixes() -> None:
    assert msgq.get_fake_prefix() == b""
    msgq.set_fake_prefix("one")
    assert msgq.get_fake_prefix() == b"one"
    assert os.environ["CEREAL_FAKE_PREFIX"] == "one", "for children, whatever starts them"
    one = msgq.fake_event_handle("carState", enable=True)
    msgq.delete_fake_prefix()
    assert msgq.get_fake_prefix() == b""
    assert not msgq.fake_event_handle("carState", override=False).enabled
    for identifier in ("one", b"one"):
        assert msgq.fake_event_handle("carState", identifier=identifier, override=False).enabled
    assert one.enabled
    handle = msgq.SocketEventHandle("a b/c", "with: signs", True)
    handle.enabled = True
    assert handle.enabled


def test_programs_with_another_prefix_have_other_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENPILOT_PREFIX", "one")
    handle = msgq.fake_event_handle("carState", enable=True)
    monkeypatch.delenv("OPENPILOT_PREFIX")
    assert not msgq.fake_event_handle("carState", override=False).enabled
    assert handle.enabled


def test_an_event_that_does_not_exist() -> None:
    handle = msgq.fake_event_handle("ubloxGnss", override=False)
    event = handle.recv_called_event
    assert (handle.enabled, event.fd, handle.recv_ready_event.fd, Event().fd) == (False, -1, -1, -1)
    for use in (event.peek, event.set, event.clear, event.wait, lambda: msgq.wait_for_one_event([event], 0)):
        with pytest.raises(RuntimeError, match="does not exist"):
            use()


def test_events_go_with_their_handle(runtime_dir: Path) -> None:
    handle = msgq.fake_event_handle("carState", enable=True)
    assert list(runtime_dir.glob("*.events"))
    del handle
    gc.collect()
    assert not list(runtime_dir.glob("*.events"))


def test_the_first_of_several() -> None:
    handles = [msgq.fake_event_handle(name) for name in ("a", "b", "c")]
    events = [handle.recv_called_event for handle in handles]
    with pytest.raises(RuntimeError, match="none of 3 events was set within 0 s"):
        msgq.wait_for_one_event(events, 0)
    threading.Timer(0.01, events[2].set).start()
    assert msgq.wait_for_one_event(events) == 2
    events[1].set()
    assert msgq.wait_for_one_event(events, timeout=5) == 1


def _set(endpoint: str) -> None:
    msgq.fake_event_handle(endpoint, identifier="", override=False).recv_called_event.set()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_events_between_processes(method: Any) -> None:
    handles = [msgq.fake_event_handle(name) for name in ("carState", "controlsState")]
    other = multiprocessing.get_context(method).Process(target=_set, args=("controlsState",))
    other.start()
    assert msgq.wait_for_one_event([h.recv_called_event for h in handles], PATIENCE_S) == 1
    other.join(PATIENCE_S)
    assert handles[1].recv_called_event.peek(), "it stays set after the process that set it has ended"


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


def test_a_poller_is_ready_at_once(fake: None) -> None:
    """With fake events on it is `receive` that waits, for each socket in its turn."""
    poller = msgq.Poller()
    socks = [msgq.sub_sock("a", poller), msgq.sub_sock("b", poller)]
    assert poller.poll(PATIENCE_MS) == socks
    assert [sock.receive(non_blocking=True) for sock in socks] == [None, None], "no handle: nothing holds them"


def test_a_subscriber_is_led_by_the_handle_of_the_moment(fake: None) -> None:
    """The handle may be made after the subscriber, and when it is gone another may take its place."""
    pub, sub = msgq.pub_sock("x"), msgq.sub_sock("x")
    for message in (b"one", b"two"):
        handle = msgq.fake_event_handle("x", enable=True)
        handle.recv_ready_event.set()
        pub.send(message)
        assert sub.receive(non_blocking=True) == message
        assert handle.recv_called_event.clear() == 1
        del handle
        gc.collect()
    assert sub.receive(non_blocking=True) is None


def _republish(source: str, target: str) -> None:
    pub, sub = msgq.pub_sock(target), msgq.sub_sock(source)
    frame = 0
    while sub.receive(non_blocking=True) is not None:
        pub.send(frame.to_bytes(8, "little"))
        frame += 1


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_is_led_message_by_message(fake: None, method: Any) -> None:
    handle = msgq.fake_event_handle("in", enable=True)
    called, ready = handle.recv_called_event, handle.recv_ready_event
    pub, sub = msgq.pub_sock("in"), msgq.sub_sock("out", timeout=PATIENCE_MS)
    other = multiprocessing.get_context(method).Process(target=_republish, args=("in", "out"))
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


def test_a_program_that_is_set_up_by_its_environment(child: Callable[..., Child]) -> None:
    """The variables are msgq's own, so whatever sets them goes on doing so."""
    handle = msgq.fake_event_handle("in", identifier="shell", enable=True)
    led = child(
        """
        from ringmain.compat import msgq
        say(msgq.sub_sock("in").receive(non_blocking=True))
        """,
        env={"CEREAL_FAKE": "1", "CEREAL_FAKE_PREFIX": "shell"},
    )
    handle.recv_called_event.wait(PATIENCE_S)
    handle.recv_ready_event.set()
    assert led.line() == "None"
    led.finish()
