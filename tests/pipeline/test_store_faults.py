"""The lake's store fails while the pipeline writes: errors for a while, no answer, answers that take long, no space.
Each message is in the lake once when it is over, or there is a sentence that says what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmain.errors import LakeError
from ringmain.lake import Lake
from ringmain.pipeline import Pipeline
from tests.pipeline.test_faults import check, record_two
from tests.recording.conftest import small_disk as small_disk
from tests.store import Door, storage_options


@pytest.fixture
def door(s3_endpoint: str) -> Iterator[Door]:
    with Door(s3_endpoint) as made:
        yield made


@pytest.mark.parametrize("answer", [500, 503, "gone"])
def test_a_store_that_fails_for_a_while(door: Door, tmp_path: Path, answer: int | str) -> None:
    """Once after the first batch; the store's client tries again, and so might a user."""
    record_two(tmp_path / "recs")
    lake = Lake(f"s3://lakes/{tmp_path.name}", storage_options(door.endpoint))
    lines: list[str] = []

    def fail(line: str) -> None:
        lines.append(line)
        if len(lines) == 1:
            door.fail(answer, times=3)

    Pipeline().run(tmp_path / "recs", lake, max_bytes_per_batch="20KiB", progress=fail, engine="local")
    assert door.refused() == 3
    check(lake)


def test_a_store_that_stays_gone_is_told(door: Door, tmp_path: Path) -> None:
    """In a sentence without credentials; the next run goes on."""
    record_two(tmp_path / "recs")
    options = {**storage_options(door.endpoint), "AWS_SECRET_ACCESS_KEY": "hidden", "max_retries": "1"}
    lake = Lake(f"s3://lakes/{tmp_path.name}", options)

    def fail(line: str) -> None:
        door.fail(500)

    with pytest.raises(LakeError, match=f"the lake at s3://lakes/{tmp_path.name} cannot be reached") as said:
        Pipeline().run(tmp_path / "recs", lake, max_bytes_per_batch="20KiB", progress=fail, engine="local")
    assert "hidden" not in str(said.value)
    assert "\n" not in str(said.value)
    door.mend()
    Pipeline().run(tmp_path / "recs", lake, engine="local")
    check(lake)


def test_a_slow_store(door: Door, tmp_path: Path) -> None:
    record_two(tmp_path / "recs")
    door.slow(0.01)
    lake = Lake(f"s3://lakes/{tmp_path.name}", storage_options(door.endpoint))
    Pipeline().run(tmp_path / "recs", lake, engine="local")
    check(lake)


def test_a_full_disk(small_disk: Path | None, tmp_path: Path) -> None:
    if small_disk is None:
        pytest.skip("no file system can be mounted here")
    record_two(tmp_path / "recs")
    filling = small_disk / "filling"
    filling.write_bytes(bytes(960 << 10))
    with pytest.raises(LakeError, match=r"the lake at .* cannot be written: .*No space left"):
        Pipeline().run(tmp_path / "recs", small_disk / "lake", max_bytes_per_batch="20KiB", engine="local")
    filling.unlink()
    Pipeline().run(tmp_path / "recs", small_disk / "lake", engine="local")
    check(Lake(str(small_disk / "lake")))
