"""Windows for training: 16 steps of a state, an IMU and a camera's pictures of 224 × 224, in the order of a shuffle.

The other sides have the same cells in a Parquet file, with the pictures as their bytes: pandas as one would write it,
the table in memory and a stack of 16 rows; and `datasets` of Hugging Face, if it is there, in numpy's format. All give
arrays, and the batches of all are written into the memory of the batch before. *The copy alone* is what no program can
go below: the pixels of 8 windows, from where they are to where the batch is. The pixels are in memory on all sides, so
what is measured is what a window costs besides the reading of its pixels. The seconds are those of the processor.

Where the camera's pictures are JPEG, the other sides decode those of each window, with pillow; ringmain has decoded
them when its file was written (`decode=True`).

How memory grows with the data is the most of three sizes by the least, each in a process of its own: with four times
and sixteen times the pixels.

    python -m bench.windows

prints the figures, and the memory of larger data, too.
"""

from __future__ import annotations

import atexit
import io
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
import numpy as np

from bench.harness import Cell
from bench.limits import PREFIX
from ringmain import typed
from ringmain.datasets import Episodes, Grid, Order, Windows, cells
from ringmain.frames import FrameLayout
from ringmain.recording import RecordingWriter
from ringmain.recording._format import FRAMES
from ringmain.recording._frames import END, MARK, Trailer
from ringmain.recording._record.row_builder import ring_rows

HZ, SIDE, LENGTH = 30, 224, 16
SECONDS = 10
SHAPE = (SIDE, SIDE, 3)
GRID = Grid(hz=HZ, topics={"state": "linear", "imu": "linear", "camera": "newest"})
EPISODE_S = 5.0
EPISODES = Episodes(length_s=EPISODE_S)
BATCH = 8
WINDOWS, BATCHES, JPEGS = "16-step windows", "16-step windows in batches of 8", "16-step windows of JPEG"
COPY = "the copy alone"  # of a batch
MEMORY_S, LARGER_S = (5, 20, 80), (160, 640)
WRITTEN, READ = (f"memory while 16-step windows are {what}, most / least" for what in ("written", "read"))


class State(msgspec.Struct):
    position: tuple[float, float, float]
    speed: float


class Imu(msgspec.Struct):
    acceleration: tuple[float, float, float]
    turn: tuple[float, float, float]


class Items(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, number: int, /) -> dict[str, Any]: ...


