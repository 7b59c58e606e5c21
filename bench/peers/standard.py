"""What Python and the kernel bring along: multiprocessing's Queue and Pipe, os.pipe, and a UNIX socket.

os.pipe and the stream socket have no messages: they are given the size, which is a gift. None of these has several
receivers that each get everything: where there are, each has one of its own, and the sender fills them in turn.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench import pair
from bench.peers import Peer


class Standard(Peer):
    """One way there and one back; or one a receiver."""

    can_fan_out = True

    def __init__(
        self, directory: str, size: int, spinning: bool | None = None, senders: int = 1, receivers: int = 1
    ) -> None:
        super().__init__(directory, size, spinning, senders, receivers)
        self._ways: list[Any] = [self._way() for _ in range(max(2, receivers))]

    def _way(self) -> Any:
        raise NotImplementedError

    def _sending(self, way: Any) -> pair.Send:
        raise NotImplementedError

    def _receiving(self, way: Any) -> pair.Receive:
        raise NotImplementedError

    @contextmanager
    def sender(self, lane: int, index: int = 0) -> Iterator[pair.Send]:
        if self.receivers == 1:
            yield self._sending(self._ways[lane])
            return
        sends = [self._sending(way) for way in self._ways]

        def send(data: bytes) -> None:
            for one in sends:
                one(data)

        yield send

    @contextmanager
    def receiver(self, lane: int, index: int = 0) -> Iterator[pair.Receive]:
        yield self._receiving(self._ways[index if self.receivers > 1 else lane])


class Queue(Standard):
    name = "multiprocessing.Queue"
    can_fan_in = True

    def _way(self) -> Any:
        # As many as a ring of ringmain's would take, roughly; without a bound the sender would fill the memory.
        room = max(4, min(4096, (1 << 22) // self.size))
        return multiprocessing.get_context("fork").Queue(room)

    def _sending(self, way: Any) -> pair.Send:
        put: pair.Send = way.put
        return put

    def _receiving(self, way: Any) -> pair.Receive:
        get: pair.Receive = way.get
        return get


class Pipe(Standard):
    name = "multiprocessing.Pipe"

    def _way(self) -> Any:
        return multiprocessing.get_context("fork").Pipe(duplex=False)

    def _sending(self, way: Any) -> pair.Send:
        send: pair.Send = way[1].send_bytes
        return send

    def _receiving(self, way: Any) -> pair.Receive:
        receive: pair.Receive = way[0].recv_bytes
        return receive


class OsPipe(Standard):
    name = "os.pipe"
    can_fan_in = True
    fan_in_largest_bytes = 4096
    """PIPE_BUF: what several write at once arrives in one piece up to there."""

    def _way(self) -> Any:
        reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
        return reading, writing

    def _sending(self, way: Any) -> pair.Send:
        fd, write = way[1], os.write

        def send(data: bytes) -> None:
            done = write(fd, data)
            while done < len(data):
                done += write(fd, memoryview(data)[done:])

        return send

    def _receiving(self, way: Any) -> pair.Receive:
        fd, size, read, readv = way[0], self.size, os.read, os.readv
        view = memoryview(bytearray(size))

        def receive() -> memoryview:
            done = 0
            while done < size:
                done += readv(fd, [view[done:]])
            return view

        # Up to PIPE_BUF a write is whole or not there, so one read is enough.
        return (lambda: read(fd, size)) if size <= 4096 else receive

    def __del__(self) -> None:
        for way in self._ways:
            for fd in way:
                os.close(fd)


class UnixSocket(Standard):
    """Packets where they fit in the socket's buffer, else a stream."""

    name = "UNIX socket"
    can_fan_in = True

    def _way(self) -> Any:
        kind = socket.SOCK_SEQPACKET if self.size <= 65536 else socket.SOCK_STREAM
        return socket.socketpair(socket.AF_UNIX, kind)

    def _sending(self, way: Any) -> pair.Send:
        send: pair.Send = way[0].send if self.size <= 65536 else way[0].sendall
        return send

    def _receiving(self, way: Any) -> pair.Receive:
        end, size = way[1], self.size
        buffer = bytearray(size if size > 65536 else 0)

        def receive() -> bytearray:
            done, view = 0, memoryview(buffer)
            while done < size:
                done += end.recv_into(view[done:])
            return buffer

        return (lambda: end.recv(size)) if size <= 65536 else receive

    def __del__(self) -> None:
        for way in self._ways:
            for one in way:
                one.close()


PEERS: list[type[Peer]] = [Queue, Pipe, OsPipe, UnixSocket]
