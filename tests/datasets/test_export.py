"""Episodes as files: the same steps as the grid has, pictures pixel by pixel."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import ringmain as rm
from ringmain._cli.main import main
from ringmain.datasets import build, cells
from ringmain.lake import Lake
from ringmain.pipeline import run
from tests.datasets.test_windows import GRID, TASKS, drive, windows


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))


def check(rows: list[dict[str, Any]], path: Path) -> None:
    expected = cells(path, GRID, TASKS).to_pylist()
    assert len(rows) == len(expected)
    begins: dict[str, int] = {}
    for row, cell in zip(rows, expected, strict=True):
        number = begins.setdefault(cell["rm_episode"], len(begins))
        assert (row["episode_index"], row["frame_index"], row["episode"]) == (
            number,
            cell["rm_step"],
            cell["rm_episode"],
        )
        begin_us = int(cell["rm_episode"].partition("@")[2].partition("-")[0])
        assert row["timestamp"] == pytest.approx(cell["rm_time"].timestamp() - begin_us / 1e6, abs=2e-6)
        assert row["state.position"] == list(cell["state"]["position"].values())
        assert row["action.steer"] == cell["action"]["steer"]
        newest = ([np.nan] * 2 + [list(one["acceleration"].values()) for one in cell["imu"]])[-2:]
        if len(cell["imu"]) > 1:
            assert row["imu.acceleration"] == newest
        assert (row["camera"] == cell["camera_front"]["rm_payload"][0]).all()


def test_parquet_has_the_steps_of_the_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = drive(tmp_path / "r")
    monkeypatch.setattr("ringmain.datasets._export.FILE_BYTES", 1)  # a file for each episode
    monkeypatch.setattr("ringmain.datasets._export._STEPS", 7)
    done = windows(path).export(tmp_path / "out" / "all")
    files = sorted((tmp_path / "out" / "all").iterdir())
    assert (done.episodes, done.files, [one.name for one in files][:1]) == (3, 3, ["train-00000.parquet"])
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["all"]
    rows = [row for one in files for row in pq.read_table(one).to_pylist()]
    for row in rows:
        row["camera"] = pixels(row["camera_front"]["bytes"])
    check(rows, path)
    known = json.loads(pq.read_schema(files[0]).metadata[b"huggingface"])["info"]["features"]
    assert known["camera_front"] == {"_type": "Image"}
    assert known.keys() == set(pq.read_schema(files[0]).names)
    with pytest.raises(rm.InvalidArgument, match="is there already"):
        windows(path).export(tmp_path / "out" / "all")


def test_tar_has_the_steps_of_the_grid(tmp_path: Path) -> None:
    path = drive(tmp_path / "r")
    done = windows(path).export(tmp_path / "all", "tar")
    assert (done.episodes, done.files) == (3, 1)
    with tarfile.open(tmp_path / "all" / "train-00000.tar") as opened:
        files = {one.name: opened.extractfile(one).read() for one in opened.getmembers()}  # type: ignore[union-attr]
    rows = []
    for name, data in files.items():
        key, _, kind = name.partition(".")
        if kind == "json":
            rows.append(json.loads(data) | {"camera": pixels(files[f"{key}.camera_front.png"])})
    assert len(files) == 2 * done.steps
    check(rows, path)


def test_what_is_interrupted_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(pixels: Any) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr("ringmain.datasets._export.png", fail)
    with pytest.raises(KeyboardInterrupt):
        windows(drive(tmp_path / "r")).export(tmp_path / "out" / "all")
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(rm.InvalidArgument, match="choose 'parquet', 'tar' or 'lerobot'"):
        windows(tmp_path / "r").export(tmp_path / "all", "csv")  # type: ignore[arg-type]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = drive(tmp_path / "r")
    run(path, tmp_path / "lake", engine="local", progress=lambda line: None)
    build(Lake(str(tmp_path / "lake")), "pick", GRID, TASKS, engine="local")
    assert main(["export", str(tmp_path / "lake"), str(tmp_path / "out"), "--table", "pick", "--tar"]) == 0
    found = capsys.readouterr()
    assert "3 episodes" in found.out
    assert "left out: imu: a window of messages has no fixed number" in found.err
    assert (tmp_path / "out" / "train-00000.tar").is_file()
    assert "refused" not in found.err
    assert main(["export", str(tmp_path / "lake"), "--table", "pick"]) == 2
    assert main(["export", str(path), str(tmp_path / "x.mcap"), "--tar"]) == 2
    assert main(["export", str(path), str(tmp_path / "x.mcap"), "--fps", "30"]) == 2
    assert main(["play", str(path), "--episode", "1"]) == 2
