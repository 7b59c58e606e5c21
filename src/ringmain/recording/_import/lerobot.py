"""Episodes of a LeRobot v3 dataset, or of Parquet files as Hugging Face's `datasets` has them, as messages.

    observation.state           a topic of arrays, one for each step
    observation.images.front    a frame topic: decoded from a video, or from pictures in Parquet
    task                        a topic of texts: one where an episode begins, and one wherever the task changes
    episode/begin, episode/end  around each episode, with its number and task

Read with pyarrow, PyAV and pillow: neither lerobot nor torch is needed.

The invariant owned here: *every step is there, at its time*, cut to whole microseconds as the ticks of a grid are. Such
datasets know no dates: the first episode begins in 2000, each other one a second after the one before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ringmain import typed
from ringmain.errors import InvalidArgument, RecordingError
from ringmain.frames import FrameLayout
from ringmain.recording._format import FRAMES
from ringmain.recording._frames import END, MARK, Trailer
from ringmain.recording._import.channel import RINGMAIN, Channel
from ringmain.recording._import.sources import Piece, Source

if TYPE_CHECKING:
    import numpy as np

INFO = "meta/info.json"
BEGIN_US = 946_684_800_000_000  # 2000-01-01
_KEYS = ("timestamp", "frame_index", "episode_index", "index", "task_index")  # which step it is: these are no topics
_LONGEST_S = 1e9  # of an episode
_ROWS = 64  # whose values are in memory at a time
_PICTURE = {"bytes", "path"}


class EpisodeBegin(msgspec.Struct):
    """Sent at an episode's first step."""

    episode: int
    task: str


class EpisodeEnd(msgspec.Struct):
    """Sent a period after its last one."""

    episode: int


@dataclass(slots=True)
class Episode:
    """Where one is."""

    number: int
    length: int
    time_us: Callable[[int, float], int]
    """Of a step, by its number and what its row says."""
    files: Sequence[Path]
    videos: Mapping[str, tuple[Path, float]] = field(default_factory=dict)
    """Of a feature: the file, and when in it the episode begins, in seconds."""


