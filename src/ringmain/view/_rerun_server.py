"""Rerun's own program, as a process beside this one: it serves the page, and keeps what it is sent for those who open
the page later.

Not the servers inside Rerun's SDK: those listen on every address of the machine, and the program's can be told. A
process of its own also means that a slow browser, or a server that dies, costs this one nothing.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse
from pathlib import Path
from typing import Self

from ringmain.errors import RingmainError

_PATIENCE_S = 30.0
_PR_SET_PDEATHSIG = 1


class ViewerFailed(RingmainError):
    """The viewer cannot be started, or ended by itself."""


class RerunServer:
    """Serves the page on `port` and takes data on the port after it; 0: any two ports."""

    def __init__(self, address: str, port: int, memory: str = "1GiB") -> None:
        self._address = address
        self.port = port or _free_port(address)
        self._data_port = port + 1 if port else _free_port(address, besides=self.port)
        for each in (self.port, self._data_port):
            check_free(address, each)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 -- close() does
        self._process = subprocess.Popen(
            [
                _program(), "--serve-web", "--bind", address, "--port", str(self._data_port),
                "--web-viewer-port", str(self.port), "--server-memory-limit", memory,
                "--cors-allow-origin", f"http://*:{self.port}",
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._said,
            start_new_session=True,  # Ctrl-C is for this process, which then ends that one
            preexec_fn=_die_with_parent,
            env={**os.environ, "CI": "1", "RUST_LOG": "error"},  # as in CI, it reports no usage to its makers
        )  # fmt: skip
        try:
            self._wait_until_it_listens()
        except BaseException:
            self.close()
            raise

    @property
    def data_url(self) -> str:
        """Where a recording stream sends to."""
        return f"rerun+http://{_dialled(self._address)}:{self._data_port}/proxy"

    @property
    def page_url(self) -> str:
        """To be opened in a browser."""
        return f"http://{_dialled(self._address)}:{self.port}/?url={urllib.parse.quote(self.data_url, safe='')}"

    def check(self) -> None:
        """Raises `ViewerFailed` if it has ended."""
        if (code := self._process.poll()) is not None:
            self._said.seek(0)
            last = self._said.read().decode(errors="replace").strip().splitlines()[-1:]
            raise ViewerFailed(f"Rerun's server ended with {code}{''.join(f': {line}' for line in last)}")

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _wait_until_it_listens(self) -> None:
        end_s = time.monotonic() + _PATIENCE_S
        for port in (self.port, self._data_port):
            while True:
                self.check()
                try:
                    socket.create_connection((_dialled(self._address).strip("[]"), port), 1.0).close()
                    break
                except OSError:
                    if time.monotonic() > end_s:
                        raise ViewerFailed(f"Rerun's server does not listen on port {port}") from None
                    time.sleep(0.05)


def check_free(address: str, port: int) -> None:
    """Raises `ViewerFailed` if the port cannot be listened on."""
    try:
        _listen(address, port).close()
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else "ports are numbers up to 65535"
        raise ViewerFailed(f"port {port} of {address} cannot be used ({why}); choose another with --port") from None


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
    except BaseException:
        made.close()
        raise
    return made


def _free_port(address: str, besides: int = 0) -> int:
    while True:
        try:
            with _listen(address, 0) as made:
                port: int = made.getsockname()[1]
        except OSError as error:
            raise ViewerFailed(f"address {address} cannot be listened on ({error.strerror})") from None
        if port != besides:
            return port


def _dialled(address: str) -> str:
    """How this machine reaches what listens on an address."""
    if address in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{address}]" if ":" in address else address


def _program() -> str:
    package = importlib.util.find_spec("rerun_cli")
    path = Path(package.origin).with_name("rerun") if package is not None and package.origin else Path("rerun")
    if not path.exists():
        raise ViewerFailed(f"Rerun's program is not at {path}: install rerun-sdk again")
    return str(path)


def _die_with_parent() -> None:
    """However this process ends, that one does, too."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
