"""With torch itself: its DataLoader, with workers that are forked and spawned, gives what the windows are.

`make test-torch` runs these: torch is large, so it is not among what the other tests need.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ringmain.datasets import WindowStream
from tests.datasets.test_windows import GRID, TASKS, drive, windows

pytestmark = pytest.mark.torch


@pytest.fixture(name="loader")
def _loader() -> Any:
    from torch.utils.data import DataLoader

    return DataLoader


@pytest.mark.parametrize("workers", [0, "fork", "spawn"])
@pytest.mark.parametrize("tensors", [False, True])
def test_a_loader_gives_the_batches_of_an_order(tmp_path: Path, loader: Any, workers: Any, tensors: bool) -> None:
    found = windows(drive(tmp_path / "r"), tensors=tensors)
    order = found.order(seed=2)
    options = {"num_workers": 2, "multiprocessing_context": workers} if workers else {}
    epochs = [list(loader(found, batch_size=8, sampler=order, **options)) for _ in range(2)]
    again = found.order(seed=2)
    for batches in epochs:
        for batch, numbers in zip(batches, again.batches(8), strict=True):
            expected = found.batch(numbers)
            assert batch.keys() == expected.keys()
            for name, values in expected.items():
                np.testing.assert_array_equal(np.asarray(batch[name]), np.asarray(values))


def test_tensors_are_in_place(tmp_path: Path) -> None:
    import torch

    found = windows(drive(tmp_path / "r"), tensors=True)
    one = found[3]
    assert {type(value) for value in one.values()} == {torch.Tensor}
    assert one["state.position"].data_ptr() == found[3]["state.position"].data_ptr()
    assert one["camera_front"].dtype == torch.uint8
    batch = found.batch([0, 1])
    assert found.batch([3, 4], out=batch) is batch
    assert torch.equal(batch["state.position"][0], one["state.position"])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_workers_of_a_stream_divide_its_episodes(tmp_path: Path, loader: Any, method: str) -> None:
    path = drive(tmp_path / "r")

    def steps(**options: Any) -> list[float]:
        stream = WindowStream(path, grid=GRID, episodes=TASKS, topics=["action"], length=4)
        batches = loader(stream.torch(), batch_size=None, **options)
        return [float(one["action.steer"][0]) for one in batches]

    assert sorted(steps(num_workers=2, multiprocessing_context=method)) == steps()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_workers_of_a_stream_that_follows_divide_its_episodes(tmp_path: Path, loader: Any, method: str) -> None:
    options: Any = {"grid": GRID, "episodes": TASKS, "topics": ["action"], "length": 4}
    path = drive(tmp_path / "r")
    stream = WindowStream(path, follow=True, settle_s=0.05, idle_timeout_s=0.3, **options)
    found = loader(stream.torch(), batch_size=None, num_workers=2, multiprocessing_context=method)
    expected = [float(one["action.steer"][0]) for one in WindowStream(path, **options)]
    assert sorted(float(one["action.steer"][0]) for one in found) == expected


def test_a_loader_that_ended_early_goes_on_where_it_was(tmp_path: Path, loader: Any) -> None:
    """Its workers have loaded more than was trained on: `taken` says how much."""
    found = windows(drive(tmp_path / "r"), topics=["action"])
    whole = [batch["action.steer"].tolist() for batch in loader(found, batch_size=4, sampler=found.order(seed=1))]
    order = found.order(seed=1)
    early = iter(loader(found, batch_size=4, sampler=order, num_workers=2, multiprocessing_context="fork"))
    head = [next(early)["action.steer"].tolist() for _ in range(3)]
    state = msgspec.json.decode(msgspec.json.encode(order.state_dict(taken=3 * 4)))
    rest = found.order(seed=1)
    rest.load_state_dict(state)
    assert head + [batch["action.steer"].tolist() for batch in loader(found, batch_size=4, sampler=rest)] == whole
