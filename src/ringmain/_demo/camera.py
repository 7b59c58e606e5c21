"""The camera: 15 frames per second, written directly into shared memory: a bright ball on a coloured ground."""

from __future__ import annotations

import math

import numpy

import ringmain as rm
from ringmain._demo.messages import CAMERA
from ringmain._demo.rate import ticks

RATE_HZ = 15.0
WIDTH, HEIGHT = 160, 120


def main() -> None:
    rows, columns = numpy.mgrid[0:HEIGHT, 0:WIDTH]
    ground = numpy.stack([columns * 100 // WIDTH, rows * 100 // HEIGHT, numpy.full_like(rows, 90)], axis=2)
    layout = rm.FrameLayout.of_image("rgb", WIDTH, HEIGHT)
    with rm.FramePublisher(CAMERA, layout=layout, when_full="drop", sender="camera") as pub:
        for tick in ticks(RATE_HZ):
            x, y = tick * 3 % WIDTH, HEIGHT / 2 + 40 * math.sin(tick / 15)
            ball = (columns - x) ** 2 + (rows - y) ** 2 < 100
            with pub.frame() as frame:
                frame.array[:] = ground
                frame.array[ball] = (255, 220, 60)
                frame.meta = {"exposure_us": 8000}


if __name__ == "__main__":
    main()
