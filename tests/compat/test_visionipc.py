"""A program written for msgq's visionipc runs with its import changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ringmain.compat.msgq.visionipc import VisionIpcClient, VisionIpcServer, VisionStreamType

from ..conftest import PATIENCE_S

ROAD, WIDE = VisionStreamType.VISION_STREAM_ROAD, VisionStreamType.VISION_STREAM_WIDE_ROAD


@pytest.fixture
def server() -> Iterator[VisionIpcServer]:
    one = VisionIpcServer("camerad")
    yield one
    one.close()


def connected(conflate: bool = False) -> VisionIpcClient:
    client = VisionIpcClient("camerad", ROAD, conflate)
    assert client.connect(True)
    return client


def test_sizes(server: VisionIpcServer) -> None:
    assert not VisionIpcClient("camerad", ROAD, False).connect(False)
    server.create_buffers(ROAD, 5, 100, 200)
    server.start_listener()
    client = connected()
    assert client.is_connected()
    assert (client.width, client.height, client.stride, client.num_buffers) == (100, 200, 100, 5)
    assert (client.uv_offset, client.buffer_len) == (20_000, 30_000)
    client.close()


def test_sizes_of_ones_own(server: VisionIpcServer) -> None:
    server.create_buffers_with_sizes(ROAD, 2, 100, 100, 20_000, 128, 13_000)
    client = connected()
    assert (client.stride, client.uv_offset, client.buffer_len) == (128, 13_000, 20_000)
    client.close()


def test_frames_and_what_is_known_of_them(server: VisionIpcServer) -> None:
    server.create_buffers(ROAD, 1, 100, 100)
    client, second = connected(), connected()
    image = np.arange(15_000, dtype=np.uint32).astype(np.uint8)
    server.send(ROAD, image, frame_id=1337, timestamp_sof=5, timestamp_eof=7)
    for one in (client, second):
        received = one.recv(int(PATIENCE_S * 1000))
        assert received is not None
        assert np.array_equal(np.frombuffer(received.data, np.uint8), image)
        assert (received.width, received.height, received.stride, received.uv_offset) == (100, 100, 100, 10_000)
        assert (received.frame_id, received.idx) == (1337, 0)
        assert (one.frame_id, one.timestamp_sof, one.timestamp_eof, one.valid) == (1337, 5, 7, True)
        del received
    assert client.recv(0) is None
    client.close()
    second.close()


@pytest.mark.parametrize(("conflate", "ids"), [(False, [1, 2]), (True, [2])])
def test_conflate(server: VisionIpcServer, conflate: bool, ids: list[int]) -> None:
    server.create_buffers(ROAD, 1, 100, 100)
    client = connected(conflate)
    for frame_id in (1, 2):
        server.send(ROAD, bytes(15_000), frame_id=frame_id)
    got: list[Any] = []
    while client.recv(0) is not None:
        got.append(client.frame_id)
    assert got == ids
    client.close()


def test_a_frame_in_use_is_not_rewritten(server: VisionIpcServer) -> None:
    server.create_buffers(ROAD, 1, 100, 100)
    client = connected()
    server.send(ROAD, b"\x01" * 15_000)
    kept = client.recv(int(PATIENCE_S * 1000))
    assert kept is not None
    for _ in range(20):
        server.send(ROAD, b"\x02" * 15_000)
    assert bytes(kept.data) == b"\x01" * 15_000
    del kept
    client.close()


def test_available_streams(server: VisionIpcServer) -> None:
    found: list[set[VisionStreamType]] = []
    waiting = threading.Thread(target=lambda: found.append(VisionIpcClient.available_streams(b"camerad", True)))
    waiting.start()
    assert VisionIpcClient.available_streams("camerad", False) == set()
    server.create_buffers(ROAD, 1, 100, 100)
    server.create_buffers(WIDE, 1, 100, 100)
    server.start_listener()
    waiting.join(PATIENCE_S)
    assert found == [{ROAD, WIDE}]


def test_errors_say_why(server: VisionIpcServer) -> None:
    with pytest.raises(ValueError, match="create_buffers"):
        server.send(ROAD, b"")
    server.create_buffers(ROAD, 1, 100, 100)
    with pytest.raises(ValueError, match="already"):
        server.create_buffers(ROAD, 1, 100, 100)
    with pytest.raises(ValueError, match="15000 bytes"):
        server.send(ROAD, b"short")
    assert VisionIpcClient("camerad", WIDE, False).recv() is None
