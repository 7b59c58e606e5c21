"""As users have it: the wheel in an environment of its own, Spark Connect, declarative pipelines; each in a process."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyspark
import pytest

from ringmain.lake import Lake
from ringmain.lake._ledger import Ledger
from tests.spark.recordings import record, rows

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

READ = """
import sys
import ringmain, ringmain.spark
print("ringmain is", ringmain.__file__)
spark = ringmain.spark.session(**({} if "connect" in sys.argv else {"spark.master": "local[2]"}))
table = spark.read.format("ringmain").load(sys.argv[1])
print("kind", type(spark).__module__)
print("rows", table.where("topic = 'a'").count(), ringmain.spark.read(spark, sys.argv[1]).count())
query = (spark.readStream.format("ringmain").load(sys.argv[1]).writeStream.format("noop")
    .option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start())
print("streamed", query.awaitTermination(300))
spark.stop()
"""


def run(command: list[str], **variables: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        command, env={**environment, **variables}, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_the_wheel_is_found_without_registering(tmp_path: Path) -> None:
    """A new environment that has the built wheel, and the packages of this one, but not this source tree."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run([*build, "--config-settings", f"build-dir={tmp_path / 'build'}", "-w", str(tmp_path), str(ROOT)])
    (wheel,) = tmp_path.glob("*.whl")
    run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")])
    python = tmp_path / "venv" / "bin" / "python"
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)])
    # A line of a .pth adds a directory without what that directory's own .pth files would add: this source tree.
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    path = record(tmp_path / "r", ("a", 1, rows(0, 50)), ("b", 1, rows(0, 30)), seal=False)
    out = run([str(python), "-c", READ, str(path), str(tmp_path / "check")])
    assert f"ringmain is {site}" in out
    assert "rows 50 80" in out
    assert "streamed True" in out


def test_spark_connect(tmp_path: Path) -> None:
    """SPARK_REMOTE is respected: the session is a Connect client, and the source works through it."""
    pytest.importorskip("grpc")
    path = record(tmp_path / "r", ("a", 1, rows(0, 50)), ("b", 1, rows(0, 30)), seal=False)
    out = run([sys.executable, "-c", READ, str(path), str(tmp_path / "check"), "connect"], SPARK_REMOTE="local[2]")
    assert "kind pyspark.sql.connect" in out
    assert "rows 50 80" in out
    assert "streamed True" in out


PIPELINE = """
import sys
import ringmain.spark
from ringmain.pipeline import Pipeline
spark = ringmain.spark.session()
pipeline = Pipeline()
@pipeline.on("a", table="late")
def late(frame): return frame.where("rm_seq >= 40")
print(type(spark).__module__, pipeline.run(sys.argv[1], sys.argv[2], spark=spark, split_bytes=1))
print("steps", ringmain.spark.read_lake(spark, sys.argv[2], "steps/late").count())
spark.stop()
"""


def test_the_pipeline_through_spark_connect(tmp_path: Path) -> None:
    """A server on this machine runs the tasks, and the ledger says which."""
    pytest.importorskip("grpc")
    path = record(tmp_path / "r", ("a", 1, rows(0, 50)), ("b", 1, rows(0, 30)))
    out = run([sys.executable, "-c", PIPELINE, str(path), str(tmp_path / "lake")], SPARK_REMOTE="local[2]")
    assert "pyspark.sql.connect" in out
    assert "80 rows in = 80 out" in out
    assert "steps 10" in out
    (batch,) = Ledger(Lake(str(tmp_path / "lake"))).batches()
    assert (batch.engine, batch.engine_version) == ("spark", pyspark.__version__)
    assert batch.application.startswith("local-")


PROGRESS = """
import sys, time
from pathlib import Path
import ringmain.spark
from ringmain.spark import _tasks
from ringmain.spark._session import cores_of
_tasks.PROGRESS_S = 0.05
spark = ringmain.spark.session(**{"spark.connect.progress.reportInterval": "100ms"})
told = Path(sys.argv[1])
def wait(number):
    while not told.exists():
        time.sleep(0.05)
    return number
def progress(done, tasks):
    print(done, "of", tasks)
    told.touch()
print(_tasks.run_numbered(spark, 5, wait, int, "group", "about", progress), cores_of(spark))
spark.stop()
"""


def test_spark_connect_says_how_far_it_is(tmp_path: Path) -> None:
    """Its tasks wait until the server has told how many of them are done. It is known how many it runs at once."""
    pytest.importorskip("grpc")
    out = run([sys.executable, "-c", PROGRESS, str(tmp_path / "told")], SPARK_REMOTE="local[2]").splitlines()
    assert (out[0], out[-1]) == ("0 of 5", "[0, 1, 2, 3, 4] 2")


def test_the_example_with_declarative_pipelines(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    path = record(tmp_path / "r", ("a", 1, rows(0, 50)), ("b", 1, rows(0, 30)))
    from ringmain.spark._java import find_java

    folder = tmp_path / "declarative"
    run(["cp", "-r", str(ROOT / "examples" / "declarative"), str(folder)])
    text = (folder / "spark-pipeline.yml").read_text()
    (folder / "spark-pipeline.yml").write_text(text.replace("file:///tmp/ringmain-declarative", f"file://{tmp_path}/s"))
    tool = Path(sys.executable).parent / "spark-pipelines"
    warehouse = f"spark.sql.warehouse.dir={tmp_path}/warehouse"
    metastore = f"spark.hadoop.javax.jdo.option.ConnectionURL=jdbc:derby:;databaseName={tmp_path}/meta;create=true"
    run(
        [
            str(tool), "run", "--spec", str(folder / "spark-pipeline.yml"), "--remote", "local[2]",
            "--conf", "spark.sql.catalogImplementation=hive", "--conf", warehouse, "--conf", metastore,
        ],
        RECORDINGS=str(path), JAVA_HOME=str(find_java().home), PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1", PATH=f"{tool.parent}:{os.environ['PATH']}",
    )  # fmt: skip
    import pyarrow.dataset as ds

    totals = ds.dataset(tmp_path / "warehouse" / "topics", format="parquet", exclude_invalid_files=True).to_table()
    assert dict(zip(totals["topic"].to_pylist(), totals["messages"].to_pylist(), strict=True)) == {"a": 50, "b": 30}