class Dataset(Source):
    """Episodes as a bag."""

    def __init__(self, path: Path, wanted: int | None) -> None:
        self._is_lerobot = (path / INFO).exists()
        self._path, self.channels = path, {}
        self._topics: dict[str, tuple[int, Callable[[Any], bytes]]] = {}
        self._tasks: dict[int, str] = {}
        self._fps = 1.0
        with self._readable():
            self._episodes = self._of_lerobot() if self._is_lerobot else self._of_parquet()
        if wanted is not None:
            numbers = [one.number for one in self._episodes]
            if wanted not in numbers:
                known = f"{min(numbers)} to {max(numbers)}" if numbers else "none"
                raise InvalidArgument(f"{path} has no episode {wanted}: there are {known}")
            self._episodes = [self._episodes[numbers.index(wanted)]]
        self.size = sum(one.length for one in self._episodes)

    # ------------------------------------------------------------------------------------- which episodes there are

    def _of_lerobot(self) -> list[Episode]:
        try:
            info = json.loads((self._path / INFO).read_text())
            version, fps = str(info["codebase_version"]), Fraction(str(info["fps"]))
            videos = [name for name, feature in info["features"].items() if feature["dtype"] == "video"]
            if fps <= 0:
                raise ValueError(f"fps is {info['fps']}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordingError(f"{self._path} is no LeRobot dataset: {INFO} cannot be understood: {error}") from error
        if not version.startswith("v3."):
            raise RecordingError(
                f"{self._path} is a LeRobot dataset of version {version}, and v3 is read: lerobot converts it, "
                "python -m lerobot.datasets.v30.convert_dataset_v21_to_v30"
            )
        self._fps = float(fps)
        for row in pq.read_table(self._path / "meta" / "tasks.parquet").to_pylist():
            number = row.pop("task_index")
            self._tasks[number] = next((text for text in row.values() if isinstance(text, str)), "")  # pandas' index
        of_videos = [
            f"videos/{name}/{key}" for name in videos for key in ("chunk_index", "file_index", "from_timestamp")
        ]
        columns = ["episode_index", "length", "dataset_from_index", "data/chunk_index", "data/file_index", *of_videos]
        found = []
        for path in sorted((self._path / "meta" / "episodes").glob("*/*.parquet")):
            for row in pq.read_table(path, columns=columns).to_pylist():
                number = row["episode_index"]
                first = row["dataset_from_index"] + number * -(-fps.numerator // fps.denominator)
                found.append(
                    Episode(
                        number, row["length"], _on_ticks(first, fps),
                        [self._file(info["data_path"], row, "data")],
                        {
                            name: (
                                self._file(info["video_path"], row, f"videos/{name}", video_key=name),
                                row[f"videos/{name}/from_timestamp"],
                            )
                            for name in videos
                        },
                    )
                )  # fmt: skip
        return sorted(found, key=lambda one: one.number)

    def _file(self, template: str, row: Mapping[str, Any], what: str, **more: str) -> Path:
        numbers = {name: row[f"{what}/{name}"] for name in ("chunk_index", "file_index")}
        return self._path / template.format(**numbers, **more)

    def _of_parquet(self) -> list[Episode]:
        """Rows with a `timestamp`, and an `episode_index` if there are several."""
        seen: dict[int, list[tuple[Path, list[float]]]] = {}
        for path in sorted(self._path.rglob("*.parquet")):
            names = pq.read_schema(path).names
            if "timestamp" not in names:
                raise RecordingError(
                    f"{path} has no column timestamp, in seconds since an episode's begin; it has {', '.join(names)}"
                )
            table = pq.read_table(path, columns=[name for name in ("episode_index", "timestamp") if name in names])
            numbers = table.column("episode_index").to_pylist() if "episode_index" in names else [0] * len(table)
            for number, seconds in zip(numbers, table.column("timestamp").to_pylist(), strict=True):
                if not (isinstance(seconds, int | float) and 0 <= seconds < _LONGEST_S):
                    raise RecordingError(f"{path} has the timestamp {seconds}: it is seconds since an episode's begin")
                parts = seen.setdefault(number, [])
                if not parts or parts[-1][0] != path:
                    parts.append((path, []))
                parts[-1][1].append(seconds)
        found, begin_us = [], BEGIN_US
        for number, parts in sorted(seen.items()):
            times = [at for _, part in parts for at in part]
            period_s = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 1.0
            found.append(Episode(number, len(times), _as_said(begin_us, times[-1] + period_s), [p for p, _ in parts]))
            begin_us += (int(times[-1] + period_s) + 2) * 1_000_000
        return found

    # ------------------------------------------------------------------------------------- their messages

    def pieces(self) -> Iterator[Piece]:
        with self._readable():
            for episode in self._episodes:
                yield from self._pieces_of(episode)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Around what a damaged data set makes fail."""
        try:
            yield
        except (FileNotFoundError, KeyError, pa.ArrowException) as error:
            raise RecordingError(f"{self._path} is damaged: {type(error).__name__}: {error}") from error

    def _pieces_of(self, episode: Episode) -> Iterator[Piece]:
        from ringmain.recording._import.video import frames_of

        videos = {
            name: frames_of(path, since_s, episode.length, self._fps)
            for name, (path, since_s) in episode.videos.items()
        }
        step, task = 0, None
        for rows in self._rows(episode):
            known = {name: rows.column(name).to_pylist() for name in _KEYS if name in rows.schema.names}
            for n in range(len(rows)):
                piece, number = Piece(), known["task_index"][n] if "task_index" in known else None
                if self._is_lerobot and (step == episode.length or known["frame_index"][n] != step):
                    raise RecordingError(
                        f"{self._path} is damaged: episode {episode.number} has step {known['frame_index'][n]} where "
                        f"step {step} of {episode.length} should be"
                    )
                at_us = episode.time_us(step, known["timestamp"][n])
                now = self._tasks.get(number, "") if number is not None else ""
                if step == 0:
                    self._add(piece, at_us, "episode/begin", EpisodeBegin(episode.number, now))
                if now and now != task:
                    self._add(piece, at_us, "task", now)
                    task = now
                for name, column in zip(rows.schema.names, rows.columns, strict=True):
                    if name not in _KEYS and column[n].is_valid:
                        self._add(piece, at_us, name, self._value(name, column[n].as_py(), column.type))
                for name, frames in videos.items():
                    self._add(piece, at_us, name, _Picture(next(frames)))
                step += 1
                yield piece
            self.read += len(rows)
        if step != episode.length:
            raise RecordingError(
                f"{self._path} is damaged: episode {episode.number} has {step} steps, and should have {episode.length}"
            )
        piece = Piece()
        self._add(piece, episode.time_us(step, float("inf")), "episode/end", EpisodeEnd(episode.number))
        yield piece

    def _rows(self, episode: Episode) -> Iterator[pa.RecordBatch]:
        """The steps of an episode, in order."""
        for path in episode.files:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_ROWS):
                    if "episode_index" in batch.schema.names:
                        batch = batch.filter(pc.equal(batch.column("episode_index"), episode.number))
                    if len(batch):
                        yield batch

    def _value(self, name: str, value: Any, type_: pa.DataType) -> Any:
        """As a topic has it: a text, a picture, or an array of one dimension or more."""
        import numpy as np

        if isinstance(value, str):
            return value
        if isinstance(value, dict) and value.keys() == _PICTURE:
            return _decoded(value["bytes"] or (self._path / value["path"]).read_bytes())
        if isinstance(type_, pa.BaseExtensionType):
            type_ = type_.storage_type
        while pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
            type_ = type_.value_type
        if not (pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_)):
            raise RecordingError(f"{self._path}: {name} is of {type_}, and no numbers, text or picture")
        return np.atleast_1d(np.array(value, type_.to_pandas_dtype()))

    def _add(self, piece: Piece, at_us: int, topic: str, value: Any) -> None:
        if topic not in self._topics:
            channel, encode = _how(topic, value)
            self._topics[topic] = len(self._topics), encode
            self.channels[len(self.channels)] = channel
        number, encode = self._topics[topic]
        piece.add(number, at_us * 1000, at_us * 1000, encode(value))


@dataclass(slots=True)
class _Picture:
    pixels: np.ndarray[Any, Any]


def _how(topic: str, value: Any) -> tuple[Channel, Callable[[Any], bytes]]:
    """The channel of a topic with such values, and what makes them payloads."""
    if isinstance(value, _Picture):
        return Channel(topic, "", contract=FRAMES), _frame
    type_: Any = type(value)
    if hasattr(value, "dtype"):
        import numpy as np

        type_ = np.ndarray[Any, np.dtype[value.dtype.type]]
    codec = typed.codec_for(type_)
    channel = Channel(topic, RINGMAIN, codec.schema.type_name, RINGMAIN, codec.schema.to_bytes())
    return channel, lambda each: bytes(codec.encode(each))


def _frame(picture: _Picture) -> bytes:
    height, width = picture.pixels.shape[:2]
    trailer = msgspec.msgpack.encode(Trailer(FrameLayout.of_image("rgb", width, height), 0, 0, 0, True, {}))
    return b"".join((picture.pixels.tobytes(), trailer, END.pack(len(trailer), MARK)))


def _decoded(file: bytes) -> _Picture:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("pictures need pillow: pip install 'ringmain[video]'", name="PIL") from error
    import numpy as np

    with Image.open(BytesIO(file)) as opened:
        return _Picture(np.asarray(opened.convert("RGB")))


def _on_ticks(first: int, fps: Fraction) -> Callable[[int, float], int]:
    """Steps are periods apart, counted from BEGIN_US."""
    return lambda step, _: BEGIN_US + (first + step) * 1_000_000 * fps.denominator // fps.numerator


def _as_said(begin_us: int, end_s: float) -> Callable[[int, float], int]:
    return lambda _, seconds: begin_us + round(min(seconds, end_s) * 1e6)
