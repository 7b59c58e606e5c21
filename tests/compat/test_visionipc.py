"""A program written for msgq's visionipc runs with its import changed. What each test expects was first seen on
msgq-ipc 1.0, but for what the guide lists as different."""

from __future__ import annotations

import multiprocessing
import struct
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ringmain.compat import msgq
from ringmain.compat.msgq.visionipc import VisionIpcClient, VisionIpcServer, VisionStreamType, get_endpoint_name
from tests.conftest import PATIENCE_S

PATIENCE_MS = int(PATIENCE_S * 1000)
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
        received = one.recv(PATIENCE_MS)
        assert received is not None
        assert np.array_equal(np.frombuffer(received.data, np.uint8), image)
        assert (received.width, received.height, received.stride, received.uv_offset) == (100, 100, 100, 10_000)
        assert received.frame_id == 1337
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
    kept = client.recv(PATIENCE_MS)
    assert kept is not None
    for _ in range(20):
        server.send(ROAD, b"\x02" * 15_000)
    assert bytes(kept.data) == b"\x01" * 15_000
    del kept
    client.close()


def test_available_streams(server: VisionIpcServer) -> None:
    found: list[set[int]] = []
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


def test_before_it_is_connected(server: VisionIpcServer) -> None:
    client = VisionIpcClient(b"camerad", ROAD, False)
    assert (client.width, client.height, client.stride, client.uv_offset, client.buffer_len) == (None,) * 5
    assert (client.num_buffers, client.is_connected(), client.recv(0)) == (0, False, None)
    server.create_buffers(ROAD, 2, 64, 32)
    server.send(ROAD, bytes(3072), frame_id=7)
    assert client.recv(0) is None
    assert client.connect(True)
    assert client.recv(PATIENCE_MS) is not None, "it listens from the moment it is made"
    assert client.frame_id == 7


def test_streams_have_any_number(server: VisionIpcServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENPILOT_PREFIX", "camerad")
    elsewhere = VisionIpcServer("other")  # its topics begin as those of a server 'camerad' without a prefix do
    elsewhere.create_buffers(0, 1, 64, 32)
    monkeypatch.delenv("OPENPILOT_PREFIX")
    for number in (0, 7, 123):
        server.create_buffers(number, 1, 64, 32)
    server.start_listener()
    assert VisionIpcClient.available_streams("camerad", True) == {0, 7, 123}
    assert VisionIpcClient.available_streams("camerad", block=False) == {0, 7, 123}
    assert not VisionIpcClient("camerad", 9999, False).connect(False)
    elsewhere.close()


def test_data_is_a_view_of_the_bytes(server: VisionIpcServer) -> None:
    server.create_buffers(ROAD, 1, 64, 32)
    client = connected()
    image = bytearray(3072)
    struct.pack_into("<Q", image, 0, 1234)
    server.send(ROAD, image)
    received = client.recv(timeout_ms=PATIENCE_MS)
    assert received is not None
    data = received.data
    assert isinstance(data, memoryview)
    assert (len(data), data[8:].nbytes, data.format) == (3072, 3064, "B")
    assert struct.unpack_from("<Q", data)[0] == 1234
    assert received.as_array().view("<u8")[0] == 1234
    with pytest.raises(TypeError):
        data[0] = 1  # others see the same bytes
    with pytest.raises(AttributeError, match="use `data`"):
        _ = received.fd
    del data, received
    client.close()


def test_what_is_kept_by_index_stays_true(server: VisionIpcServer) -> None:
    """Programs keep what they make of a buffer (a texture, an address) by its index."""
    server.create_buffers(ROAD, 2, 64, 32)
    client = connected()
    where: dict[int, set[int]] = {}
    for number in range(20):
        server.send(ROAD, bytes([number]) * 3072)
        received = client.recv(PATIENCE_MS)
        assert received is not None
        where.setdefault(received.idx, set()).add(received.as_array().ctypes.data)
        del received
    assert all(len(addresses) == 1 for addresses in where.values())
    assert len(set.union(*where.values())) == len(where)
    assert max(where) < client.num_buffers + 2
    client.close()


def test_a_server_comes_back_with_another_size() -> None:
    client = VisionIpcClient("camerad", ROAD, False)
    for width in (64, 128):
        server = VisionIpcServer("camerad")
        server.create_buffers(ROAD, 2, width, 32)
        server.start_listener()
        if not client.is_connected():
            assert client.connect(True)
        server.send(ROAD, bytes(width * 48), frame_id=width)
        received = client.recv(PATIENCE_MS)
        assert received is not None
        assert (received.width, client.width, client.frame_id) == (width, width, width)
        del received
        server.close()
        assert not client.is_connected()


def test_frames_are_led_too() -> None:
    """With fake events on, a client is held at `recv` by the events of its stream's endpoint."""
    assert get_endpoint_name("camerad", ROAD) == get_endpoint_name(b"camerad", 0) == "visionipc_camerad_0"
    msgq.toggle_fake_events(True)
    try:
        handle = msgq.fake_event_handle(get_endpoint_name("camerad", ROAD), enable=True)
        server = VisionIpcServer("camerad")
        server.create_buffers(ROAD, 2, 64, 32)
        client = connected()
        got: list[Any] = []

        def watch() -> None:
            for _ in range(3):
                frame = client.recv(PATIENCE_MS)
                got.append(None if frame is None else frame.frame_id)

        watching = threading.Thread(target=watch)
        watching.start()
        for frame_id in (1, None, 3):
            handle.recv_called_event.wait(PATIENCE_S)
            handle.recv_called_event.clear()
            if frame_id is not None:
                server.send(ROAD, bytes(3072), frame_id=frame_id)
            handle.recv_ready_event.set()
        watching.join(PATIENCE_S)
        assert got == [1, None, 3]
        client.close()
        server.close()
    finally:
        msgq.toggle_fake_events(False)


def _watch(conflate: bool) -> None:
    client, pub = VisionIpcClient("camerad", ROAD, conflate), msgq.pub_sock("seen")
    assert client.connect(True)
    pub.wait_for_readers(PATIENCE_S)
    pub.send(b"connected")
    while True:
        frame = client.recv(PATIENCE_MS)
        assert frame is not None
        assert bytes(frame.data) == bytes([client.frame_id]) * 3072
        pub.send(b"%d" % client.frame_id)
        if client.frame_id == 9:
            break


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes(server: VisionIpcServer, method: Any) -> None:
    """The client's process may come before the server's streams."""
    seen = msgq.sub_sock("seen", timeout=PATIENCE_MS)
    other = multiprocessing.get_context(method).Process(target=_watch, args=(False,))
    other.start()
    server.create_buffers(ROAD, 4, 64, 32)
    server.start_listener()
    assert seen.receive() == b"connected"
    for number in range(10):
        server.send(ROAD, bytes([number]) * 3072, frame_id=number)
        assert seen.receive() == b"%d" % number
    other.join(PATIENCE_S)
    assert other.exitcode == 0
