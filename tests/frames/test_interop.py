"""Other libraries see the frame's own memory and keep it leased; the system is asked for huge and for pinned memory."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringmain as rm

PATIENCE_S = 10.0


def test_dlpack_shares_memory_and_keeps_the_lease() -> None:
    with rm.FramePublisher("s", (2, 3), "f4", buffers=1) as pub, rm.FrameSubscriber("s") as sub:
        with pub.frame() as draft:
            np.from_dlpack(draft)[:] = 2
        frame = sub.recv(timeout=PATIENCE_S)
        tensor = np.from_dlpack(frame)
        frame.release()
        assert frame.held
        assert tensor.tolist() == [[2.0] * 3] * 2
        del tensor
        assert not frame.held


def test_pyarrow_takes_the_buffer_in_place() -> None:
    pa = pytest.importorskip("pyarrow")
    with rm.FramePublisher("s", (2, 3), "f4") as pub, rm.FrameSubscriber("s") as sub:
        pub.send(np.full((2, 3), 5, "f4"))
        frame = sub.recv(timeout=PATIENCE_S)
        at = frame.array.ctypes.data
        buffer, tensor = pa.py_buffer(frame), pa.Tensor.from_numpy(frame.array)
        frame.release()
        assert buffer.address == at
        assert not buffer.is_mutable
        assert tensor.to_numpy().tolist() == [[5.0] * 3] * 2
        del buffer
        assert frame.held  # by the tensor
        del tensor
        assert not frame.held


TORCH = """
import torch
with rm.FramePublisher("s", (2, 3), "f4") as pub, rm.FrameSubscriber("s") as sub:
    with pub.frame() as draft:
        torch.from_dlpack(draft)[:] = 5
    frame = sub.recv(timeout=30)
    tensor = torch.from_dlpack(frame)
    assert tensor.data_ptr() == frame.array.ctypes.data
    frame.release()
    assert tensor.tolist() == [[5.0] * 3] * 2
    assert frame.held
    del tensor
    assert not frame.held
    assert pub.pin_memory() is torch.cuda.is_available()
    assert sub.pin_memory() is torch.cuda.is_available()
"""

# jax asks for DLPack without a version, which cannot say "read-only": numpy refuses it for what is being read.
JAX = """
import jax.numpy as jnp
with rm.FramePublisher("s", (2, 3), "f4") as pub, rm.FrameSubscriber("s") as sub:
    with pub.frame() as draft:
        draft.array[:] = 5
        assert jnp.from_dlpack(draft).unsafe_buffer_pointer() == draft.array.ctypes.data
    with sub.recv(timeout=30) as frame:
        try:
            jnp.from_dlpack(frame)
        except BufferError as error:
            assert "readonly" in str(error), error
        else:
            raise AssertionError("jax took a read-only frame")
        assert jnp.asarray(frame.array).tolist() == [[5.0] * 3] * 2
"""


@pytest.mark.parametrize(("library", "script"), [("torch", TORCH), ("jax", JAX)])
def test_tensors_in_place(child: Callable[..., Any], library: str, script: str) -> None:
    """In a process of their own: they start threads, and other tests fork."""
    if find_spec(library) is None:
        pytest.skip(f"there is no {library} here")
    child(script).finish(PATIENCE_S * 12)


def test_pin_memory_without_torch_is_skipped_cleanly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # what an import finds that is not installed
    with rm.FramePublisher("s", 8) as pub, rm.FrameSubscriber("s") as sub:
        assert pub.pin_memory() is False
        assert sub.pin_memory() is False
        pub.send(np.full(8, 7, "u1"))
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert set(frame.array) == {7}


ASKED = """
import sys, warnings
import ringmain as rm
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    pub = rm.FramePublisher("s", size=3 << 20, huge_pages=True)
with pub, rm.FrameSubscriber("s") as sub:
    with pub.frame() as draft:
        draft.array[:] = 3
    with sub.recv(timeout=30) as frame:
        print(pub.huge_pages, int(frame.array.min()), frame.array.ctypes.data % (2 << 20))
for warning in said:
    print(warning.category.__name__, warning.message)
"""


def _ask_in_mount(tmp_path: Path, option: str) -> list[str]:
    """The output of a process whose runtime directory is a tmpfs of its own."""
    script = 'mount -t tmpfs -o "huge=$1,size=64m" tmpfs "$2" && RINGMAIN_DIR="$2" exec "$3" -c "$4"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", option, str(tmp_path), sys.executable, ASKED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"this system does not let us mount: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.privileged
def test_huge_pages_where_the_file_system_gives_them(tmp_path: Path) -> None:
    assert _ask_in_mount(tmp_path, "advise") == ["True 3 0"]


@pytest.mark.privileged
def test_huge_pages_are_asked_for_in_vain_and_it_is_said(tmp_path: Path) -> None:
    went, said = _ask_in_mount(tmp_path, "never")
    assert went.startswith("False 3")
    assert said.startswith("RuntimeWarning frame topic 's' uses ordinary pages: the runtime directory's file system")
    assert "huge=advise" in said


def test_huge_pages_come_or_it_is_said_why_not() -> None:
    """In the runtime directory of this machine, whatever it allows."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        pub = rm.FramePublisher("s", size=3 << 20, huge_pages=True)
    with pub, rm.FrameSubscriber("s") as sub:
        assert pub.huge_pages == (not said)
        assert all("ordinary pages" in str(warning.message) for warning in said)
        with pub.frame() as draft:
            draft.array[:] = 3
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert frame.array.min() == 3
