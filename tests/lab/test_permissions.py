"""Who may do what: real users, real permissions.

How: root forks children that become other users. A stranger can neither open, read, remove nor wedge a topic of the
owner alone; with `mode=` and a shared directory a group can use it; files that another user planted are refused; and a
reader's view of the messages cannot be written, whatever it tries.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import pickle
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ringmain as rm

OWNER, FRIEND, STRANGER = 61001, 61002, 61003
GROUP = 61500

pytestmark = pytest.mark.privileged


def as_user(uid: int, action: Callable[[], Any], groups: tuple[int, ...] = ()) -> Any:
    """What the action returns, or the exception it raises, when this user does it in a process of its own."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups(groups)
            os.setgid(uid)
            os.setuid(uid)
            try:
                outcome: Any = action()
            except Exception as error:
                outcome = (type(error), str(error))
            os.write(writer, pickle.dumps(outcome))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"ended with {status}"
    return pickle.loads(said)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory of OWNER that every user may list and its group may write."""
    path = Path(tempfile.mkdtemp(prefix="ringmain-test-", dir="/dev/shm"))
    os.chown(path, OWNER, GROUP)
    os.chmod(path, 0o2775)
    monkeypatch.setenv("RINGMAIN_DIR", str(path))
    yield path
    for file in path.iterdir():
        file.unlink()
    path.rmdir()


def make_topic(mode: int) -> None:
    with rm.Publisher("t", contract="bus", capacity=4096, mode=mode, persist=True) as pub:
        pub.send(b"secret")


def publish() -> None:
    with rm.Publisher("t", contract="bus") as pub:
        pub.send(b"from a friend")


def receive() -> bytes:
    with rm.Subscriber("t", start="oldest") as sub:
        return sub.recv(timeout=5)


def lock_roster(flags: int) -> None:
    import fcntl

    with open(Path(os.environ["RINGMAIN_DIR"]) / "t.ring", "r+b" if flags else "rb") as file:
        fcntl.lockf(file, fcntl.LOCK_EX if flags else fcntl.LOCK_SH)


@pytest.mark.parametrize(
    "action",
    [
        receive,
        publish,
        lambda: rm.info("t"),
        lambda: rm.unlink("t", force=True),
        lambda: (Path(os.environ["RINGMAIN_DIR"]) / "t.ring").unlink(),
        lambda: (Path(os.environ["RINGMAIN_DIR"]) / "t.ring").read_bytes(),
        lambda: os.truncate(Path(os.environ["RINGMAIN_DIR"]) / "t.ring", 0),
        lambda: lock_roster(1),
        lambda: lock_roster(0),
    ],
    ids=["receive", "publish", "inspect", "unlink", "remove the file", "read the file", "truncate", "lock",
         "share a lock"],
)  # fmt: skip
def test_a_stranger_can_do_nothing_to_what_is_not_shared(shared: Path, action: Callable[[], Any]) -> None:
    as_user(OWNER, lambda: make_topic(0o600), (GROUP,))
    kind, text = as_user(STRANGER, action)
    assert issubclass(kind, PermissionError), text
    assert as_user(OWNER, receive, (GROUP,)) == b"secret"


def test_a_group_can_use_what_is_shared_with_it(shared: Path) -> None:
    as_user(OWNER, lambda: make_topic(0o660), (GROUP,))
    assert as_user(FRIEND, receive, (GROUP,)) == b"secret"
    assert as_user(FRIEND, publish, (GROUP,)) is None
    assert as_user(OWNER, lambda: rm.info("t").next_sequence, (GROUP,)) == 2
    kind, _ = as_user(STRANGER, receive)
    assert kind is rm.NotAllowed


def test_who_may_only_read_the_file_may_only_look(shared: Path) -> None:
    as_user(OWNER, lambda: make_topic(0o644), (GROUP,))
    assert as_user(STRANGER, lambda: rm.info("t").next_sequence) == 1
    for action in (receive, publish):
        kind, _ = as_user(STRANGER, action)
        assert kind is rm.NotAllowed


def test_a_planted_file_of_another_user_is_refused(shared: Path) -> None:
    os.chown(shared, 0, 0)
    os.chmod(shared, 0o1777)  # like /dev/shm itself
    as_user(STRANGER, lambda: make_topic(0o666))
    for uid in (OWNER, 0):
        kind, text = as_user(uid, receive)
        assert kind is rm.NotAllowed
        assert str(STRANGER) in text


def test_a_planted_link_is_refused(shared: Path) -> None:
    as_user(OWNER, lambda: make_topic(0o600), (GROUP,))
    (shared / "link.ring").symlink_to(shared / "t.ring")
    kind, text = as_user(OWNER, lambda: rm.Subscriber("link"), (GROUP,))
    assert kind is rm.NotAllowed
    assert "link" in text


def test_a_runtime_directory_that_is_a_link_or_open_to_all_is_refused(
    shared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    os.chmod(shared, 0o777)
    with pytest.raises(rm.NotAllowed, match="writable by every user"):
        rm.Publisher("t")
    (tmp_path / "link").symlink_to(shared)
    monkeypatch.setenv("RINGMAIN_DIR", str(tmp_path / "link"))
    with pytest.raises(rm.NotAllowed, match="link"):
        rm.Publisher("t")


def test_a_reader_cannot_write_into_the_messages(runtime_dir: Path) -> None:
    with rm.Publisher("t", contract="bus", capacity=4096) as pub:
        pid = os.fork()
        if pid == 0:
            with rm.Subscriber("t") as sub:
                faulthandler.disable()
                message = sub.borrow(timeout=10)
                if not message.data.readonly:
                    os._exit(1)
                ctypes.memset(_address_of(message.data), 0, 1)  # the mapping says no
            os._exit(2)
        pub.wait_for_readers(1, timeout=30)
        pub.send(b"do not touch")
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGSEGV


def _address_of(view: memoryview) -> int:
    import numpy

    address: int = numpy.frombuffer(view, "u1").ctypes.data
    return address
