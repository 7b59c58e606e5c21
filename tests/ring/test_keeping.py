"""Nothing that shows a message outlives its memory: arrays, views and tensors keep it, or making them raises.

How: for each way to take the memory, on each contract that holds, something is kept beyond the block. The writer then
either is stopped by it, or could not be fooled. torch is not needed: what it does is done with its three calls.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import types
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

import ringmain as rm
from tests import contracts

HOLDING = contracts.HOLDING
RING = 8192


class BareReference:
    """What torch.frombuffer does: asks for the buffer, releases it, and keeps a reference to `Py_buffer.obj`."""

    def __init__(self, source: Any) -> None:
        view = (ctypes.c_byte * 256)()  # a Py_buffer: buf, obj, len, ...
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(source), view, 0)
        words = ctypes.cast(view, ctypes.POINTER(ctypes.c_void_p))
        address, owner, size = words[0], words[1], words[2]
        assert owner is not None
        self.owner = ctypes.cast(owner, ctypes.py_object).value
        self.at = (ctypes.c_char * (size or 0)).from_address(address or 0)
        ctypes.pythonapi.PyBuffer_Release(view)

    def tobytes(self) -> bytes:
        return self.at.raw


def _raw(source: Any) -> Any:
    return msgspec.msgpack.decode(source, type=msgspec.Raw)


TAKEN: dict[str, Callable[[Any], Any]] = {
    "frombuffer(data)": lambda m: np.frombuffer(m.data, "u1"),
    "frombuffer(message)": lambda m: np.frombuffer(m, "u1"),
    "ndarray(data)": lambda m: np.ndarray(len(m), "u1", buffer=m.data),
    "ndarray(slice)": lambda m: np.ndarray(len(m), "u1", buffer=m.data[:]),
    "ndarray(message)": lambda m: np.ndarray(len(m), "u1", buffer=m),
    "memoryview(message)": memoryview,
    "torch(message)": BareReference,
    "msgspec.Raw(data)": lambda m: _raw(m.data),
    "msgspec.Raw(message)": _raw,
    "from_dlpack": lambda m: np.from_dlpack(np.frombuffer(m.data, "u1")),
}


def _fill(pub: rm.Publisher, sub: rm.Subscriber, reads: bool) -> int:
    """Sends until the ring would have been written over twice; returns how many messages were sent."""
    for sent in range(200):
        try:
            pub.send(b"y" * 100, timeout=0)
        except rm.Full:
            return sent
        if reads:
            sub.recv(timeout=0)
    return 200


@pytest.mark.parametrize("contract", HOLDING)
@pytest.mark.parametrize("how", TAKEN)
def test_what_is_taken_from_a_borrowed_message_keeps_it(contract: Any, how: str) -> None:
    payload = msgspec.msgpack.encode(b"k" * 96)
    with rm.Publisher("x", contract=contract, capacity=RING) as pub, rm.Subscriber("x") as sub:
        pub.send(payload)
        with sub.borrow(timeout=0) as message:
            kept = TAKEN[how](message)
        assert _fill(pub, sub, contract != "bus") < 200
        assert bytes(memoryview(kept) if isinstance(kept, msgspec.Raw) else kept.tobytes()) == payload
        with pytest.raises(rm.InUse):
            sub.close()
        del kept, message
        sub.recv_many(1000)
        assert _fill(pub, sub, True) == 200


@pytest.mark.parametrize("contract", HOLDING)
def test_a_typed_array_keeps_its_message(contract: Any) -> None:
    with (
        rm.Publisher("x", contract=contract, type=np.ndarray, capacity=RING) as pub,
        rm.Subscriber("x", type=np.ndarray) as sub,
    ):
        pub.send(np.full(100, 7))
        with sub.borrow(timeout=0) as message:
            kept = message.data
        with pytest.raises(rm.Full):
            for _ in range(100):
                pub.send(np.full(100, 8), timeout=0)
                if contract != "bus":
                    sub.recv(timeout=0)
        assert set(kept) == {7}
        del kept
        sub.recv_many(1000)
        pub.send(np.full(100, 9), timeout=0)
        sub.recv(timeout=0)


@pytest.mark.parametrize("contract", HOLDING)
def test_a_view_in_a_variable_is_released_and_holds_nothing(contract: Any) -> None:
    with rm.Publisher("x", contract=contract, capacity=RING) as pub, rm.Subscriber("x") as sub:
        pub.send(b"x" * 100)
        with sub.borrow(timeout=0) as message:
            view = message.data
            array = np.ndarray(100, "u1", buffer=view)
        with pytest.raises(ValueError, match="released"):
            bytes(view)
        assert _fill(pub, sub, contract != "bus") < 200
        del array
        sub.recv_many(1000)
        assert _fill(pub, sub, True) == 200


@pytest.mark.parametrize("contract", HOLDING)
def test_with_torch_a_view_in_a_variable_holds_as_an_array_does(contract: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    with rm.Publisher("x", contract=contract, capacity=RING) as pub, rm.Subscriber("x") as sub:
        pub.send(b"x" * 100)
        with sub.borrow(timeout=0) as message:
            tensor = BareReference(message.data)
        assert _fill(pub, sub, contract != "bus") < 200
        assert tensor.tobytes() == b"x" * 100
        del tensor
        sub.recv_many(1000)
        assert _fill(pub, sub, True) == 200
        with pytest.raises(rm.InUse), pub.reserve(16) as buffer:
            tensor = BareReference(buffer[8:])
        del tensor, buffer
        pub.send(b"now", timeout=0)
        sub.recv(timeout=0)


def test_what_shows_a_closed_topic_shows_mapped_memory() -> None:
    pub, sub = rm.Publisher("x", capacity=RING), rm.Subscriber("x")
    pub.send(b"x" * 100)
    with sub.borrow(timeout=0) as message:
        tensor = BareReference(message.data)
    sub.close()
    pub.close()
    assert len(tensor.tobytes()) == 100


RESERVED: dict[str, Callable[[Any], Any]] = {
    "frombuffer": lambda buffer: np.frombuffer(buffer, "u1"),
    "frombuffer(slice)": lambda buffer: np.frombuffer(buffer[2:], "u1"),
    "ndarray(memoryview)": lambda buffer: np.ndarray(16, "u1", buffer=memoryview(buffer)),
    "ndarray(slice)": lambda buffer: np.ndarray(8, "u1", buffer=buffer[8:]),
    "memoryview": memoryview,
    "torch": BareReference,
}


@pytest.mark.parametrize("backend", ["shm", "fake"])
@pytest.mark.parametrize("contract", ["broadcast", *HOLDING])
@pytest.mark.parametrize("how", RESERVED)
def test_what_is_taken_from_a_reservation_and_outlives_it_is_noticed(backend: Any, contract: Any, how: str) -> None:
    with rm.Publisher("x", contract=contract, backend=backend) as pub, rm.Subscriber("x", backend=backend) as sub:
        with pytest.raises(rm.InUse, match="still alive"), pub.reserve(16) as buffer:
            kept = RESERVED[how](buffer)
        with pytest.raises(rm.InUse):
            pub.send(b"not now")
        del kept, buffer
        gc.collect()
        pub.send(b"now")
        assert sub.recv(timeout=0) == b"now"


@pytest.mark.parametrize("backend", ["shm", "fake"])
def test_an_array_that_would_not_hold_a_reservation_is_refused(backend: Any) -> None:
    with rm.Publisher("x", backend=backend) as pub, rm.Subscriber("x", backend=backend) as sub:
        with pub.reserve(5) as buffer:
            with pytest.raises(BufferError, match=r"numpy\.frombuffer"):
                np.ndarray(5, "u1", buffer=buffer)
            buffer[:] = b"hello"
        assert sub.recv(timeout=0) == b"hello"


@pytest.mark.parametrize("contract", HOLDING)
@pytest.mark.parametrize("how", TAKEN)
def test_the_fake_backend_keeps_what_is_taken_too(contract: Any, how: str) -> None:
    payload = msgspec.msgpack.encode(b"k" * 96)
    options: dict[str, Any] = {"backend": "fake"}
    with rm.Publisher("x", contract=contract, capacity=RING, **options) as pub, rm.Subscriber("x", **options) as sub:
        pub.send(payload)
        with sub.borrow(timeout=0) as message:
            kept = TAKEN[how](message)
        assert _fill(pub, sub, contract != "bus") < 200
        assert bytes(memoryview(kept) if isinstance(kept, msgspec.Raw) else kept.tobytes()) == payload
        del kept, message
        gc.collect()
        sub.recv_many(1000)
        assert _fill(pub, sub, True) == 200
