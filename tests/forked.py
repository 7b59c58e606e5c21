"""Python programs in processes of their own, without the half second in which an interpreter imports ringmain and
pyarrow: they are forked off one that has. They are children of this process all the same, with its streams and folder.

For tests about what a program does, not about how it starts. One that asks for what an interpreter reads when it starts
(PYTHONPATH, another build, a preload) gets an interpreter of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IMPORTED = ("ringmain._cli.main", "ringmain.recording", "ringmain.pipeline", "pyarrow.parquet", "pyarrow.dataset")
READ_AT_START = ("PYTHON", "LD_", "LANG", "LC_", "RINGMAIN_LAB", "ASAN_OPTIONS")
SERVE = "from tests.forked import serve\nexec(serve({}))"
PR_SET_CHILD_SUBREAPER = 36

_prctl = ctypes.CDLL(None).prctl
_lock = threading.Lock()
_server: socket.socket | None = None
_started_with: dict[str, str] = {}


def _end(server: socket.socket, process: subprocess.Popen[bytes], here: int) -> None:
    server.close()
    if os.getpid() == here:
        process.kill()
        process.wait()


def _of_start(environment: Any) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


def _ask(request: dict[str, Any], streams: list[int]) -> int:
    """The process that runs it. Those who are between it and us are gone when this returns, so that it is our child."""
    global _server, _started_with
    with _lock:
        if _server is None:
            _server, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            _started_with = _of_start(os.environ)
            with there:
                process = subprocess.Popen(
                    [sys.executable, "-c", SERVE.format(there.fileno())],
                    cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[there.fileno()],
                )  # fmt: skip
            atexit.register(_end, _server, process, os.getpid())
        with open(os.memfd_create("request"), "w+b") as file:
            file.write(json.dumps(request).encode())
            file.flush()
            _prctl(PR_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(_server, [b"run"], [*streams, file.fileno()])
                return int(_server.recv(64))
            finally:
                _prctl(PR_SET_CHILD_SUBREAPER, 0)


def serve(number: int) -> Any:
    """Forks a process for each request; what this returns there is what it shall run."""
    asked = socket.socket(fileno=number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all of its group
    for module in IMPORTED:
        import_module(module)
    gc.freeze()
    while True:
        _, given, _, _ = socket.recv_fds(asked, 16, 4)
        if not given:
            os._exit(0)
        ours, theirs = os.pipe()
        if (between := os.fork()) == 0:
            between = os.getpid()
            if (pid := os.fork()) != 0:
                os.write(theirs, b"%d" % pid)
                os._exit(0)
            asked.close()
            os.close(ours)
            os.close(theirs)
            while os.getppid() == between:
                os.sched_yield()
            return _begin(given)
        os.close(theirs)
        os.waitpid(between, 0)
        answer = os.read(ours, 64)
        for one in (ours, *given):
            os.close(one)
        asked.send(answer)


def _begin(given: list[int]) -> Any:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    *streams, number = given
    for at, stream in enumerate(streams):
        os.dup2(stream, at)
    with open(number, "rb") as file:
        file.seek(0)
        request = json.loads(file.read())
    for stream in streams:
        os.close(stream)
    os.chdir(request["cwd"])
    if request["new_session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    from ringmain import _crash

    _crash.arm(os.environ.get("RINGMAIN_CRASH"))
    how, what, *words = request["words"]
    sys.argv = ["-c" if how == "-c" else what, *words]
    if how == "-c":
        return compile(what, "<string>", "exec")
    return f"import runpy; runpy.run_module({what!r}, run_name='__main__', alter_sys=True)"


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen([sys.executable, "-c" or "-m", ...])`."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        _, preexec, _, pass_fds, cwd, env, _, _, shell, *pipes = rest
        (p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite), others = pipes[:6], pipes[6:]
        environment = dict(os.environ if env is None else env)
        alike = _of_start(environment) == (_started_with if _server else _of_start(os.environ))
        words = args if isinstance(args, str) else [os.fspath(word) for word in args]
        if shell or preexec or pass_fds or not alike or words[0] != sys.executable or words[1] not in ("-c", "-m"):
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        streams = [at if own == -1 else own for at, own in enumerate((p2cread, c2pwrite, errwrite))]
        request = {"words": words[1:], "environment": environment, "cwd": str(cwd or Path.cwd())}
        request["new_session"] = bool(others[5])
        try:
            self.pid = _ask(request, streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


def run(
    args: list[Any],
    *,
    capture_output: bool = False,
    input: Any = None,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run`."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(args, **options) as process:
        try:
            out, errors = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    ended = subprocess.CompletedProcess(args, process.returncode, out, errors)
    if check:
        ended.check_returncode()
    return ended
