"""The tests of the pipeline share Spark's session and runtime directory with those of `ringmain.spark`."""

from __future__ import annotations

from tests.spark.conftest import runtime_dir as runtime_dir
