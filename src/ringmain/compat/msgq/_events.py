"""msgq's fake events: a test holds a subscriber of another process at `receive`, and lets it go when it likes.

An event is a FIFO in the runtime directory, so it has a descriptor and works between any processes that know its name.
A handle's two events and its switch are a directory; whoever made it with `override` keeps the FIFOs open, so that what
others wrote stays in them, and takes the directory away again. Everybody else opens them when they are used: so a
subscriber that outlives one handle is led by the next.
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
from ringmain.compat.msgq._endpoints import place

# The names that msgq itself uses: a program, or the shell that starts it, may set them without calling anything.
_FAKE = "CEREAL_FAKE"
_PREFIX = "CEREAL_FAKE_PREFIX"


def toggle_fake_events(enabled: bool) -> None:
    """Sockets connected from now on, here and in children, heed their fake events."""
    if enabled:
        os.environ[_FAKE] = "1"
    else:
        os.environ.pop(_FAKE, None)


def set_fake_prefix(prefix: str | bytes) -> None:
    if prefix:
        os.environ[_PREFIX] = text(prefix)
    else:
        os.environ.pop(_PREFIX, None)


def get_fake_prefix() -> bytes:
    """As there, bytes; whatever takes a prefix takes str and bytes."""
    return os.fsencode(os.environ.get(_PREFIX, ""))


def delete_fake_prefix() -> None:
    set_fake_prefix("")


class Event:
    """Set or not set. `fd` is readable while it is set, and -1 if nobody has made the event."""

    def __init__(self, fd: int = -1) -> None:
        self.fd = fd

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def _check(self) -> None:
        if self.fd < 0:
            raise RuntimeError("nobody has made this event: make it with fake_event_handle(..., override=True)")

    def set(self) -> None:
        self._check()
        with suppress(BlockingIOError):  # it has been set 65536 times: it is set
            os.write(self.fd, b"1")

    def clear(self) -> int:
        """Returns how often it was set since it was last cleared."""
        self._check()
        with suppress(BlockingIOError):
            return len(os.read(self.fd, 65536))
        return 0

    def peek(self) -> bool:
        self._check()
        return bool(_set_among([self], 0))

    def wait(self, timeout: float = -1) -> None:
        """Seconds; -1 for ever. `RuntimeError` when the time is up."""
        wait_for_one_event([self], timeout)


def _set_among(events: Sequence[Event], timeout: float | None) -> list[int]:
    """The descriptors of those that are set. By poll: unlike select, it takes descriptors above 1023."""
    poll = select.poll()
    for event in events:
        event._check()
        poll.register(event.fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000)]


def wait_for_one_event(events: Sequence[Event], timeout: float = -1) -> int:
    """The index of the first that is set. `RuntimeError` when the time (seconds; -1 for ever) is up."""
    found = _set_among(events, None if timeout < 0 else timeout)
    if not found:
        raise RuntimeError(f"none of {len(events)} events was set within {timeout:g} s")
    return next(index for index, event in enumerate(events) if event.fd in found)


class SocketEventHandle:
    """The events of one endpoint. With `override` they are made anew, disabled; without, they are what is there."""

    def __init__(self, endpoint: str | bytes, identifier: str | bytes = "", override: bool = True) -> None:
        name = place(endpoint).replace("/", "+")
        self._path = Path(_names.runtime_directory()) / f"{name}={escaped(text(identifier))}.events"
        self._owner = os.getpid() if override else None
        if override:
            shutil.rmtree(self._path, ignore_errors=True)
            self._make()
            os.mkfifo(self._path / "called", 0o600)
            os.mkfifo(self._path / "ready", 0o600)
        self._called = self._open("called")
        self._ready = self._open("ready")

    def __del__(self) -> None:
        if getattr(self, "_owner", None) == os.getpid():
            shutil.rmtree(self._path, ignore_errors=True)

    def _open(self, which: str) -> Event:
        try:
            # For reading and writing: so neither end ever waits for the other to be opened.
            flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
            return Event(os.open(self._path / which, flags))
        except FileNotFoundError:
            return Event()

    def _make(self) -> None:
        for path in (self._path.parent, self._path):  # each for its owner alone
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
        """What a subscriber does at `receive`: say that it is there, and wait until it is let go."""
        if self.enabled:
            called, ready = self._open("called"), self._open("ready")
            called.set()
            ready.wait()
            ready.clear()


def fake_event_handle(
    endpoint: str | bytes, identifier: str | bytes | None = None, override: bool = True, enable: bool = False
) -> SocketEventHandle:
    """The events of an endpoint, under the prefix that is set unless `identifier` names another."""
    handle = SocketEventHandle(endpoint, get_fake_prefix() if identifier is None else identifier, override)
    if override:
        handle.enabled = enable
    return handle


def events_of(endpoint: str | bytes) -> SocketEventHandle | None:
    """What a socket that connects now has to pass through; None while fake events are off."""
    return fake_event_handle(endpoint, override=False) if _FAKE in os.environ else None
