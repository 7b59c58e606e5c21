"""A table to train on: for every command, the newest IMU value before it, and the age of that value.
From a recording, by the pipeline's as-of join on Spark. Needs ringmain[spark]."""

import tempfile
import time
from pathlib import Path

import msgspec

import ringmain as rm
import ringmain.spark
from ringmain.pipeline import Align, Pipeline


class Imu(msgspec.Struct):
    turn_rate: float


class Command(msgspec.Struct):
    steer: float


def record(path: Path) -> None:
    """Ten IMU values for each command; each command is the negative of the newest value."""
    with (
        rm.Publisher("imu", type=Imu, contract="reliable") as imu,
        rm.Publisher("command", type=Command, contract="reliable") as command,
        rm.Recorder(path, "*"),
    ):
        for number in range(500):
            imu.send(Imu(float(number)))
            if number % 10 == 9:
                command.send(Command(-float(number)))
            time.sleep(0.001)  # Spark's times are microseconds: messages within one have no order in time


def main() -> None:
    pipeline = Pipeline(aligns=[Align("command", ("imu",), tolerance_s=5.0)])
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder) / "drive")
        spark = ringmain.spark.session()
        pipeline.run(Path(folder) / "drive", Path(folder) / "lake", spark=spark, progress=lambda line: None)
        table = ringmain.spark.read_lake(spark, f"{folder}/lake", "gold/aligned_command").orderBy("rm_seq")
        table.select("rm_seq", "steer", "imu").show(5, truncate=False)
        rows = table.select("steer", "imu.turn_rate").collect()
        print(f"{len(rows)} examples to learn from")
        assert [(row["steer"], row["turn_rate"]) for row in rows] == [(-n, n) for n in range(9, 500, 10)]
        spark.stop()


if __name__ == "__main__":
    main()
