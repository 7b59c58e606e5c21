"""pysyncq's `PySyncQ` on `ringmain.SyncQueue`: change the import, keep the program.

    from ringmain.compat import pysyncq as pq     # was: from pysyncq import pysyncq as pq

A queue is the topic `pysyncq/<name>`; its creator keeps it until others have opened it. The guide lists what differs,
and why: types of messages are text of at most 255 bytes, because they are in the message's envelope, where they are
screened before anything is copied; the ring has at least a page; a process that dies is detected, and the others
continue.
"""

from __future__ import annotations

import multiprocessing
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from ringmain import Publisher, SyncQueue, _names, info
from ringmain.compat._names import escaped
from ringmain.errors import Full, MessageTooLarge, TopicNotFound

__all__ = ["PySyncQ", "qset"]

DEFAULT_SIZE = os.sysconf("SC_PAGE_SIZE")
_KEEPER = "keeper"


def _text(value: object) -> str:
    """As in the original: bytes are decoded, everything else is converted with `str`."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class qset(set[bytes]):
    """A set of names as bytes; str and other objects are encoded when added. Calls `changed` after every change."""

    def __init__(self, iterable: Any = (), changed: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._changed: Callable[[], None] | None = None
        for element in iterable:
            self.add(element)
        self._changed = changed

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed()

    def add(self, elem: object) -> None:
        super().add(_bytes(elem))
        self._tell()

    def update(self, *others: Any) -> None:
        for other in others:
            for element in other:
                self.add(element)

    def discard(self, elem: object) -> None:
        super().discard(_bytes(elem))
        self._tell()

    def remove(self, elem: object) -> None:
        super().remove(_bytes(elem))
        self._tell()

    def clear(self) -> None:
        super().clear()
        self._tell()

    def pop(self) -> bytes:
        taken = super().pop()
        self._tell()
        return taken

    def __reduce__(self) -> tuple[Any, ...]:
        return qset, (list(self),)


class PySyncQ:
    """A queue that every process sends to and reads from. Create it, pass it to the children, `open` it in each."""

    def __init__(
        self, name: str | None = None, create: bool = True, size: int = DEFAULT_SIZE, start: str | None = None
    ) -> None:
        self.name = name if name is not None else f"psq_{uuid.uuid4().hex[:12]}"
        self.create = create
        self.size = size
        self.start = multiprocessing.get_start_method() if start is None else start
        if self.start not in multiprocessing.get_all_start_methods():
            raise ValueError(f"Not a valid start method, {start=}")
        self.sender: bytes | None = None
        self.scrnsend = qset(changed=self._rescreen)
        self.scrntype = qset(changed=self._rescreen)
        self._directory = _names.runtime_directory()
        self._queue: SyncQueue | None = None
        self._keeper: Publisher | None = None
        if create:
            self._keeper = self._created()
        else:
            info(self._topic)  # FileNotFoundError if it does not exist

    @property
    def _topic(self) -> str:
        return "pysyncq/" + escaped(self.name.strip("/"))

    def _created(self) -> Publisher:
        """Keeps the queue until the children have opened it. It is a writer, because writers wait for readers."""
        taken = FileExistsError(f"queue '{self.name}' exists and is in use: create=False joins it")
        try:
            there = info(self._topic)
        except TopicNotFound:
            pass
        else:
            if any(participant.alive for participant in (*there.writers, *there.readers)):
                raise taken
        keeper = Publisher(self._topic, contract="reliable", capacity=self.size, name=_KEEPER)
        if sum(writer.alive and writer.name == _KEEPER for writer in info(self._topic).writers) > 1:
            keeper.close()  # two created it at the same time
            raise taken
        return keeper

    def _rescreen(self) -> None:
        if self._queue is None:
            return
        self._queue._subscriber.ignore_senders = {_text(name) for name in self.scrnsend}
        self._queue._subscriber.ignore_kinds = {_text(name) for name in self.scrntype}

    def open(self, sender: str | None = None, filtself: bool = True) -> None:
        """Register this process: from now on it reads what others append."""
        name = str(os.getpid()) if sender is None else sender
        self.sender = name.encode()
        if filtself:
            self.scrnsend.add(self.sender)
        if self._queue is not None:
            self._queue.close()  # opened before, or inherited from the parent, which stays a participant
        with _names.directory_as(self._directory):
            self._queue = SyncQueue(self._topic, name, ignore_senders=())
        self._rescreen()

    def _opened(self) -> SyncQueue:
        if self._queue is None:
            raise ValueError(f"queue '{self.name}' is not open in this process: call open(sender) first")
        return self._queue

    def append(self, msgtype: object = "", msg: object = "", block: bool = False, timer: float | None = 0.5) -> None:
        """Add a message. `MemoryError` if there is no room: at once, or with `block` after `timer` seconds."""
        try:
            self._opened().append(_text(msgtype), _bytes(msg), block=block, timeout=timer)
        except (Full, MessageTooLarge) as error:
            raise MemoryError(str(error)) from error

    def pop(
        self, block: bool = False, timer: float | None = 0.5, decode: bool = True
    ) -> tuple[str, str, str] | tuple[bytes, bytes, bytes] | None:
        """The next message as (sender, type, body), or None: at once, or with `block` after `timer` seconds."""
        message = self._opened().pop(block=block, timeout=timer)
        if message is None:
            return None
        if decode:
            return message.sender, message.kind, message.text
        return message.sender.encode(), message.kind.encode(), message.data

    def __call__(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Pop until the queue is empty; the arguments are those of `pop`."""
        while (message := self.pop(*args, **kwargs)) is not None:
            yield message

    def __iter__(self) -> Iterator[Any]:
        return self()

    def __str__(self) -> str:
        return f"PySyncQ(name={self.name},size={self.size},sender={(self.sender or b'').decode()})"

    def close(self) -> None:
        """Leave the queue. The last process to leave removes it."""
        if self._queue is not None:
            self._queue.close()
            self._queue = None
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    def __getstate__(self) -> dict[str, Any]:
        kept = ("name", "size", "start", "_directory")
        return {name: getattr(self, name) for name in kept} | {
            "scrnsend": list(self.scrnsend),
            "scrntype": list(self.scrntype),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        with _names.directory_as(state["_directory"]):  # a fork server may have another environment
            self.__init__(state["name"], False, state["size"], state["start"])  # type: ignore[misc]
        self.scrnsend.update(state["scrnsend"])
        self.scrntype.update(state["scrntype"])
