"""Files and descriptors that are not what they should be: an error with a sentence, never a crash or a look outside."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ringmain as rm
from ringmain._native import FRAMES_LAYOUT, LAYOUT

PATIENCE_S = 10.0
TABLE_MAGIC = b"FRAMPOOL"


@pytest.fixture
def frame_topic(runtime_dir: Path) -> Iterator[tuple[rm.FramePublisher, rm.FrameSubscriber, Path]]:
    """A frame topic with one unread frame, in a pool that the reader has not joined."""
    with rm.FramePublisher("s", 16, buffers=2) as pub, rm.FrameSubscriber("s") as sub:
        pub.send(np.zeros(16, "u1"))
        yield pub, sub, runtime_dir / "s.frames"


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize(
    ("field", "value"),
    [("magic", 1), ("version", 99), ("buffer_count", 0), ("buffer_count", 61), ("buffer_stride_bytes", 1 << 40)],
)
def test_a_table_that_does_not_fit_is_refused(
    frame_topic: tuple[rm.FramePublisher, rm.FrameSubscriber, Path], field: str, value: int
) -> None:
    _, sub, path = frame_topic
    at = path.read_bytes().index(TABLE_MAGIC) + FRAMES_LAYOUT[f"PoolTable.{field}"]
    overwrite(path, at, struct.pack("<I" if field in ("version", "buffer_count") else "<Q", value))
    with pytest.raises(rm.Corrupt, match="pool of frame topic 's' is refused"):
        sub.recv(timeout=PATIENCE_S)
    with pytest.raises(rm.Corrupt):
        rm.frame_topic("s")
    assert rm.frame_topics() == []


@pytest.mark.parametrize("field", ["magic", "version", "capacity_bytes", "data_offset"])
def test_a_header_that_does_not_fit_is_refused(
    frame_topic: tuple[rm.FramePublisher, rm.FrameSubscriber, Path], field: str
) -> None:
    _, sub, path = frame_topic
    overwrite(path, LAYOUT[f"Header.{field}"], struct.pack("<I", 12345))
    with pytest.raises(rm.Corrupt, match="refused"):
        sub.recv(timeout=PATIENCE_S)


@pytest.mark.parametrize(
    "layout",
    [
        b"not json",
        b'{"format":"array","size":16,"array":{"shape":[17],"dtype":"|u1"}}',
        b'{"format":"array","size":99,"array":{"shape":[99],"dtype":"|u1"}}',
        b'{"format":"array","size":16,"array":{"shape":[2],"dtype":"|u1","offset":-1}}',
        b'{"format":"array","size":16,"array":{"shape":[2],"dtype":"|u1","strides":[100]}}',
        b'{"format":"array","size":16,"array":{"shape":[2],"dtype":"|u1","strides":[-1]}}',
        b'{"format":"array","size":16,"array":{"shape":[2],"dtype":"O"}}',
        b'{"format":"x","size":16,"array":{"shape":[2],"dtype":"|u1"},"planes":{"y":{"shape":[4,5],"dtype":"|u1"}}}',
    ],
)
def test_a_layout_that_reaches_outside_is_refused(layout: bytes) -> None:
    with pytest.raises(rm.Corrupt, match="layout of frame topic 's' is refused"):
        rm.FrameLayout.from_bytes(layout, "s", 16)


def test_a_file_cut_short_or_linked_is_refused(
    frame_topic: tuple[rm.FramePublisher, rm.FrameSubscriber, Path], tmp_path: Path
) -> None:
    _, sub, path = frame_topic
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole[:-4096])
    with pytest.raises(rm.Corrupt, match="the file has"):
        sub.recv(timeout=PATIENCE_S)
    path.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(whole)
    path.symlink_to(elsewhere)
    with pytest.raises(rm.NotAllowed, match="symbolic link"):
        sub.recv(timeout=PATIENCE_S)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(rm.NotAllowed):
        sub.recv(timeout=PATIENCE_S)
    path.unlink()


def test_a_descriptor_that_points_outside_is_refused(runtime_dir: Path) -> None:
    with rm.FramePublisher("s", 16, buffers=2) as pub:
        epoch = rm.frame_topic("s").epoch
        with rm.FrameSubscriber("s") as sub:
            for buffer, size in ((2, 16), (0xFFFFFFFF, 16), (0, 17), (0, 1 << 62)):
                forged = struct.pack(
                    "<IHHIIQQQqqQ", 0x454D5246, FRAMES_LAYOUT["version"], 1, buffer, 0, epoch, 1, 0, 0, 0, size
                )
                pub._descriptors.send(forged)
                with pytest.raises(rm.TopicMismatch, match="outside"):
                    sub.recv(timeout=PATIENCE_S)
            pub._descriptors.send(struct.pack("<IHHIIQQQqqQ", 0x454D5246, 9, 1, 0, 0, epoch, 1, 0, 0, 0, 16))
            with pytest.raises(rm.TopicMismatch, match="another version"):
                sub.recv(timeout=PATIENCE_S)
            pub.send(np.full(16, 3, "u1"))
            with sub.recv(timeout=PATIENCE_S) as frame:  # it goes on with what is good
                assert set(frame.array) == {3}


def test_no_space_is_an_error_and_leaves_nothing(runtime_dir: Path) -> None:
    free = os.statvfs(runtime_dir).f_bavail * os.statvfs(runtime_dir).f_frsize
    if free > 1 << 40:
        pytest.skip("there is more space here than a frame topic can use")
    size = min(free, (1 << 36) - 4096)
    with pytest.raises(rm.SystemFailure, match="cannot allocate"):
        rm.FramePublisher("s", size=size, buffers=60)
    assert not list(runtime_dir.glob("s.*"))
