"""The camera: thirty frames a second as arrays, a bright spot that moves over a gradient."""

from __future__ import annotations

import numpy

import ringmain as rm
from ringmain.demo.messages import CAMERA
from ringmain.demo.pace import ticks

RATE_HZ = 30.0
SHAPE = (120, 160)


def main() -> None:
    rows, columns = numpy.mgrid[0 : SHAPE[0], 0 : SHAPE[1]]
    ground = (rows + columns) // 4
    with rm.Publisher(CAMERA, type=numpy.ndarray, capacity="4MiB", sender="camera") as pub:
        for tick in ticks(RATE_HZ):
            x, y = tick * 3 % SHAPE[1], 60 + 40 * numpy.sin(tick / 20)
            spot = 180 * numpy.exp(-((columns - x) ** 2 + (rows - y) ** 2) / 60)
            pub.send((ground + spot).clip(0, 255).astype("u1"))


if __name__ == "__main__":
    main()
