"""Frames of a video file, by PyAV: all of a span, each at the time where it must be.

The invariant owned here: *frames are exact in count and time*. A video in which one is missing, or is elsewhere, is an
error, and never a frame that is shown twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ringmain.errors import RecordingError

if TYPE_CHECKING:
    import numpy.typing as npt

_TOLERANCE = 0.1  # of a period: container formats round times, by less than a thousandth of it


def frames_of(path: Path, since_s: float, count: int, fps: float) -> Iterator[npt.NDArray[np.uint8]]:
    """`count` frames as height x width x 3, the first at `since_s`. Those before it, back to a frame that stands on its
    own, are decoded too."""
    with _opened(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        if since_s > 0:
            container.seek(int((since_s - 0.5 / fps) / stream.time_base), stream=stream)
        found = 0
        for frame in container.decode(stream):
            off = (frame.time - since_s) * fps - found
            if off < -0.5:  # before the span, or of one that was there already
                continue
            if abs(off) > _TOLERANCE:
                break
            yield frame.to_ndarray(format="rgb24")
            found += 1
            if found == count:
                return
        raise RecordingError(
            f"{path}: frame {found} of {count} is not where it must be, {since_s + found / fps:.6f} s after the begin"
        )


def count_frames(path: Path, fps: float) -> int:
    """How many frames there are. Nothing is decoded. Raises RecordingError if one is not at its number divided by
    fps."""
    with _opened(path) as container:
        stream = container.streams.video[0]
        times = sorted(float(p.pts * stream.time_base) for p in container.demux(stream) if p.pts is not None)
    for n, at in enumerate(times):
        if abs(at * fps - n) > _TOLERANCE:
            raise RecordingError(f"{path}: frame {n} is at {at:.6f} s, and should be at {n / fps:.6f} s")
    return len(times)


def only_errors() -> None:
    """Encoders would write lines about each video to stderr."""
    _av().logging.set_libav_level(_av().logging.ERROR)


def _av() -> Any:
    try:
        import av
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("videos need PyAV: pip install 'ringmain[video]'", name="av") from error
    return av


def _opened(path: Path) -> Any:
    av = _av()
    try:
        return av.open(str(path))
    except (av.error.FFmpegError, OSError) as error:
        raise RecordingError(f"{path} is not a readable video: {error}") from error
