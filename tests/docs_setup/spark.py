"""What docs/guide/spark.md and pipeline.md take for granted: recordings/, with an IMU and a camera in it."""

import msgspec

import ringmain as rm
from ringmain.recording import Recorder


class Imu(msgspec.Struct):
    x: float
    y: float


with (
    rm.Publisher("imu", type=Imu, contract="reliable") as imu,
    rm.Publisher("camera/front", contract="reliable") as camera,
):
    with Recorder("recordings/drive", "*", start="oldest"):
        for number in range(300):
            imu.send(Imu(number / 100, 0.0))
            if number % 10 == 0:
                camera.send(bytes(1000), kind="frame")
