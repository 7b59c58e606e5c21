"""A real standalone cluster on loopback, one master and two workers, each a process of its own: the source and the
pipeline run on executors that share nothing with the driver but the file system. One of them is killed at its work."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ringmain.lake import Lake
from tests.spark.recordings import record, rows, writer

pyspark = pytest.importorskip("pyspark")

DRIVER = """
import json, sys
import ringmain.spark
from ringmain.lake import Lake
from ringmain.pipeline import Pipeline

master, recordings, lake, options = sys.argv[1:]
spark = ringmain.spark.session(master=master, **{
    "spark.executor.cores": 1, "spark.executor.memory": "512m", "spark.driver.memory": "1g", "spark.cores.max": 2,
    "spark.sql.shuffle.partitions": 2})
def who(batches):
    import os, pandas as pd
    for _ in batches: yield pd.DataFrame({"parent": [os.getppid()]})
print("summary", Pipeline().run(recordings, Lake(lake, json.loads(options)), spark=spark, split_bytes=1))
print("executors", spark.range(0, 8, 1, 8).mapInPandas(who, "parent long").distinct().count())
spark.stop()
"""


def free_port() -> int:
    with closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_for_line(log: Path, text: str, timeout_s: float = 120) -> None:
    give_up = time.monotonic() + timeout_s
    while time.monotonic() < give_up:
        if log.exists() and text in log.read_text():
            return
        time.sleep(0.2)
    raise AssertionError(f"{log} never said {text!r}:\n{log.read_text() if log.exists() else '(nothing)'}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tmp_path = tmp_path_factory.mktemp("cluster")
    from ringmain.spark._java import find_java

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ, "SPARK_HOME": str(home), "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable, "SPARK_WORKER_DIR": str(tmp_path / "work"), "SPARK_DAEMON_MEMORY": "256m",
    }  # fmt: skip
    port, processes = free_port(), []
    started = "org.apache.spark.deploy"

    def start(name: str, *arguments: str) -> Path:
        log = tmp_path / f"{name}.log"
        with open(log, "w") as out:
            command = [str(home / "bin" / "spark-class"), *arguments]
            processes.append(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment))
        return log

    try:
        master = start("master", f"{started}.master.Master", "--host", "127.0.0.1", "--port", str(port),
                       "--webui-port", str(free_port()))  # fmt: skip
        wait_for_line(master, "I have been elected leader")
        for n in range(2):
            worker = start(f"worker{n}", f"{started}.worker.Worker", "--host", "127.0.0.1",
                           "--cores", "1", "--memory", "768m",
                           "--webui-port", str(free_port()), f"spark://127.0.0.1:{port}")  # fmt: skip
            wait_for_line(worker, "Successfully registered with master")
        yield f"spark://127.0.0.1:{port}"
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(60)


@pytest.mark.timeout(900)
@pytest.mark.spark
@pytest.mark.parametrize("where", ["disk", "s3"])
def test_the_pipeline_on_a_standalone_cluster(
    cluster: str, tmp_path: Path, where: str, request: pytest.FixtureRequest
) -> None:
    options = request.getfixturevalue("s3") if where == "s3" else {}
    lake = f"s3://lakes/{tmp_path.name}" if where == "s3" else str(tmp_path / "lake")
    for name, first in (("one", 0), ("two", 50)):
        made = writer(tmp_path / "recs" / name)
        made.declare("a", epoch=1)
        made.append("a", 1, rows(first, 100))
        made.close()
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, cluster, str(tmp_path / "recs"), lake, json.dumps(options)],
        capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert "200 rows in = 150 out + 0 quarantined + 50 duplicates" in done.stdout
    assert "executors 2" in done.stdout
    assert Lake(lake, options).to_duckdb().sql("select count(*), count(distinct rm_seq) from silver.a").fetchall() == [
        (150, 150)
    ]


KILLED = """
import os, sys, time
import ringmain.spark
from ringmain.pipeline import Pipeline, _batch

master, recordings, out = sys.argv[1:]
spark = ringmain.spark.session(master=master, **{
    "spark.executor.cores": 1, "spark.executor.memory": "512m", "spark.driver.memory": "1g", "spark.cores.max": 2})

class Slow(_batch.Work):
    # The task with number 1 waits, when it has written its files, at its first try, until its executor is killed.
    def run(self, number):
        report = super().run(number)
        if number == 1 and not os.path.exists(out + "/killed"):
            daemon = open(f"/proc/{os.getppid()}/stat").read()
            with open(out + "/victim.new", "w") as file:
                file.write(daemon.rpartition(")")[2].split()[1])
            os.rename(out + "/victim.new", out + "/victim")
            time.sleep(120)
        return report

