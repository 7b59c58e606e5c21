"""Drivers in C++, the rest in Python: a camera and an IMU publish to a control loop and a recorder.

The IMU's messages are C structs, which Python reads as records of a numpy dtype, and Spark as columns. CMake builds
the drivers with what `ringmain config` says.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import ringmain as rm
from ringmain.recording import Recording

HERE = Path(__file__).parent
IMU = np.dtype([("t", "f8"), ("gyro", "f4", 3), ("acceleration", "f4", 3)], align=True)


def build() -> Path:
    """Where the drivers are."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    cmake = shutil.which("cmake", path=tools)
    if cmake is None:
        sys.exit("this needs CMake: pip install cmake")
    where = [sys.executable, "-m", "ringmain", "config", "--cmake-dir"]
    prefix = subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()
    to = Path("build").absolute()
    for step in (["-S", HERE, "-B", to, f"-DCMAKE_PREFIX_PATH={prefix}"], ["--build", to, "--parallel", "2"]):
        subprocess.run([cmake, *step], check=True, capture_output=True)
    return to


def main() -> None:
    drivers = build()
    with (
        rm.Subscriber("robot/imu", type=IMU) as imu,
        rm.FrameSubscriber("robot/camera") as camera,
        rm.Recorder("recorded", ["robot/imu", "robot/camera"]),
    ):
        running = [subprocess.Popen([drivers / name]) for name in ("imu", "camera")]
        ticks = images = 0
        angle = brightest = 0.0
        alive, ready = True, []
        while alive or ready:  # not until there are thirty images: the camera waits for nobody, and one may be lost
            alive = any(driver.poll() is None for driver in running)
            ready = rm.wait([imu, camera], timeout=0.1)
            for one in ready:
                if one is imu:
                    record = imu.recv()
                    angle += float(record["gyro"][2]) * 1e-3
                    ticks += 1
                elif (frame := camera.try_recv()) is not None:
                    with frame:  # in its buffer, where the driver wrote it
                        brightest = max(brightest, float(frame.array.mean()))
                        images += 1
        assert [driver.wait() for driver in running] == [0, 0]
        assert (ticks, imu.lost) == (1000, 0)
        assert 0 < images <= 30 - camera.lost
    print(f"{ticks} records of the IMU: turned by {angle:.3f}; {images} images, the brightest {brightest:.0f}")
    print(f"recorded: {', '.join(sorted(Recording('recorded').topics()))}")


if __name__ == "__main__":
    main()
