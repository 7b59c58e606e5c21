"""What Python and the kernel bring along: multiprocessing's Queue and Pipe, os.pipe, and a UNIX socket.

os.pipe and the stream socket have no messages: they are given the size, which is a gift.
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

LANES = 2


class Queue(Peer):
    name = "multiprocessing.Queue"

    def __init__(self, directory: str, size: int, spinning: bool | None = None) -> None:
        super().__init__(directory, size, spinning)
        # As many as a ring of ringmain's would take, roughly; without a bound the sender would fill the memory.
        room = max(4, min(4096, (1 << 22) // size))
        self._queues: list[Any] = [multiprocessing.get_context("fork").Queue(room) for _ in range(LANES)]

    @contextmanager
    def sender(self, lane: int) -> Iterator[pair.Send]:
        yield self._queues[lane].put

    @contextmanager
    def receiver(self, lane: int) -> Iterator[pair.Receive]:
        yield self._queues[lane].get


class Pipe(Peer):
    name = "multiprocessing.Pipe"

    def __init__(self, directory: str, size: int, spinning: bool | None = None) -> None:
        super().__init__(directory, size, spinning)
        self._ends = [multiprocessing.get_context("fork").Pipe(duplex=False) for _ in range(LANES)]

    @contextmanager
    def sender(self, lane: int) -> Iterator[pair.Send]:
        yield self._ends[lane][1].send_bytes

    @contextmanager
    def receiver(self, lane: int) -> Iterator[pair.Receive]:
        yield self._ends[lane][0].recv_bytes


class OsPipe(Peer):
    name = "os.pipe"

    def __init__(self, directory: str, size: int, spinning: bool | None = None) -> None:
        super().__init__(directory, size, spinning)
        self._ends = [os.pipe() for _ in range(LANES)]
        for _, writing in self._ends:
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)

    @contextmanager
    def sender(self, lane: int) -> Iterator[pair.Send]:
        fd, write = self._ends[lane][1], os.write

        def send(data: bytes) -> None:
            done = write(fd, data)
            while done < len(data):
                done += write(fd, memoryview(data)[done:])

        yield send

    @contextmanager
    def receiver(self, lane: int) -> Iterator[pair.Receive]:
        fd, size, read, readv = self._ends[lane][0], self.size, os.read, os.readv
        view = memoryview(bytearray(size))

        def receive() -> memoryview:
            done = 0
            while done < size:
                done += readv(fd, [view[done:]])
            return view

        # Up to PIPE_BUF a write is whole or not there, so one read is enough.
        yield (lambda: read(fd, size)) if size <= 4096 else receive

    def __del__(self) -> None:
        for end in self._ends:
            for fd in end:
                os.close(fd)


class UnixSocket(Peer):
    """Packets where they fit in the socket's buffer, else a stream."""

    name = "UNIX socket"

    def __init__(self, directory: str, size: int, spinning: bool | None = None) -> None:
        super().__init__(directory, size, spinning)
        kind = socket.SOCK_SEQPACKET if size <= 65536 else socket.SOCK_STREAM
        self._ends = [socket.socketpair(socket.AF_UNIX, kind) for _ in range(LANES)]

    @contextmanager
    def sender(self, lane: int) -> Iterator[pair.Send]:
        end = self._ends[lane][0]
        yield end.send if self.size <= 65536 else end.sendall

    @contextmanager
    def receiver(self, lane: int) -> Iterator[pair.Receive]:
        end, size = self._ends[lane][1], self.size
        buffer = bytearray(size if size > 65536 else 0)

        def receive() -> bytearray:
            done, view = 0, memoryview(buffer)
            while done < size:
                done += end.recv_into(view[done:])
            return buffer

        yield (lambda: end.recv(size)) if size <= 65536 else receive

    def __del__(self) -> None:
        for end in self._ends:
            for one in end:
                one.close()


PEERS: list[type[Peer]] = [Queue, Pipe, OsPipe, UnixSocket]
