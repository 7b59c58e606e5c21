"""Names, files, permissions: what may be a topic's name, and what is refused before a byte of it is used.

Files are damaged on purpose, one field at a time, at the offsets that the binding exports. What needs another user or a
small file system needs root, and is skipped otherwise.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest

import ringmain as rm
from ringmain._native import LAYOUT

needs_root = pytest.mark.privileged


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "a/b/c", ".hidden", "a..b", "...", "x" * 200, "-", "_/-/."[:3]])
def test_these_are_names(name):
    with rm.Publisher(name, capacity=4096) as pub, rm.Subscriber(name) as sub:
        pub.send(b"x")
        assert sub.recv(timeout=0) == b"x"
        assert [topic.name for topic in rm.topics()] == [name]


@pytest.mark.parametrize(
    "name",
    ["", "/", "a/", "/a", "a//b", ".", "..", "a/../b", "a/.", "a b", "a+b", "ä", "a\n", "a\0b", "x" * 201, "a\\b"],
)
def test_these_are_not_and_the_error_tells_the_rule(name):
    for call in (rm.Publisher, rm.Subscriber, rm.info, rm.unlink):
        with pytest.raises(ValueError, match=r"letters, digits, .*200 characters"):
            call(name)


def test_a_name_is_a_str():
    for bad in (None, 7, b"x"):
        with pytest.raises(TypeError, match="a str"):
            rm.Publisher(bad)


def test_names_that_look_alike_are_different_topics():
    with rm.Publisher("a/b") as one, rm.Publisher("a.b") as two, rm.Publisher("a") as three:
        with rm.Subscriber("a/b") as sub:
            two.send(b"no")
            three.send(b"no")
            one.send(b"yes")
            assert sub.recv_many(9) == [b"yes"]


def test_directory_0700_files_0600_and_mode_for_more(monkeypatch, runtime_dir):
    fresh = runtime_dir / "made"
    monkeypatch.setenv("RINGMAIN_DIR", str(fresh))
    old = os.umask(0o077)
    try:
        with rm.Publisher("x"), rm.Publisher("y", mode=0o660):
            assert stat.S_IMODE(fresh.stat().st_mode) == 0o700
            assert stat.S_IMODE((fresh / "x.ring").stat().st_mode) == 0o600
            assert stat.S_IMODE((fresh / "y.ring").stat().st_mode) == 0o660
    finally:
        os.umask(old)
    for bad in (-1, 0o1777, 0o400, 0):
        with pytest.raises(ValueError, match="mode"):
            rm.Publisher("z", mode=bad)


def every_way(name="x"):
    return [lambda: rm.Publisher(name), lambda: rm.Subscriber(name), lambda: rm.info(name)]


def test_a_symlink_is_refused(runtime_dir):
    with rm.Publisher("real"):
        (runtime_dir / "x.ring").symlink_to("real.ring")
        for call in every_way():
            with pytest.raises(PermissionError, match="symbolic link"):
                call()
        (runtime_dir / "x.ring").unlink()


def test_a_directory_that_is_a_link_is_refused(monkeypatch, runtime_dir):
    (runtime_dir / "link").symlink_to(".")
    monkeypatch.setenv("RINGMAIN_DIR", str(runtime_dir / "link"))
    for call in every_way()[:2]:
        with pytest.raises(PermissionError, match="link"):
            call()


def test_a_directory_that_every_user_may_write_is_refused(monkeypatch, runtime_dir):
    runtime_dir.chmod(0o777)
    for call in every_way():
        with pytest.raises(PermissionError, match="every user"):
            call()
    runtime_dir.chmod(0o700)


def test_what_is_not_a_file_is_refused(runtime_dir):
    os.mkfifo(runtime_dir / "x.ring")
    for call in every_way():
        with pytest.raises(PermissionError, match="regular file"):
            call()
    (runtime_dir / "x.ring").unlink()


def damaged(runtime_dir: Path, change) -> None:
    """A healthy topic that persists, with something changed in its file."""
    rm.Publisher("x", persist=True, capacity=4096).close()
    path = runtime_dir / "x.ring"
    data = bytearray(path.read_bytes())
    path.write_bytes(change(data) or data)


def put(field, value, size=4):
    def change(data):
        at = LAYOUT[f"Header.{field}"]
        data[at : at + size] = value.to_bytes(size, "little")

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data[:0] or b"\0", "too short"),
        (lambda data: data[:100], "too short"),
        (lambda data: data[:-4096], "the header says"),
        (lambda data: data + b"x", "the header says"),
        (put("magic", 7, 8), "magic"),
        (lambda data: os.urandom(len(data)), "magic"),
        (put("version", 1), "version 1"),
        (put("version", 2), "version 2"),
        (put("version", 99), "version 99"),
        (put("contract", 9), "contract"),
        (put("capacity_bytes", 4095, 8), "capacity"),
        (put("capacity_bytes", 1 << 50, 8), "capacity"),
        (put("capacity_bytes", 8192, 8), "the header says"),
        (put("data_offset", 4096, 8), "offsets"),
        (put("data_offset", (1 << 64) - 4096, 8), "offsets"),
        (put("schema_offset", 0, 8), "offsets"),
        (put("schema_capacity_bytes", 1 << 60, 8), "offsets"),
        (put("slot_count", 3), "offsets"),
        (put("slot_count", 0), "slots"),
        (put("slot_count", 4097), "slots"),
        (put("name", int.from_bytes(b"other", "little"), 8), "another topic"),
    ],
    ids=[
        "empty", "short", "truncated", "longer", "magic", "random", "version 1", "version 2", "version 99", "contract",
        "odd capacity",
        "huge capacity", "larger capacity", "data offset", "data offset that wraps", "schema offset",
        "schema capacity", "slots", "no slots", "too many slots", "name",
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_with_a_sentence_that_says_which(runtime_dir, change, says):
    damaged(runtime_dir, change)
    for call in every_way():
        with pytest.raises(rm.Corrupt, match=f"topic 'x'.*{says}"):
            call()
    assert rm.topics() == []
    assert rm.clean() == []
    (runtime_dir / "x.ring").unlink()


def test_readers_map_the_data_read_only(child):
    there = child("pub = rm.Publisher('x', capacity=4096); say('made'); hear(); pub.close()")
    assert there.line() == "made"
    with rm.Subscriber("x"):
        maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "x.ring" in line]
        data = [line[1] for line in maps if int(line[2], 16) >= LAYOUT["schema_offset"]]
        assert data.count("r--s") == 2
        assert not [protection for protection in data if "w" in protection]
    there.tell()
    there.finish()


AS_NOBODY = """
    os.setgroups([]); os.setgid(54321); os.setuid(54321)
    os.environ["RINGMAIN_DIR"] = sys.argv[1]
    try:
        {what}
    except PermissionError as error:
        say("refused:", error)
    else:
        say("let in")
