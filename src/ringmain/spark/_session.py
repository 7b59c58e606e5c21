"""`session()`: a SparkSession that is configured for ringmain.

The invariant owned here: *choices made elsewhere win*. An existing session is used, SPARK_REMOTE and the master are
respected, a setting passed in replaces ours, and PYSPARK_PYTHON or JAVA_HOME stay if they work.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringmain.errors import SparkUnavailable
from ringmain.spark._java import find_java
from ringmain.spark._options import PUSHDOWN_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
_PORTS = {"spark": 7077, "sc": 15002}  # of a standalone master, and of Spark Connect
_ANSWER_S = 10.0
_JAVA_ERROR = re.compile(r"(: )?[\w.]+(Exception|Error): ")
_GAVE_UP = "stopped SparkContext"  # Spark asks a master for a minute, stops, and fails at the next step
_LOGGING = Path(__file__).with_name("log4j2.properties")

# Set on every session, also an existing one: without them the source or the pipeline would be wrong.
_RUNTIME: dict[str, str] = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Spark's default, INT96, has no statistics for skipping row groups, and other readers take it for nanoseconds.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


# For work of a few minutes: the JVM's second compiler would use as much processor time as Spark itself.
_BRIEF = "-XX:TieredStopAtLevel=1"


def session(*, app_name: str = "ringmain", master: str | None = None, brief: bool = False, **conf: Any) -> SparkSession:
    """A SparkSession ready for ringmain: `session(**{"spark.sql.shuffle.partitions": 8})`.

    An existing session is returned, with the settings that can still be changed. SPARK_REMOTE (Spark Connect) is
    respected; otherwise it runs on `master`, by default all cores of this machine (`local[*]`).

    brief: for little work. A JVM on this machine then starts faster, but never reaches its full speed.
    """
    _require_pyspark()
    settings = {_checked(key): _text(value) for key, value in conf.items()}
    remote = master if master is not None and master.startswith("sc://") else os.environ.get("SPARK_REMOTE")
    if remote and (master is None or master == remote):
        _check_answers(remote)
        return _connect(remote, app_name, settings)

    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    existing = SparkSession.getActiveSession()
    if existing is not None:
        _respect(existing, master, settings)
        return existing
    chosen = master or settings.pop("spark.master", None) or "local[*]"
    local = chosen.startswith("local")
    _check_answers(chosen)
    _prepare_environment(on_this_machine=local or _is_loopback(chosen))
    builder = SparkSession.builder.appName(app_name).master(chosen)
    for key, value in {**_defaults(local, chosen, brief), **settings}.items():
        builder = builder.config(key, value)
    try:
        made = builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        reason = "what listens there does not answer as a master" if _GAVE_UP in str(error) else _reason(error)
        raise SparkUnavailable(f"Spark does not start on {chosen}: {reason}") from error
    made.sparkContext.setLogLevel("ERROR")
    return made


def _require_pyspark() -> None:
    for module, package in (("pyspark", "pyspark"), ("pyarrow", "pyarrow"), ("pandas", "'pandas<3'")):
        if importlib.util.find_spec(module) is None:
            raise SparkUnavailable(f"{package} is not installed, and Spark needs it: pip install 'ringmain[spark]'")


def _connect(remote: str, app_name: str, settings: dict[str, str]) -> SparkSession:
    if importlib.util.find_spec("grpc") is None:
        raise SparkUnavailable(
            f"Spark Connect at {remote} needs grpc: pip install 'pyspark[connect]', or unset SPARK_REMOTE to run here"
        )
    from pyspark.sql import SparkSession

    if remote.startswith("local"):
        _prepare_environment(on_this_machine=True)  # we start the server on this machine
    builder = SparkSession.builder.remote(remote).appName(app_name)
    for key, value in {**_RUNTIME, **settings}.items():
        builder = builder.config(key, value)
    made: SparkSession = builder.getOrCreate()
    return made


def _check_answers(address: str) -> None:
    """Raises if nothing listens at a cluster's address: Spark itself tries for a minute, with pages of errors."""
    scheme, found, rest = address.partition("://")
    if not found or scheme not in _PORTS:
        return
    reason: Exception | None = None
    for one in re.split(r"[/;]", rest)[0].split(","):
        host, _, port = one.partition(":") if one.count(":") < 2 else one.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port or _PORTS[scheme])), _ANSWER_S).close()
        except (OSError, ValueError) as error:
            reason = error
        else:
            return
    raise SparkUnavailable(f"no Spark answers at {address} ({reason}): is it running, and is that its address?")


