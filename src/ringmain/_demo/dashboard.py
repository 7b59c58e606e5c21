"""The dashboard: reads the IMU too slowly. It is lapped and counts what it lost. The IMU does not wait for it."""

from __future__ import annotations

import ringmain as rm
from ringmain._demo.messages import IMU, Imu
from ringmain._demo.rate import ticks

RATE_HZ = 4.0


def main() -> None:
    with rm.Subscriber(IMU, type=Imu, name="dashboard") as sub:
        for _ in ticks(RATE_HZ):
            sub.try_recv()


if __name__ == "__main__":
    main()
