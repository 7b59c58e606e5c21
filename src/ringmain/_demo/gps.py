"""The GPS: 10 positions per second. The demo kills it with SIGKILL, and starts another."""

from __future__ import annotations

import math

import ringmain as rm
from ringmain._demo.messages import GPS, Gps
from ringmain._demo.rate import ticks

RATE_HZ = 10.0


def main() -> None:
    with rm.Publisher(GPS, type=Gps, sender="gps") as pub:
        for tick in ticks(RATE_HZ):
            angle = tick / RATE_HZ / 10
            pub.send(Gps(48.2 + math.sin(angle) * 1e-4, 16.37 + math.cos(angle) * 1e-4, 9 + tick % 3))


if __name__ == "__main__":
    main()
