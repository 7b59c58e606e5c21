"""How the bytes of a frame are arranged: arrays, planes of images, padding; and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ringmain as rm
from ringmain.frames._layout import FrameLayout

PATIENCE_S = 10.0


def test_nv12_planes() -> None:
    layout = FrameLayout.of_image("nv12", 6, 4, stride=8)
    with rm.FramePublisher("s", layout=layout) as pub, rm.FrameSubscriber("s") as sub:
        with pub.frame() as draft:
            draft.array[:] = 0
            draft.plane("y")[:] = 1
            draft.plane("uv")[..., 0] = 2
            draft.plane("uv")[..., 1] = 3
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert (frame.width, frame.height, frame.stride, frame.layout.plane("uv").offset) == (6, 4, 8, 32)
            rows = frame.array.reshape(6, 8)
            assert rows.tolist() == [[1] * 6 + [0] * 2] * 4 + [[2, 3] * 3 + [0] * 2] * 2
            assert not frame.plane("y").flags.writeable


@pytest.mark.parametrize("image", ["gray", "rgb", "bgr", "rgba", "bgra", "nv12", "nv21", "i420"])
def test_every_format_arrives_as_it_was_written(image: str) -> None:
    """All views of a frame are filled with distinct numbers, and read from the same places."""
    layout = FrameLayout.of_image(image, 6, 4, stride=32)
    with rm.FramePublisher("s", layout=layout) as pub, rm.FrameSubscriber("s") as sub:
        with pub.frame() as draft:
            views = {name: draft.plane(name) for name in layout.planes} or {"": draft.array}
            count = 0
            for view in views.values():
                view[:] = np.arange(count, count + view.size, dtype="u1").reshape(view.shape)
                count += view.size
            written = {name: view.copy() for name, view in views.items()}
        assert count == 6 * 4 * (1.5 if layout.planes else layout.shape[2] if len(layout.shape) == 3 else 1)
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert (frame.width, frame.height, frame.stride, frame.layout.format) == (6, 4, 32, image)
            for name, pixels in written.items():
                assert ((frame.plane(name) if name else frame.array) == pixels).all()


def test_other_layouts() -> None:
    rgb = FrameLayout.of_image("rgb", 5, 3, stride=16)
    assert (rgb.shape, rgb.size, rgb.array.strides) == ((3, 5, 3), 48, (16, 3, 1))
    i420 = FrameLayout.of_image("i420", 4, 4)
    assert {name: view.offset for name, view in i420.planes.items()} == {"y": 0, "u": 16, "v": 20}
    assert i420.size == 24
    padded = FrameLayout.of_image("nv12", 4, 4, stride=8, offsets={"uv": 64}, size=4096)
    assert (padded.size, padded.plane("uv").offset) == (4096, 64)
    for layout in (rgb, i420, padded, FrameLayout.of_array((2, 3), "<f8"), FrameLayout.of_bytes(9)):
        assert FrameLayout.from_bytes(layout.to_bytes(), "s", layout.size) == layout


def test_a_padded_image_can_be_sent_as_an_array() -> None:
    with rm.FramePublisher("s", layout=FrameLayout.of_image("rgb", 5, 3, stride=32)) as pub:
        with rm.FrameSubscriber("s") as sub:
            image = np.arange(45, dtype="u1").reshape(3, 5, 3)
            pub.send(image)
            with sub.recv(timeout=PATIENCE_S) as frame:
                assert (frame.array == image).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("jpeg", 4, 4), "one of"),
        (("nv12", 5, 4), "odd"),
        (("rgb", 0, 4), "width"),
    ],
)
def test_bad_images_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FrameLayout.of_image(*arguments)
    with pytest.raises(ValueError, match="too short"):
        FrameLayout.of_image("rgb", 4, 4, stride=11)
    with pytest.raises(ValueError, match="too small"):
        FrameLayout.of_image("rgb", 4, 4, size=11)
    with pytest.raises(ValueError, match="no plane 'u'"):
        FrameLayout.of_image("nv12", 4, 4, offsets={"u": 3})
