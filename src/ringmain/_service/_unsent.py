"""`Unsent`: replies that wait in a server's memory, because their clients do not read.

Owns this invariant: a client that does not read takes no more than a bounded part of the server's memory and time. Its
replies wait in order, for at most so long as it waits for them. One that is too much is dropped and counted: first its
payload, so that the client is told, then all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ringmain import _extension

MOST_REPLIES, MOST_BYTES = 65_536, 16 << 20
"""Of one client."""
MOST_BYTES_OF_ALL = 256 << 20
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.001, 0.1
"""How long after a try in vain the next one follows: twice as long each time."""
_TOO_MANY = b"the reply was dropped: this client did not read the ones before it"


class Reply(NamedTuple):
    number: int
    says: _extension.Said
    payload: bytes
    late_s: float | None
    """When no call waits for it any more."""


class Queue:
    """The replies to one client."""

    def __init__(self) -> None:
        self.replies: deque[Reply] = deque()
        self.bytes = 0
        self.pause_s, self.try_at_s = _FIRST_PAUSE_S, 0.0

    def remove(self) -> Reply:
        reply = self.replies.popleft()
        self.bytes -= len(reply.payload)
        return reply


class Unsent:
    """By client."""

    def __init__(self) -> None:
        self._queues: dict[str, Queue] = {}
        self.dropped = 0
        """Replies that no client got, though it lives."""

    def __len__(self) -> int:
        return sum(len(queue.replies) for queue in self._queues.values())

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __contains__(self, client: str) -> bool:
        return client in self._queues

    @property
    def pause_s(self) -> float:
        """How long to do other things before the next try."""
        return min((queue.pause_s for queue in self._queues.values()), default=_LAST_PAUSE_S)

    def add(self, client: str, reply: Reply) -> None:
        queue = self._queues.setdefault(client, Queue())
        if len(queue.replies) >= MOST_REPLIES:
            self.dropped += 1
            return
        all_bytes = sum(each.bytes for each in self._queues.values())
        more = len(reply.payload)
        if queue.bytes + more > MOST_BYTES or all_bytes + more > MOST_BYTES_OF_ALL:
            self.dropped += 1
            reply = reply._replace(says=_extension.of_reply(reply.number, "failed"), payload=_TOO_MANY)
        queue.replies.append(reply)
        queue.bytes += len(reply.payload)

    def send(self, now_s: float, send: Callable[[str, Reply], bool]) -> None:
        """`send` says False if there is no room."""
        for client, queue in list(self._queues.items()):
            if now_s < queue.try_at_s:
                continue
            while queue.replies:
                reply = queue.replies[0]
                if reply.late_s is not None and now_s >= reply.late_s:
                    self.dropped += 1
                elif not send(client, reply):
                    queue.try_at_s = now_s + queue.pause_s
                    queue.pause_s = min(2 * queue.pause_s, _LAST_PAUSE_S)
                    break
                else:
                    queue.pause_s = _FIRST_PAUSE_S
                if self._queues.get(client) is not queue:  # `send` has forgotten the client
                    break
                queue.remove()
            if not queue.replies and self._queues.get(client) is queue:
                del self._queues[client]

    def drop_late(self, now_s: float) -> None:
        """Those in the middle, too."""
        for client, queue in list(self._queues.items()):
            for _ in range(len(queue.replies)):
                reply = queue.remove()
                if reply.late_s is not None and now_s >= reply.late_s:
                    self.dropped += 1
                else:
                    queue.replies.append(reply)
                    queue.bytes += len(reply.payload)
            if not queue.replies:
                del self._queues[client]

    def forget(self, client: str) -> None:
        """It is gone."""
        self._queues.pop(client, None)

    def clear(self) -> None:
        self._queues.clear()
