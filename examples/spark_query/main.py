"""Record topics and query them with Spark: the messages' own fields are the columns. Needs ringmain[spark]."""

import math
import tempfile
from pathlib import Path

import msgspec

import ringmain as rm
import ringmain.spark


class Imu(msgspec.Struct):
    axis: str
    value: float


def record(path: Path) -> None:
    with rm.Publisher("imu", type=Imu, contract="reliable") as imu, rm.Publisher("log", contract="reliable") as log:
        with rm.Recorder(path, "*"):
            for number in range(300):
                imu.send(Imu("xyz"[number % 3], math.sin(number / 30)))
            log.send(b"done")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder) / "drive")
        spark = ringmain.spark.session()
        messages = ringmain.spark.read(spark, f"{folder}/drive")  # every topic: number, time, sender, payload
        counts = {row["topic"]: row["count"] for row in messages.groupBy("topic").count().collect()}
        print(f"recorded: {counts}")
        assert counts == {"imu": 300, "log": 1}

        imu = spark.read.format("ringmain").option("topic", "imu").option("decode", "true").load(f"{folder}/drive")
        imu.createOrReplaceTempView("imu")
        rows = spark.sql("SELECT axis, count(*) AS n, max(value) AS top FROM imu GROUP BY axis ORDER BY axis").collect()
        for row in rows:
            print(f"{row['axis']}: {row['n']} values, at most {row['top']:.3f}")
        assert [(row["axis"], row["n"]) for row in rows] == [("x", 100), ("y", 100), ("z", 100)]
        spark.stop()


if __name__ == "__main__":
    main()
