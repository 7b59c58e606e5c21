"""Makes tests/golden/lerobot/v3.0: a small LeRobot dataset, written by lerobot alone, kept for good.

PYTHONPATH=build/lerobot python -m tests.recording.golden_lerobot
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).parents[1] / "golden" / "lerobot" / "v3.0"
FPS, SIDE = 10, 64
STEPS = (12, 9)
TASKS = ("fold the towel", "fold the shirt")


def state_of(episode: int, step: int) -> np.ndarray[Any, Any]:
    return np.array([episode, step / 4, -step], np.float32)


def action_of(episode: int, step: int) -> np.ndarray[Any, Any]:
    return np.array([10 * episode + step], np.float32)


def picture_of(episode: int, step: int) -> np.ndarray[Any, Any]:
    """No two are as bright."""
    return np.full((SIDE, SIDE, 3), 16 + 100 * episode + 8 * step, np.uint8)


def write(directory: Path, codec: str = "libsvtav1") -> None:
    """A camera as video, another one in Parquet. The task of an episode's last three steps is to rest."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    picture = {"shape": (SIDE, SIDE, 3), "names": ["height", "width", "channels"]}
    features = {
        "observation.state": {"dtype": "float32", "shape": (3,), "names": ["x", "y", "z"]},
        "observation.images.front": {"dtype": "video", **picture},
        "observation.images.wrist": {"dtype": "image", **picture},
        "action": {"dtype": "float32", "shape": (1,), "names": ["turn"]},
    }
    dataset = LeRobotDataset.create("ringmain/golden", FPS, features, root=directory, vcodec=codec)
    for episode, steps in enumerate(STEPS):
        for step in range(steps):
            pixels = picture_of(episode, step)
            dataset.add_frame(
                {
                    "observation.state": state_of(episode, step), "action": action_of(episode, step),
                    "observation.images.front": pixels, "observation.images.wrist": pixels,
                    "task": TASKS[episode] if step < steps - 3 else "rest",
                }
            )  # fmt: skip
        dataset.save_episode(parallel_encoding=False)
    dataset.finalize()


if __name__ == "__main__":
    if GOLDEN.exists():
        raise SystemExit(f"{GOLDEN} exists: a golden file is never made anew")
    GOLDEN.parent.mkdir(parents=True, exist_ok=True)
    write(GOLDEN)
