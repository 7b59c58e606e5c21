"""msgq's fake events: a test holds a subscriber of another process at `receive`, and lets it go when it likes.

An event is a FIFO in the runtime directory, so it has a descriptor and works between any processes that know its name.
A handle's two events and its switch are a directory; whoever made it with `override` takes it away again.
"""

from __future__ import annotations

import os
import select
import shutil
from collections.abc import Sequence
from pathlib import Path

from ringmain import names

_FAKE = "RINGMAIN_MSGQ_FAKE"
_PREFIX = "RINGMAIN_MSGQ_FAKE_PREFIX"


def text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def toggle_fake_events(enabled: bool) -> None:
    """Sockets connected from now on, here and in children, heed their fake events."""
    if enabled:
        os.environ[_FAKE] = "1"
    else:
        os.environ.pop(_FAKE, None)


def fake_events_are_on() -> bool:
    return bool(os.environ.get(_FAKE))


def set_fake_prefix(prefix: str | bytes) -> None:
    os.environ[_PREFIX] = text(prefix)


def get_fake_prefix() -> str:
    return os.environ.get(_PREFIX, "")


def delete_fake_prefix() -> None:
    os.environ.pop(_PREFIX, None)


class Event:
    """Set or not set. `fd` is readable while it is set, and -1 if nobody has made the event."""

    def __init__(self, path: Path) -> None:
        try:
            # For reading and writing: so neither end ever waits for the other to be opened.
            self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            self.fd = -1

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            os.close(self.fd)

    def _check(self) -> None:
        if self.fd < 0:
            raise RuntimeError("nobody has made this event: make it with fake_event_handle(..., override=True)")

    def set(self) -> None:
        self._check()
        if not self.peek():
            os.write(self.fd, b"1")

    def clear(self) -> int:
        """Returns how often it was set since it was last cleared."""
        self._check()
        try:
            return len(os.read(self.fd, 65536))
        except BlockingIOError:
            return 0

    def peek(self) -> bool:
        return self.fd >= 0 and bool(select.select([self.fd], [], [], 0)[0])

    def wait(self, timeout: float = -1) -> None:
        """Seconds; -1 for ever. `RuntimeError` when the time is up."""
        wait_for_one_event([self], timeout)


def wait_for_one_event(events: Sequence[Event], timeout: float = -1) -> int:
    """The index of one that is set. `RuntimeError` when the time is up."""
    for event in events:
        event._check()
    ready = select.select([event.fd for event in events], [], [], None if timeout < 0 else timeout)[0]
    if not ready:
        raise RuntimeError(f"none of {len(events)} events was set within {timeout:g} s")
    return [event.fd for event in events].index(ready[0])


class SocketEventHandle:
    """The events of one endpoint. With `override` they are made anew, disabled; without, they are what is there."""

    def __init__(self, endpoint: str | bytes, identifier: str | bytes = "", override: bool = True) -> None:
        name = "+".join(part for part in (text(identifier), text(endpoint)) if part)
        names.check_topic(name.replace("+", "/"))
        self._path = Path(names.runtime_directory()) / f"{name.replace('/', '+')}.events"
        self._owner = os.getpid() if override else None
        if override:
            shutil.rmtree(self._path, ignore_errors=True)
            self._path.mkdir(mode=0o700, parents=True)
            os.mkfifo(self._path / "called", 0o600)
            os.mkfifo(self._path / "ready", 0o600)
        self._called: Event | None = None
        self._ready: Event | None = None

    def __del__(self) -> None:
        if getattr(self, "_owner", None) == os.getpid():
            shutil.rmtree(self._path, ignore_errors=True)

    @property
    def _switch(self) -> Path:
        return self._path / "enabled"

    @property
    def enabled(self) -> bool:
        return self._switch.exists()

    @enabled.setter
    def enabled(self, value: bool) -> None:
        if value:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._switch.touch(mode=0o600)
        else:
            self._switch.unlink(missing_ok=True)

    @property
    def recv_called_event(self) -> Event:
        if self._called is None or self._called.fd < 0:
            self._called = Event(self._path / "called")
        return self._called

    @property
    def recv_ready_event(self) -> Event:
        if self._ready is None or self._ready.fd < 0:
            self._ready = Event(self._path / "ready")
        return self._ready

    def pass_through(self) -> None:
        """What a subscriber does at `receive`: say that it is there, and wait until it is let go."""
        if self.enabled:
            self.recv_called_event.set()
            self.recv_ready_event.wait()
            self.recv_ready_event.clear()


def fake_event_handle(
    endpoint: str, identifier: str | bytes | None = None, override: bool = True, enable: bool = False
) -> SocketEventHandle:
    """The events of an endpoint, under the prefix that is set unless `identifier` names another."""
    handle = SocketEventHandle(endpoint, get_fake_prefix() if identifier is None else identifier, override)
    if override:
        handle.enabled = enable
    return handle
