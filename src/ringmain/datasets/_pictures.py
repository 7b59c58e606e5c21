"""Pictures as files: JPEG, PNG and others, by pillow."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np

_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM", b"II*\x00", b"MM\x00*")


def is_picture(data: bytes) -> bool:
    """By its first bytes."""
    return data.startswith(_BEGINNINGS) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP")


def shape_of(picture: bytes) -> tuple[int, int, int]:
    """What `decoded` will have. Nothing is decoded. Raises OSError for what is no picture."""
    with _pillow().open(BytesIO(picture)) as opened:
        return opened.height, opened.width, 3


def decoded(picture: bytes) -> np.ndarray:
    """As height x width x 3."""
    with _pillow().open(BytesIO(picture)) as opened:
        return np.asarray(opened.convert("RGB"))


def png(pixels: np.ndarray) -> bytes:
    file = BytesIO()
    _pillow().fromarray(np.ascontiguousarray(pixels)).save(file, "PNG", compress_level=1)
    return file.getvalue()


def _pillow() -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("pictures need pillow: pip install 'ringmain[view]'", name="PIL") from error
    return Image
