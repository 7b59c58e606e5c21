"""One Spark session for the tests of `ringmain.spark` and `ringmain.pipeline`: starting one takes seconds."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts Spark is for `make test-spark`, but for a few tests that show the whole way and are in every run."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("each_run") is None:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def runtime_dir_of_session() -> Iterator[Path]:
    """Spark's workers inherit the environment of the JVM, so topics of all Spark tests live in one place."""
    path = Path(tempfile.mkdtemp(prefix="ringmain-spark-", dir="/dev/shm"))
    before = os.environ.get("RINGMAIN_DIR")
    os.environ["RINGMAIN_DIR"] = str(path)
    yield path
    if before is None:
        del os.environ["RINGMAIN_DIR"]
    else:
        os.environ["RINGMAIN_DIR"] = before
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def spark(runtime_dir_of_session: Path) -> Iterator[Any]:
    pytest.importorskip("pyspark")
    import ringmain.spark

    made = ringmain.spark.session(master="local[2]", brief=True, **{"spark.driver.memory": "3g"})
    yield made
    made.stop()