def _reason(error: Exception) -> str:
    """The first line of what went wrong, without Java's names around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next(filter(_JAVA_ERROR.match, lines), lines[0] if lines else type(error).__name__)
    return _JAVA_ERROR.sub("", said)


def label_jobs(spark: SparkSession, group: str, about: str) -> None:
    """How the jobs that this thread starts are shown by Spark. Spark Connect has tags in place of groups."""
    if is_connect(spark):
        spark.addTag(f"{group} ({about})".replace(",", ""))
    else:
        spark.sparkContext.setJobGroup(group, about)


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def cores_of(spark: SparkSession) -> int:
    """How many tasks it runs at once. A client of Spark Connect learns it by a query: a range has as many parts."""
    if not is_connect(spark):
        return max(1, spark.sparkContext.defaultParallelism)
    from pyspark.sql import functions

    parts = spark.range(1 << 16).select(functions.spark_partition_id().alias("part"))
    return int(parts.agg(functions.max("part")).collect()[0][0]) + 1


def prepare(existing: SparkSession) -> SparkSession:
    """Sets on an existing session the settings that ringmain needs."""
    _respect(existing, None, {})
    return existing


def _respect(existing: SparkSession, master: str | None, settings: dict[str, str]) -> None:
    """Applies settings to an existing session. One that cannot be changed any more is an error."""
    running_on = existing.conf.get("spark.master", "")
    if master is not None and running_on and master != running_on:
        raise ValueError(
            f"a Spark session is already running on {running_on}, and {master} was asked for: "
            "stop it first (spark.stop()), or leave master out to use it"
        )
    for key, value in {**_RUNTIME, **settings}.items():
        if existing.conf.get(key, None) == value:
            continue
        if not existing.conf.isModifiable(key):
            raise ValueError(
                f"{key} cannot be changed in the Spark session that is already running: stop it first (spark.stop())"
            )
        existing.conf.set(key, value)


def _prepare_environment(*, on_this_machine: bool) -> None:
    os.environ[PUSHDOWN_VARIABLE] = "1"  # inherited by the JVM and its workers: filters are pushed down
    java = find_java()
    if java.origin != "PATH":
        os.environ["JAVA_HOME"] = str(java.home)
    elif os.environ.get("JAVA_HOME"):
        del os.environ["JAVA_HOME"]  # it does not work, and Spark's launcher would use it all the same
    if on_this_machine:
        # Workers on other machines have their own Python. Those here must run this one, not the first one on PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def _defaults(local: bool, master: str, brief: bool) -> dict[str, str]:
    java = f"-Dlog4j2.configurationFile=file:{_LOGGING}"
    if local:
        java += f" -XX:+UseParallelGC{f' {_BRIEF}' if brief else ''}"  # the default collector is for large servers
    settings = {
        **_RUNTIME,
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.driver.extraJavaOptions": java,
        "spark.driver.memory": f"{_driver_memory_mb()}m",
    }
    if local or _is_loopback(master):
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    if local:
        cores = os.cpu_count() or 1
        asked = master.partition("[")[2].partition("]")[0].partition(",")[0]
        if asked.isdigit():
            cores = int(asked)
        settings |= {
            # Spark's default of 200 is for clusters: here each shuffle would be 200 tasks of a few rows.
            "spark.sql.shuffle.partitions": str(max(2, cores)),
            # On a local disk a rename is atomic, and this manager takes half the time of the default one.
            "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming"
            ".checkpointing.FileSystemBasedCheckpointFileManager",
        }
    return settings


def _driver_memory_mb() -> int:
    """A quarter of the machine's memory, between 1 and 8 GiB: in local mode the driver does all the work."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(8192, max(1024, total // 4 >> 20))


def _is_loopback(master: str) -> bool:
    host = master.rpartition("//")[2].rpartition(":")[0]
    return host in (LOOPBACK, "localhost")


def _checked(key: str) -> str:
    if not key.startswith("spark."):
        raise ValueError(
            f"{key!r} is not a Spark setting: they begin with 'spark.', as in session(**{{'spark.ui.enabled': True}})"
        )
    return key


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