def record(path: Path, seconds: int = SECONDS, *, jpeg: bool = False) -> None:
    """A camera of 30 pictures a second, a state of 100, an IMU of 200."""
    start_ns, rng = 1_700_000_000 * 10**9, np.random.default_rng(0)
    trailer = msgspec.msgpack.encode(Trailer(FrameLayout.of_image("rgb", SIDE, SIDE), 0, 0, 0, True, {}))
    writer = RecordingWriter(path, recorder="bench", fsync="never")
    states, imus = typed.codec_for(State), typed.codec_for(Imu)
    writer.declare("camera", epoch=1, contract="broadcast" if jpeg else FRAMES)
    writer.declare("state", epoch=1, schema=states.schema.to_bytes())
    writer.declare("imu", epoch=1, schema=imus.schema.to_bytes())

    def picture(n: int) -> bytes:
        return _jpeg(n) if jpeg else rng.bytes(SIDE * SIDE * 3) + trailer + END.pack(len(trailer), MARK)

    def state(n: int) -> bytes:
        return bytes(states.encode(State((n, -n, 0.5), n / 2)))

    def imu(n: int) -> bytes:
        return bytes(imus.encode(Imu((n, 0, 9.81), (0, 0, n / 7))))

    for topic, hz, make in (("camera", HZ, picture), ("state", 100, state), ("imu", 200, imu)):
        numbers: Any = range(seconds * hz + 1)
        for first in range(0, len(numbers), 64):
            part = numbers[first : first + 64]
            times = [start_ns + n * 10**9 // hz for n in part]
            batch = ring_rows(
                len(part), seq=list(part), time_ns=times, lost=[0] * len(part), data=[make(n) for n in part]
            )
            writer.append(topic, 1, batch, record_time_ns=start_ns)
    writer.close()


def _jpeg(n: int) -> bytes:
    """A gradient that moves."""
    from PIL import Image

    ramp = np.arange(SIDE)
    pixels = np.stack(np.broadcast_arrays(ramp[:, None] + n, ramp[None, :], 128), axis=2).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return file.getvalue()


def flat_parquet(recording: Path, path: Path) -> None:
    """The same cells as one would keep them for pandas: a row for each step, lists of numbers, and bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = cells(recording, GRID, EPISODES)
    rows = []
    for row in table.to_pylist():
        state, imu = row["state"], row["imu"]
        rows.append(
            {
                "episode": row["rm_episode"],
                "state": [*state["position"].values(), state["speed"]],
                "imu": [*imu["acceleration"].values(), *imu["turn"].values()],
                "camera": row["camera"]["rm_payload"][: SIDE * SIDE * 3],
            }
        )
    pq.write_table(pa.Table.from_pylist(rows), path)


def pixels_of(one: bytes) -> np.ndarray[Any, Any]:
    if len(one) == SIDE * SIDE * 3:
        return np.frombuffer(one, np.uint8).reshape(SHAPE)
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(one)))


class OfPandas:
    """A data set as one writes it."""

    def __init__(self, path: Path) -> None:
        import pandas as pd

        self.frame = pd.read_parquet(path)
        ends = self.frame.groupby("episode", sort=False).size().cumsum().tolist()
        starts = [0, *ends[:-1]]
        self.starts = [n for a, b in zip(starts, ends, strict=True) for n in range(a, b - LENGTH + 1)]

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, number: int) -> dict[str, Any]:
        rows = self.frame.iloc[self.starts[number] : self.starts[number] + LENGTH]
        pictures = [pixels_of(one) for one in rows["camera"]]
        return {"state": np.stack(rows["state"]), "imu": np.stack(rows["imu"]), "camera": np.stack(pictures)}


class OfHuggingFace(OfPandas):
    """The same file in `datasets`, which maps it as Arrow."""

    def __init__(self, path: Path) -> None:
        import datasets  # type: ignore[import-not-found, unused-ignore]

        super().__init__(path)
        del self.frame
        datasets.disable_progress_bars()
        found = datasets.Dataset.from_parquet(str(path), cache_dir=str(path.parent / "hf"))
        self.rows = found.remove_columns("episode").with_format(
            "numpy", columns=["state", "imu"], output_all_columns=True
        )

    def __getitem__(self, number: int) -> dict[str, Any]:
        start = self.starts[number]
        rows = self.rows[start : start + LENGTH]
        pictures = [pixels_of(one) for one in rows["camera"]]
        return {"state": rows["state"], "imu": rows["imu"], "camera": np.stack(pictures)}


class TheCopy:
    """The pixels of windows that are there, one after another."""

    def __init__(self, windows: Windows) -> None:
        self.pixels = [windows[number]["camera"] for number in range(len(windows))]

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"camera": self.pixels[number]}


def stacked(items: Items, numbers: list[int], out: dict[str, Any] | None) -> dict[str, Any]:
    """A batch, as a loader makes it; `out`: the one before."""
    if isinstance(items, Windows):
        return items.batch(numbers, out=out)
    found = [items[number] for number in numbers]
    return {name: np.stack([one[name] for one in found], out=out and out[name]) for name in found[0]}


def rate(items: Items, batch: int, budget_s: float) -> float:
    """Windows in a second of the processor's time, in batches or one by one."""
    order = Order(len(items), seed=1)
    numbers = itertools.chain.from_iterable(itertools.repeat(order))
    for number in order:
        items[number]
    out: dict[str, Any] | None = None
    done, began, wall = 0, time.process_time(), time.perf_counter()
    while done < 64 or time.perf_counter() - wall < budget_s:
        if batch == 1:
            items[next(numbers)]
        else:
            out = stacked(items, [next(numbers) for _ in range(batch)], out)
        done += batch
    return done / (time.process_time() - began)


@cache
def _data(*, jpeg: bool) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="ringmain-bench-windows-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    record(directory / "recording", jpeg=jpeg)
    flat_parquet(directory / "recording", directory / "cells.parquet")
    return directory


@cache
def opened(who: str, *, jpeg: bool = False) -> Items:
    directory = _data(jpeg=jpeg)
    if who == "ringmain":
        return Windows(directory / "recording", grid=GRID, episodes=EPISODES, length=LENGTH, decode=True)
    if who == COPY:
        return TheCopy(cast(Windows, opened("ringmain")))
    return OfPandas(directory / "cells.parquet") if who == "pandas" else OfHuggingFace(directory / "cells.parquet")


def window_cells() -> list[Cell]:
    def run(who: str, batch: int, jpeg: bool) -> Callable[[float], float]:
        return lambda budget_s: rate(opened(who, jpeg=jpeg), batch, budget_s)

    there = ["ringmain", "pandas", *(["datasets"] if find_spec("datasets") else [])]
    return [
        Cell(PREFIX + name if who == COPY else f"{name} | {who}", "/s", run(who, batch, jpeg), lower_is_better=False)
        for name, batch, jpeg in (
            (WINDOWS, 1, False), (BATCHES, BATCH, False), *([(JPEGS, 1, True)] if find_spec("PIL") else [])
        )
        for who in (*there, *([COPY] if batch > 1 else []))
    ] + [Cell(name, "x", lambda _, at=at: growth()[at]) for at, name in enumerate((WRITTEN, READ))]  # fmt: skip


def anonymous_mb() -> float:
    """Memory that the process has for itself: what is mapped from a file, the kernel can take back."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("RssAnon"))) / 1024


def memory(recording: Path) -> float:
    """In a process of its own: how many MB it has more for itself at most than before, while it opens all windows and
    reads them; the first such process writes the file, too."""
    before, ended, seen = anonymous_mb(), threading.Event(), [0.0]

    def look() -> None:
        while not ended.wait(0.005):
            seen[0] = max(seen[0], anonymous_mb())

    thread = threading.Thread(target=look)
    thread.start()
    kept = recording.parent / "kept"
    windows = Windows(recording, grid=GRID, episodes=EPISODES, length=LENGTH, cache=kept)
    for number in windows.order(seed=1):
        windows[number]["camera"].sum()
    ended.set()
    thread.join()
    return seen[0] - before


@cache
def memory_of(seconds: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as name:
        record(Path(name) / "r", seconds)
        command = [sys.executable, "-m", "bench.windows", "--memory", f"{name}/r"]
        written, read = (float(subprocess.check_output(command, env=os.environ)) for _ in range(2))
        return written, read


def growth() -> tuple[float, float]:
    written, read = zip(*map(memory_of, MEMORY_S), strict=True)
    return max(written) / min(written), max(read) / min(read)


def main() -> None:
    if len(sys.argv) == 3:
        print(memory(Path(sys.argv[2])))
        return
    for cell in window_cells():
        print(f"{cell.name:56} {max(cell.run(1.0) for _ in range(3)):10,.4g} {cell.unit}", flush=True)
    for seconds in (*MEMORY_S, *LARGER_S):
        pixels, (written, read) = seconds * HZ * SIDE * SIDE * 3 / 1e6, memory_of(seconds)
        print(f"{pixels:6.0f} MB of pixels: {written:.0f} MB while the file is written, {read:.0f} MB while it is read")


if __name__ == "__main__":
    main()
