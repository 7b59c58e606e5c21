"""What a container is, as far as topics are concerned: a process in namespaces of its own, perhaps with another user.

The process that becomes the container calls `enter`. A mount namespace has a /dev/shm of its own, with Docker's 64 MiB,
and in it the runtime directory of the host, mounted under another path.
"""

from __future__ import annotations

import ctypes
import os
import signal

FLAGS = {"pid": 0x20000000, "user": 0x10000000, "ipc": 0x08000000, "mount": 0x00020000}
MS_BIND, MS_PRIVATE_ALL = 0x1000, 0x44000
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def enter(namespaces: str, user: int | None = None, group: int | None = None) -> None:
    """Goes on in new namespaces ("pid,mount", ...), as this user. Raises OSError where the system does not allow it."""
    wanted = [name for name in namespaces.split(",") if name]
    if "user" in wanted:
        _become(user, group)
        uid, gid = os.geteuid(), os.getegid()
        _unshare(["user"])
        for file, line in (("uid_map", f"0 {uid} 1"), ("setgroups", "deny"), ("gid_map", f"0 {gid} 1")):
            _write(f"/proc/self/{file}", line)
    _unshare([name for name in wanted if name != "user"])
    if "pid" in wanted:
        _go_on_in_a_child()
    if "mount" in wanted:
        _mount(with_proc="pid" in wanted)
    if "user" not in wanted:
        _become(user, group)
    _call(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")


def _become(user: int | None, group: int | None) -> None:
    if user is not None and group is not None:
        os.setgroups([group])
        os.setgid(user)
        os.setuid(user)
        _call(_libc.prctl(4, 1), "prctl")  # PR_SET_DUMPABLE: /proc/self belongs to the new user, as after an exec


def _go_on_in_a_child() -> None:
    """Only children are in the new pid namespace. The parent waits, and the child dies when the parent is killed."""
    child = os.fork()
    if child:
        os.close(0)
        os.close(1)
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _mount(with_proc: bool) -> None:
    source = os.open(os.environ["RINGMAIN_DIR"], os.O_PATH)
    inside = "/dev/shm/topics"
    _call(_libc.mount(None, b"/", None, MS_PRIVATE_ALL, None), "make the mounts private")
    _call(_libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=64m,mode=1777"), "mount /dev/shm")
    os.mkdir(inside)
    _call(_libc.mount(f"/proc/self/fd/{source}".encode(), inside.encode(), None, MS_BIND, None), "bind the directory")
    if with_proc:
        _call(_libc.mount(b"proc", b"/proc", b"proc", 0, None), "mount /proc")
    os.close(source)
    os.environ["RINGMAIN_DIR"] = inside


def _unshare(names: list[str]) -> None:
    _call(_libc.unshare(sum(FLAGS[name] for name in names)), f"unshare {','.join(names)}")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _call(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
