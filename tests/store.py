"""An object store for tests: a real server that speaks S3 (moto), in a process of its own on the loopback, and a door
before it that answers with errors, answers slowly, or is shut, as the test says."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from pyarrow import fs as pafs

SERVER = """
import sys
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def s3_server() -> Iterator[str]:
    """host:port of a server with nothing in it."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as server:  # fmt: skip
        assert server.stdout is not None
        yield f"127.0.0.1:{int(server.stdout.readline())}"
        server.kill()


def make_bucket(endpoint: str, name: str) -> None:
    pafs.S3FileSystem(
        access_key="key", secret_key="secret", endpoint_override=endpoint, scheme="http", region="us-east-1",
        allow_bucket_creation=True,
    ).create_dir(name)  # fmt: skip


def storage_options(endpoint: str) -> dict[str, str]:
    """As `deltalake` takes them."""
    return {
        "AWS_ENDPOINT_URL": f"http://{endpoint}", "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
    }  # fmt: skip


class Door:
    """Forwards connections to a server, or does what the test says instead."""

    def __init__(self, target: str) -> None:
        host, _, port = target.partition(":")
        self._target = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._answer: int | str | None = None
        self._pause_s = 0.0
        self._closed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def fail(self, answer: int | str) -> None:
        """Answer every request with an HTTP status, or with "gone" close every connection."""
        with self._lock:
            self._answer = answer
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._answer, self._pause_s = None, 0.0

    def slow(self, pause_s: float) -> None:
        """Wait so long before each piece of an answer."""
        self._pause_s = pause_s

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            if self._answer is not None:
                self._refuse(connection)
                return
            with socket.create_connection(self._target) as server:
                with self._lock:
                    self._open |= {connection, server}
                try:
                    there = threading.Thread(target=self._pump, args=(connection, server, False), daemon=True)
                    there.start()
                    self._pump(server, connection, True)
                    there.join()
                finally:
                    with self._lock:
                        self._open -= {connection, server}

    def _refuse(self, connection: socket.socket) -> None:
        if self._answer == "gone" or not connection.recv(1 << 16):
            return
        text = f"HTTP/1.1 {self._answer} Trouble\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        connection.sendall(text.encode())

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                if is_answer and self._pause_s:
                    self._closed.wait(self._pause_s)
                sink.sendall(piece)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._listening.close()
        self.fail("gone")
