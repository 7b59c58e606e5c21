"""The IMU: 200 small typed messages per second, in a ring so small that a slow reader is lapped."""

from __future__ import annotations

import math
import random

import ringmain as rm
from ringmain._demo.messages import IMU, Imu
from ringmain._demo.rate import ticks

RATE_HZ = 200.0


def main() -> None:
    noise = random.Random(1)
    with rm.Publisher(IMU, type=Imu, capacity=16384, sender="imu") as pub:
        for tick in ticks(RATE_HZ):
            turn = math.sin(tick / RATE_HZ)
            pub.send(Imu((turn * 2, noise.gauss(0, 0.1), 9.81 + noise.gauss(0, 0.05)), turn))


if __name__ == "__main__":
    main()