"""


@needs_root
def test_another_users_files_are_refused(child, runtime_dir):
    """The runtime directory may be shared; a file in it must be ours, root's, or the directory's owner's."""
    rm.Publisher("x", persist=True, mode=0o666).close()
    runtime_dir.chmod(0o755)
    os.chown(runtime_dir / "x.ring", 11111, 11111)
    said = child(AS_NOBODY.format(what="rm.Subscriber('x').close()"), runtime_dir).finish()
    assert "belongs to user 11111" in said[0]
    with pytest.raises(PermissionError, match="belongs to user 11111"):
        rm.Publisher("x")
    os.chown(runtime_dir / "x.ring", 0, 0)
    assert child(AS_NOBODY.format(what="rm.Subscriber('x').close()"), runtime_dir).finish() == ["let in"]
    (runtime_dir / "x.ring").chmod(0o600)
    assert child(AS_NOBODY.format(what="rm.Subscriber('x')"), runtime_dir).finish()[0].startswith("refused")
    runtime_dir.chmod(0o700)
    assert child(AS_NOBODY.format(what="rm.Subscriber('x')"), runtime_dir).finish()[0].startswith("refused")
    rm.unlink("x")


@needs_root
def test_the_default_directory_must_be_ones_own(child):
    """All users can write to /dev/shm: a directory of this user's name that another user made is not trusted."""
    planted = Path("/dev/shm/ringmain-54321")
    planted.mkdir(mode=0o755)
    try:
        os.chown(planted, 11111, 11111)
        script = AS_NOBODY.replace('os.environ["RINGMAIN_DIR"] = sys.argv[1]', 'os.environ.pop("RINGMAIN_DIR")')
        said = child(script.format(what="rm.Subscriber('x')"), "").finish()
        assert "belongs to user 11111, not to you" in said[0]
    finally:
        planted.rmdir()


@needs_root
def test_a_full_file_system_is_an_error_at_once_and_no_sigbus_later(monkeypatch, tmp_path, child):
    if (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], capture_output=True).returncode
        != 0
    ):
        pytest.skip("mounting is not allowed here")
    try:
        monkeypatch.setenv("RINGMAIN_DIR", str(tmp_path / "topics"))
        with rm.Publisher("fits", contract="pipe", capacity="512KiB") as pub, rm.Subscriber("fits") as sub:
            with pytest.raises(OSError, match=r"cannot allocate \d+ bytes for topic 'large'") as caught:
                rm.Publisher("large", capacity="1MiB")
            assert caught.value.errno == errno.ENOSPC
            assert isinstance(caught.value, rm.RingmainError)
            with pytest.raises(OSError, match="No space"), open(tmp_path / "filler", "wb") as filler:
                while True:
                    filler.write(bytes(65536))
            for _ in range(10):  # the whole ring is there, though the file system is full
                pub.send(b"x" * 500_000, timeout=0)
                assert len(sub.recv(timeout=0)) == 500_000
        assert [t.name for t in rm.topics()] == []
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_no_room_for_the_directory(monkeypatch, runtime_dir):
    monkeypatch.setenv("RINGMAIN_DIR", str(runtime_dir / "no" / "such" / "place"))
    for call in every_way()[:2]:
        with pytest.raises(OSError, match="runtime directory"):
            call()
