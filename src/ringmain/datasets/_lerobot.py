"""Episodes as a LeRobot v3 dataset, written through lerobot's own API, which must be installed.

    action                      all numbers of the topics that are actions, one after another, as float32
    observation.state           those of all other topics; `names` says of both which number is which
    observation.images.NAME     frames and pictures, as a video, or as PNG in Parquet
    observation.NAME            what has two dimensions and more, as it is

The invariant owned here: *step n of an episode is at n / fps*, in Parquet and in the videos, whose frames are counted
and whose times are looked at once they are written. LeRobot knows no other times, so a stretch of steps without a null
is an episode of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from ringmain.datasets._grid import label_of
from ringmain.errors import InvalidArgument, RecordingError
from ringmain.recording._import.video import count_frames, only_errors

if TYPE_CHECKING:
    from ringmain.datasets._store import Store

DEFAULT_CODEC = "libsvtav1"
PNG = "png"
SOURCES = "meta/ringmain.json"
"""Of each episode where its steps are from, which LeRobot has no place for."""
_STEPS = 64  # of which the pixels are in memory at a time


class Recipe(NamedTuple):
    """What a LeRobot dataset says besides its steps."""

    fps: float
    task: str
    """What was to be done, in words; `{name}` is the label of an episode."""
    codec: str
    actions: Sequence[str] | None
    """The topics that are actions; None: those that begin with `action`."""


class _Layout(NamedTuple):
    """Which of our features make those of LeRobot."""

    vectors: dict[str, list[str]]
    arrays: dict[str, str]
    pictures: dict[str, str]


def export(store: Store, runs: Sequence[int], directory: Path, recipe: Recipe) -> tuple[int, int, int]:
    """(episodes, steps, files)."""
    dataset_class = _lerobot()
    if recipe.fps != int(recipe.fps):
        raise InvalidArgument(f"LeRobot counts whole frames a second, and the grid has {recipe.fps:g}")
    if not recipe.task:
        raise InvalidArgument(
            "a LeRobot dataset says what was to be done: task='fold the towel', or the label '{name}'"
        )
    kinds = store.index.features
    layout = _layout(kinds, recipe.actions)
    if recipe.codec != PNG:
        _check_sizes(kinds, layout)
    only_errors()
    draft = directory.with_name(f".{directory.name}.{os.getpid()}")
    dataset: Any = None
    try:
        dataset = dataset_class.create(
            f"ringmain/{directory.name}", int(recipe.fps), _features(kinds, layout, recipe.codec), root=draft,
            use_videos=recipe.codec != PNG and bool(layout.pictures),
            **({} if recipe.codec == PNG else {"vcodec": recipe.codec}),
        )  # fmt: skip
        sources, steps = [], 0
        for run in runs:
            known = store.index.runs[run]
            episode = store.index.episodes[known.episode]
            task = _task(recipe.task, episode.labels)
            for frame in _frames(store, run, layout):
                dataset.add_frame({**frame, "task": task})
            dataset.save_episode(parallel_encoding=False)
            begin_us = int(store.times_us(run, 0, 1)[0])
            sources.append(
                {"episode": episode.id, "host": episode.host, "first_step": known.first, "begin_us": begin_us}
            )
            steps += known.steps
        dataset.finalize()
        (draft / SOURCES).write_bytes(msgspec.json.encode(sources))
        shutil.rmtree(draft / "images", ignore_errors=True)  # lerobot's own, empty by now
        for feature in layout.pictures if recipe.codec != PNG else ():
            _check_video(draft, feature, recipe.fps, steps)
        os.rename(draft, directory)
    except BaseException:
        if dataset is not None:
            with suppress(Exception):
                dataset.finalize()  # or its destructor would write what is left, once the directory is gone
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return len(runs), steps, sum(path.is_file() for path in directory.rglob("*"))


def _lerobot() -> Any:
    try:
        from lerobot.datasets.lerobot_dataset import LeRobotDataset
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"a LeRobot dataset is written by lerobot itself, and {error.name} is not installed: "
            "pip install 'ringmain[lerobot]'",
            name=error.name,
        ) from error
    return LeRobotDataset


def _layout(kinds: Mapping[str, tuple[str, tuple[int, ...]]], actions: Sequence[str] | None) -> _Layout:
    found = _Layout({}, {}, {})
    labels = None if actions is None else {label_of(topic) for topic in actions}
    unknown = (labels or set()) - {name.partition(".")[0] for name in kinds}
    if unknown:
        wanted = ", ".join(sorted(unknown))
        raise InvalidArgument(f"no topic {wanted} to be an action: there are {', '.join(kinds)}", topic=wanted)
    for name, (dtype, shape) in kinds.items():
        label = name.partition(".")[0]
        is_action = label.startswith("action") if labels is None else label in labels
        if _is_picture(dtype, shape):
            found.pictures[f"observation.images.{name}"] = name
        elif len(shape) > 1:
            found.arrays[f"action.{name}" if is_action else f"observation.{name}"] = name
        elif name.startswith("rm_"):
            found.vectors.setdefault("observation.ages_ms", []).append(name)
        else:
            found.vectors.setdefault("action" if is_action else "observation.state", []).append(name)
    if actions is None and not any(feature.startswith("action") for feature in (*found.vectors, *found.arrays)):
        raise InvalidArgument(
            "no topic's name begins with 'action', and a policy must not see among its observations what it is to do: "
            "say which are actions, as actions=['cmd_vel'], or actions=[] if none is"
        )
    return found


def _check_sizes(kinds: Mapping[str, tuple[str, tuple[int, ...]]], layout: _Layout) -> None:
    """Encoders would fail in the middle, with a number."""
    for name in layout.pictures.values():
        height, width = kinds[name][1][:2]
        if height % 2 or width % 2:
            raise InvalidArgument(
                f"{name} has {width} x {height} pixels, and a video has colours for two by two: use codec='png'"
            )


def _is_picture(dtype: str, shape: tuple[int, ...]) -> bool:
    return np.dtype(dtype) == np.uint8 and (len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4)))


def _features(kinds: Mapping[str, tuple[str, tuple[int, ...]]], layout: _Layout, codec: str) -> dict[str, Any]:
    """As LeRobot describes them."""
    made: dict[str, Any] = {}
    for feature, names in layout.vectors.items():
        numbers = [n for name in names for n in _numbers(name, kinds[name][1])]
        made[feature] = {"dtype": "float32", "shape": (len(numbers),), "names": numbers}
    for feature, name in layout.arrays.items():
        made[feature] = {"dtype": np.dtype(kinds[name][0]).name, "shape": kinds[name][1], "names": None}
    for feature, name in layout.pictures.items():
        height, width = kinds[name][1][:2]
        made[feature] = {
            "dtype": "image" if codec == PNG else "video",
            "shape": (height, width, 3),
            "names": ["height", "width", "channels"],
        }
    return made


def _numbers(name: str, shape: tuple[int, ...]) -> list[str]:
    return [f"{name}.{n}" for n in range(shape[0])] if shape else [name]


def _frames(store: Store, run: int, layout: _Layout) -> Iterator[dict[str, Any]]:
    """The steps of a run, as lerobot takes them."""
    for start in range(0, store.index.runs[run].steps, _STEPS):
        count = min(_STEPS, store.index.runs[run].steps - start)
        values = store.read(run, start, count)
        vectors = {
            feature: np.concatenate([values[name].reshape(count, -1) for name in names], axis=1).astype(np.float32)
            for feature, names in layout.vectors.items()
        }
        for n in range(count):
            yield {
                **{feature: vector[n] for feature, vector in vectors.items()},
                **{feature: np.asarray(values[name][n]) for feature, name in layout.arrays.items()},
                **{feature: _rgb(values[name][n]) for feature, name in layout.pictures.items()},
            }


def _rgb(pixels: np.ndarray) -> np.ndarray:
    return np.stack([pixels] * 3, axis=2) if pixels.ndim == 2 else np.ascontiguousarray(pixels[..., :3])


def _task(text: str, labels: str) -> str:
    known = msgspec.json.decode(labels)
    there = ", ".join(known) or "none"
    try:
        made = text.format_map(known)
    except KeyError as error:
        raise InvalidArgument(f"task={text!r}: an episode has no label {error}, it has: {there}") from error
    except (ValueError, AttributeError, TypeError, IndexError) as error:
        raise InvalidArgument(f"task={text!r}: {error}; {{name}} is a label, {{{{ a brace; labels: {there}") from error
    if not made.strip():
        raise InvalidArgument(f"task={text!r}: an episode's labels make it empty: {labels}")
    return made


def _check_video(directory: Path, feature: str, fps: float, steps: int) -> None:
    """Has a camera a frame for every step, where it must be?"""
    frames = sum(count_frames(path, fps) for path in (directory / "videos" / feature).rglob("*.mp4"))
    if frames != steps:
        raise RecordingError(f"the video of {feature} has {frames} frames, for {steps} steps")
