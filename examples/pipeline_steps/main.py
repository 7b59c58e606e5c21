"""A pipeline with your own steps: record two topics, process them, print the tables.

    python examples/pipeline_steps/main.py

Makes a recording in a temporary directory, so it needs nothing but ringmain[spark].
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F

import ringmain.spark
from ringmain import typed
from ringmain.pipeline import Align, Pipeline
from ringmain.recording import RecordingWriter
from ringmain.recording._format import RING_SCHEMA

START_NS = 1_767_225_600_000_000_000  # 2026-01-01


class Imu(msgspec.Struct):
    x: float


def record(path: Path) -> None:
    """10 s of an IMU at 100 Hz and a camera at 10 Hz."""
    with RecordingWriter(path) as writer:
        writer.declare("imu", epoch=1, schema=typed.codec_for(Imu).schema.to_bytes())
        writer.declare("camera", epoch=1)
        for topic, count, step_ns in (("imu", 1000, 10_000_000), ("camera", 100, 100_000_000)):
            data = [msgspec.msgpack.encode(Imu(n % 7)) if topic == "imu" else b"a frame" for n in range(count)]
            columns = [range(count), [START_NS + n * step_ns for n in range(count)], ["robot"] * count, [""] * count]
            columns += [[0] * count, [b""] * count, data]
            arrays = [pa.array(c, f.type) for c, f in zip(columns, RING_SCHEMA, strict=True)]
            writer.append(topic, 1, pa.RecordBatch.from_arrays(arrays, schema=RING_SCHEMA))


def main() -> None:
    pipeline = Pipeline(aligns=[Align("camera", ("imu",), tolerance_s=0.05)])

    @pipeline.on("imu", table="imu_moving")
    def moving(frame: Any) -> Any:
        return frame.where("x > 3").select("rm_publish_time", "rm_seq", "x")

    @pipeline.step("per_second", time="second")
    def per_second(messages: Any) -> Any:
        return messages.groupBy(F.date_trunc("second", "publish_time").alias("second"), "topic").count()

    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder) / "recording")
        spark = ringmain.spark.session()
        print(pipeline.run(Path(folder) / "recording", Path(folder) / "lake", spark=spark))
        for table in ("steps/imu_moving", "gold/per_second", "gold/aligned_camera"):
            print(table)
            ringmain.spark.read_lake(spark, f"{folder}/lake", table).show(5, truncate=False)
        spark.stop()


if __name__ == "__main__":
    main()