_batch.Work = Slow
print("summary", Pipeline().run(recordings, out + "/lake", spark=spark, split_bytes=1))
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_pipeline_through_a_killed_executor(cluster: str, tmp_path: Path) -> None:
    """What the dead task has written is not in the table; its second try is."""
    record(tmp_path / "r", *[("a", 1, rows(n * 50, 50)) for n in range(4)])
    out = tmp_path / "out"
    out.mkdir()
    errors = kill_executor([sys.executable, "-c", KILLED, cluster, str(tmp_path / "r"), str(out)], out)
    lake = Lake(str(out / "lake"))
    found = lake.to_duckdb().sql("select count(*), count(distinct rm_seq) from silver.a").fetchall()
    assert found == [(200, 200)], errors
    assert len(list((out / "lake/silver/a").glob("*.parquet"))) == len(lake.files("silver/a")) + 1


STREAM = """
import os, sys, time
import ringmain.spark

master, recording, out = sys.argv[1:]
spark = ringmain.spark.session(master=master, **{
    "spark.executor.cores": 1, "spark.executor.memory": "512m", "spark.driver.memory": "1g", "spark.cores.max": 2})

def slow(batches):
    # The task that has message 150 waits, at its first try, until its executor has been killed.
    for batch in batches:
        seqs = batch.column("seq").to_pylist()
        if 150 in seqs and not os.path.exists(out + "/killed"):
            daemon = open(f"/proc/{os.getppid()}/stat").read()
            with open(out + "/victim.new", "w") as file:
                file.write(daemon.rpartition(")")[2].split()[1])
            os.rename(out + "/victim.new", out + "/victim")
            give_up = time.monotonic() + 120
            while time.monotonic() < give_up:
                time.sleep(0.1)
            raise TimeoutError("nobody killed this executor")
        yield batch

def keep(frame, batch):
    found = frame.select("seq").mapInArrow(slow, "seq long").toPandas()
    found.to_csv(f"{out}/{batch:04d}.csv", index=False)

query = (spark.readStream.format("ringmain").option("maxRowsPerTrigger", 100).load(recording)
    .writeStream.foreachBatch(keep).option("checkpointLocation", out + "/check").trigger(availableNow=True).start())
query.awaitTermination()
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_exactly_once_through_a_killed_executor(cluster: str, tmp_path: Path) -> None:
    """SIGKILL to the executor in the middle of a task: Spark runs the task elsewhere, and every row is there once."""
    path = record(tmp_path / "r", *[("a", 1, rows(n * 50, 50)) for n in range(6)], seal=False)
    out = tmp_path / "out"
    out.mkdir()
    kill_executor([sys.executable, "-c", STREAM, cluster, str(path), str(out)], out)
    found = sorted(int(n) for file in out.glob("*.csv") for n in file.read_text().split()[1:])
    assert found == list(range(300))


def kill_executor(command: list[str], out: Path) -> str:
    """Run a driver, and kill the executor whose pid a task writes to `victim`. Returns what the driver says."""
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        give_up = time.monotonic() + 400
        while not (out / "victim").exists():
            assert driver.poll() is None, driver.stderr.read()[-4000:] if driver.stderr else ""
            assert time.monotonic() < give_up, "the task never began"
            time.sleep(0.1)
        victim = int((out / "victim").read_text())
        assert "CoarseGrainedExecutorBackend" in Path(f"/proc/{victim}/cmdline").read_text()
        (out / "killed").touch()
        os.kill(victim, signal.SIGKILL)
        _, errors = driver.communicate(timeout=400)
    finally:
        driver.kill()
        driver.communicate()
    assert driver.returncode == 0, errors[-4000:]
    return errors


WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "ringmain":
            raise ModuleNotFoundError("No module named 'ringmain'", name="ringmain")

sys.meta_path.insert(0, Without())
"""
TOLD = """
import os, sys
import ringmain.spark
from ringmain.pipeline import Pipeline

recordings, folder = sys.argv[1:]
os.environ["PYTHONPATH"] = folder
Pipeline().run(recordings, folder + "/lake", split_bytes=1)
"""


@pytest.mark.spark
def test_workers_without_ringmain_are_told(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    path = record(tmp_path / "r", ("a", 1, rows(0, 50)), ("a", 1, rows(50, 50)))
    done = subprocess.run(
        [sys.executable, "-c", TOLD, str(path), str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ringmain.errors.SparkUnavailable: Spark's workers have no module ringmain"), done.stderr
