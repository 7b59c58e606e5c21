"""msgq's fake events: a test stops a subscriber of another process at `receive`, and lets it continue when it chooses.

An event is a FIFO in the runtime directory, so it has a file descriptor and works between all processes that know its
name. The two events of a handle and its switch are in a directory. The process that made it with `override` keeps the
FIFOs open, so that what others wrote stays in them, and removes the directory at the end. All others open the FIFOs for
each use, so a subscriber that outlives one handle follows the next.
"""

from __future__ import annotations

import os
import select
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ringmain import _names
from ringmain.compat._names import escaped, text
from ringmain.compat.msgq._endpoints import topic_of

# The names are msgq's: a program, or the shell that starts it, may set these variables itself.
_FAKE = "CEREAL_FAKE"
_PREFIX = "CEREAL_FAKE_PREFIX"


def _set_variable(name: str, value: str) -> None:
    if value:
        os.environ[name] = value
    else:
        os.environ.pop(name, None)


def toggle_fake_events(enabled: bool) -> None:
    """Sockets connected from now on, in this process and its children, follow their fake events."""
    _set_variable(_FAKE, "1" if enabled else "")


def set_fake_prefix(prefix: str | bytes) -> None:
    _set_variable(_PREFIX, text(prefix))


def get_fake_prefix() -> bytes:
    """Bytes, as in msgq; functions that take a prefix accept both str and bytes."""
    return os.fsencode(os.environ.get(_PREFIX, ""))


def delete_fake_prefix() -> None:
    set_fake_prefix("")


class Event:
    """Set or not set. `fd` is readable while it is set, and -1 if the event does not exist."""

    def __init__(self, fd: int = -1) -> None:
        self.fd = fd

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def _check(self) -> None:
        if self.fd < 0:
            raise RuntimeError("this event does not exist: make it with fake_event_handle(..., override=True)")

    def set(self) -> None:
        self._check()
        with suppress(BlockingIOError):  # the FIFO is full, so the event is set
            os.write(self.fd, b"1")

    def clear(self) -> int:
        """Returns how many times it was set since it was last cleared."""
        self._check()
        with suppress(BlockingIOError):
            return len(os.read(self.fd, 65536))
        return 0

    def peek(self) -> bool:
        self._check()
        return bool(_set_among([self], 0))

    def wait(self, timeout: float = -1) -> None:
        """Timeout in seconds, -1: without limit. `RuntimeError` when the time is up."""
        wait_for_one_event([self], timeout)


def _set_among(events: Sequence[Event], timeout: float | None) -> list[int]:
    """The file descriptors of the events that are set. Uses poll: select takes none above 1023."""
    poll = select.poll()
    for event in events:
        event._check()
        poll.register(event.fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000)]


def wait_for_one_event(events: Sequence[Event], timeout: float = -1) -> int:
    """The index of the first event that is set. `RuntimeError` after `timeout` seconds; -1: without limit."""
    found = _set_among(events, None if timeout < 0 else timeout)
    if not found:
        raise RuntimeError(f"none of {len(events)} events was set within {timeout:g} s")
    return next(index for index, event in enumerate(events) if event.fd in found)


class SocketEventHandle:
    """The events of one endpoint. With `override` they are created anew, disabled; without, existing ones are used."""

    def __init__(self, endpoint: str | bytes, identifier: str | bytes = "", override: bool = True) -> None:
        name = topic_of(endpoint).replace("/", "+")
        self._path = Path(_names.runtime_directory()) / f"{name}={escaped(text(identifier))}.events"
        self._owner = _names.forks() if override else None
        if override:
            shutil.rmtree(self._path, ignore_errors=True)
            self._make()
            os.mkfifo(self._path / "called", 0o600)
            os.mkfifo(self._path / "ready", 0o600)
        self._called = self._open("called")
        self._ready = self._open("ready")

    def __del__(self) -> None:
        if getattr(self, "_owner", None) == _names.forks():
            shutil.rmtree(self._path, ignore_errors=True)

    def _open(self, which: str) -> Event:
        try:
            # For reading and writing, so that opening does not wait for the other end.
            flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
            return Event(os.open(self._path / which, flags))
        except FileNotFoundError:
            return Event()

    def _make(self) -> None:
        for path in (self._path.parent, self._path):  # accessible to the owner only
            path.mkdir(mode=0o700, exist_ok=True)

    @property
    def _switch(self) -> Path:
        return self._path / "enabled"

    @property
    def enabled(self) -> bool:
        return self._switch.exists()

    @enabled.setter
    def enabled(self, value: bool) -> None:
        if value:
            self._make()
            self._switch.touch(mode=0o600)
        else:
            self._switch.unlink(missing_ok=True)

    @property
    def recv_called_event(self) -> Event:
        return self._called

    @property
    def recv_ready_event(self) -> Event:
        return self._ready

    def pass_through(self) -> None:
        """What a subscriber does at `receive`: announce itself, and wait until it may continue."""
        if self.enabled:
            called, ready = self._open("called"), self._open("ready")
            called.set()
            ready.wait()
            ready.clear()


def fake_event_handle(
    endpoint: str | bytes, identifier: str | bytes | None = None, override: bool = True, enable: bool = False
) -> SocketEventHandle:
    """The events of an endpoint, under the current prefix unless `identifier` is another one."""
    handle = SocketEventHandle(endpoint, get_fake_prefix() if identifier is None else identifier, override)
    if override:
        handle.enabled = enable
    return handle


def events_of(endpoint: str | bytes) -> SocketEventHandle | None:
    """The events that a socket connected now must follow; None while fake events are off."""
    return fake_event_handle(endpoint, override=False) if _FAKE in os.environ else None
