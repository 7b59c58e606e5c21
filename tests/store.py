"""An object store for tests: a real server that speaks S3 (moto), in a process of its own on the loopback, and a door
before it that answers with errors, answers slowly, or is shut, as the test says."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from pyarrow import fs as pafs

SERVER = """
import sys
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer
from werkzeug.serving import WSGIRequestHandler

log = open(sys.argv[1], "a", buffering=1)
WSGIRequestHandler.log_request = lambda self, code="-", size="-": print(
    self.command, self.path, self.headers.get("Range", "-"), int(code), file=log
)

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
for line in sys.stdin:
    bucket, folder, *numbers = line.split()
    store = s3_backends["123456789012"]["aws"]
    for name in [name for name in store.buckets[bucket].keys if name.startswith(f"{folder}/0/")]:
        data = store.get_object(bucket, name).value
        for number in range(*map(int, numbers)):
            store.put_object(bucket, name.replace("/0/", f"/{number}/"), data)
    print("copied", flush=True)
"""


class Request(NamedTuple):
    """A line of the server's log."""

    method: str
    path: str
    span: str
    status: int

    @property
    def bytes(self) -> int:
        """How many were asked for, 0 where no span was named."""
        first, _, last = self.span.removeprefix("bytes=").partition("-")
        return int(last) - int(first) + 1 if first and last else 0


class RequestLog:
    """What a server of `s3_server` was asked, as it says itself."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def noted(self) -> Iterator[list[Request]]:
        """The list has, afterwards, what was asked within."""
        found: list[Request] = []
        begin = self._path.stat().st_size
        yield found
        for line in self._path.read_text()[begin:].splitlines():
            method, path, span, status = line.split(" ")
            found.append(Request(method, path, span, int(status)))


@contextmanager
def s3_server(log: Path = Path(os.devnull)) -> Iterator[str]:
    """host:port of a server with nothing in it, which writes each request to a file before it answers."""
    with s3_server_with_copies(log) as (endpoint, _):
        yield endpoint


@contextmanager
def s3_server_with_copies(log: Path) -> Iterator[tuple[str, Callable[[str, str, range], None]]]:
    """Such a server, and what copies the files below FOLDER/0 of a bucket to FOLDER/NUMBER, without a request."""

    def copy(bucket: str, folder: str, numbers: range) -> None:
        print(bucket, folder, numbers.start, numbers.stop, file=server.stdin, flush=True)
        assert server.stdout is not None
        assert server.stdout.readline() == "copied\n"

    log.touch()
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVER, str(log)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as server:  # fmt: skip
        assert server.stdout is not None
        yield f"127.0.0.1:{int(server.stdout.readline())}", copy
        server.kill()


def make_bucket(endpoint: str, name: str) -> None:
    pafs.S3FileSystem(
        access_key="key", secret_key="secret", endpoint_override=endpoint, scheme="http", region="us-east-1",
        allow_bucket_creation=True, request_timeout=60, connect_timeout=60,
    ).create_dir(name)  # fmt: skip


def make_container(endpoint: str, name: str) -> None:
    """In Azurite, with the account and key that are the same in all of them."""
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    pafs.AzureFileSystem(
        "devstoreaccount1", account_key=key, blob_storage_authority=endpoint, blob_storage_scheme="http",
        dfs_storage_authority=endpoint, dfs_storage_scheme="http",
    ).create_dir(name)  # fmt: skip


def storage_options(endpoint: str) -> dict[str, str]:
    """As `deltalake` takes them."""
    return {
        "AWS_ENDPOINT_URL": f"http://{endpoint}", "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
    }  # fmt: skip


class Door:
    """Forwards connections to a server, or does what the test says instead. It is a process of its own: a library that
    waits for an answer may keep all of this process' threads from running."""

    def __init__(self, target: str) -> None:
        command = [sys.executable, __file__, target]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = self._answer()

    def fail(self, answer: int | str, times: int = -1) -> None:
        """Answer requests with an HTTP status, or with "gone" close their connections: so many times, or until
        `mend`."""
        self._say(f"fail {answer} {times}")

    def mend(self) -> None:
        self._say("mend")

    def slow(self, pause_s: float) -> None:
        """Wait so long before each piece of an answer."""
        self._say(f"slow {pause_s}")

    def refused(self) -> int:
        """How many requests were refused since the last `fail`."""
        return int(self._say("refused"))

    def _say(self, words: str) -> str:
        assert self._process.stdin is not None
        print(words, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


class _Forwarder:
    """The other process of a Door."""

    def __init__(self, target: str) -> None:
        host, _, port = target.partition(":")
        self._target = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._failing, self._times, self._refused, self._pause_s = "", 0, 0, 0.0
        threading.Thread(target=self._accept, daemon=True).start()

    def serve(self) -> None:
        print(f"127.0.0.1:{self._listening.getsockname()[1]}", flush=True)
        for line in sys.stdin:
            command, *words = line.split()
            print(getattr(self, f"do_{command}")(*words) or "ok", flush=True)

    def do_fail(self, answer: str, times: str) -> None:
        with self._lock:
            self._failing, self._times, self._refused = answer, int(times), 0
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def do_mend(self) -> None:
        self._failing, self._pause_s = "", 0.0

    def do_slow(self, pause_s: str) -> None:
        self._pause_s = float(pause_s)

    def do_refused(self) -> str:
        return str(self._refused)

    def _accept(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            threading.Thread(target=self._connected, args=(connection,), daemon=True).start()

    def _connected(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            with self._lock:
                failing = self._failing
                if failing:
                    self._refused += 1
                    if self._refused == self._times:
                        self._failing = ""
            if failing == "gone" or (failing and not connection.recv(1 << 16)):
                return
            if failing:
                connection.sendall(
                    f"HTTP/1.1 {failing} Trouble\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
                )
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

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                if is_answer and self._pause_s:
                    time.sleep(self._pause_s)
                sink.sendall(piece)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    _Forwarder(sys.argv[1]).serve()
