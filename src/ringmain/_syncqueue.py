"""`SyncQueue`: members with names, each of which sends to and receives from all others. pysyncq's queue, on `reliable`.

A member is a writer and a reader of one topic. pysyncq counts the reads that remain in each message; here the smallest
hold of the readers takes that part. It can be repaired: a member that dies is noticed, and blocks no other.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ringmain import _names
from ringmain._closing import Closing
from ringmain._inspect import info
from ringmain._message import Message
from ringmain._publisher import Publisher
from ringmain._screens import ScreenSet
from ringmain._subscriber import Subscriber, wait
from ringmain.errors import Full

_SLICE_S = 0.1
"""How long `append` waits before it checks again whether it waits for itself."""


class SyncQueue(Closing):
    """A member of a queue. Other threads and processes, related or not, join it by its name. Every message has a
    sender, a kind and a body, and every member receives the messages sent after it joined.

    sender: this member's name.   capacity, max_participants: of the topic, if it is created; each member takes two
    slots.
    ignore_senders: whose messages to skip; by default its own.   ignore_kinds: which kinds to skip.
    """

    def __init__(
        self,
        name: str,
        sender: str,
        *,
        capacity: int | str | None = None,
        max_participants: int | None = None,
        ignore_senders: Iterable[str] | None = None,
        ignore_kinds: Iterable[str] = (),
    ) -> None:
        if not sender:
            raise ValueError("a member of a queue needs a name: SyncQueue(name, sender=...)")
        self.name = name
        self.sender = sender
        self._reader_thread = threading.current_thread()  # the one that popped last
        ignored = {sender} if ignore_senders is None else ignore_senders
        self._publisher = Publisher(
            name, contract="reliable", capacity=capacity, sender=sender, max_participants=max_participants
        )
        try:
            self._subscriber = Subscriber(
                name, ignore_senders=ignored, ignore_kinds=ignore_kinds, name=_names.participant_name(None, sender)
            )
        except BaseException:
            self._publisher.close()
            raise

    def append(self, kind: str, body: str | Any, block: bool = False, timeout: float | None = None) -> int:
        """Send a message to all other members; returns its serial number. `Full` when there is no room: at once, or
        with `block` when the time is up, naming the member that is furthest behind. If that is this member itself, also
        at once: it would wait for itself."""
        data = body.encode() if isinstance(body, str) else body
        deadline_s = time.monotonic() + (0.0 if not block else float("inf") if timeout is None else timeout)
        wait_s, unread = 0.0, False
        while True:
            try:
                return self._publisher.send(data, kind, wait_s)
            except Full as full:
                if unread and block and self._is_waiting_for_itself(full):
                    raise Full(
                        f"queue '{self.name}' is full of messages that '{self.sender}' itself has not read: call pop() "
                        "before append()",
                        topic=full.topic,
                        participants=full.participants,
                    ) from None
                # The ring may be full of messages that this member ignores, such as its own: skip them.
                unread = bool(wait([self._subscriber], 0))
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    break
                wait_s = min(left_s, _SLICE_S)
        try:
            return self._publisher.send(data, kind, 0)
        except Full as full:
            full.timeout = timeout if block else 0
            raise

    def _is_waiting_for_itself(self, full: Full) -> bool:
        """Does this member's own reader block it, and does no other thread read for it? Then that does not change."""
        if self._reader_thread is not threading.current_thread() and self._reader_thread.is_alive():
            return False
        return ("reader", _names.participant_name(None, self.sender), os.getpid()) in full.participants

    def pop(self, block: bool = False, timeout: float | None = None) -> Message | None:
        """The next message, or None: at once, or with `block` when the time is up."""
        self._reader_thread = threading.current_thread()
        if block and not wait([self._subscriber], timeout):
            return None
        message = self._subscriber.try_recv_message()
        return None if message is None else msgspec.structs.replace(message, topic=self.name)

    def __iter__(self) -> Iterator[Message]:
        """The messages that are there now."""
        while (message := self.pop()) is not None:
            yield message

    @property
    def ignore_senders(self) -> ScreenSet:
        """Senders whose messages are skipped. Change it as any set."""
        return self._subscriber.ignore_senders

    @property
    def ignore_kinds(self) -> ScreenSet:
        """Kinds of messages that are skipped. Change it as any set."""
        return self._subscriber.ignore_kinds

    @property
    def members(self) -> int:
        """How many members there are, this one included. Dead processes do not count."""
        return sum(reader.alive and reader.role == "reader" for reader in info(self.name).readers)

    @property
    def serial(self) -> int:
        """The serial number of the next message."""
        return self._publisher.next_sequence

    def member(self, sender: str) -> SyncQueue:
        """Another member of the same queue, for another thread or a forked child."""
        return type(self)(self.name, sender, ignore_kinds=set(self.ignore_kinds))

    @property
    def closed(self) -> bool:
        return self._publisher.closed and self._subscriber.closed

    def close(self) -> None:
        """Leave the queue. The last member to leave removes it."""
        self._subscriber.close()
        self._publisher.close()

    def __repr__(self) -> str:
        return f"<ringmain.SyncQueue '{self.name}' of '{self.sender}'{' closed' if self.closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        directory = self._publisher._directory
        screens = (set(self.ignore_senders), set(self.ignore_kinds))
        return _rebuild, (type(self), directory, self.name, self.sender, *screens)


def _rebuild(
    cls: type[SyncQueue], directory: str, name: str, sender: str, senders: set[str], kinds: set[str]
) -> SyncQueue:
    with _names.directory_as(directory):
        return cls(name, sender, ignore_senders=senders, ignore_kinds=kinds)
