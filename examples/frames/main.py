"""Frames as numpy arrays: a camera process writes into buffers that its readers see. Nothing is copied, and a buffer
that a reader holds is not overwritten."""

import multiprocessing
import time

import numpy

import ringmain as rm

WIDTH, HEIGHT, COUNT = 640, 480, 30


def camera() -> None:
    layout = rm.FrameLayout.of_image("rgb", WIDTH, HEIGHT)
    with rm.FramePublisher("camera/front", layout=layout, buffers=4) as pub:
        pub.wait_for_readers(1, timeout=30)
        for number in range(COUNT):
            with pub.frame() as frame:  # sent when the block is left
                frame.array[:] = number  # straight into shared memory
                frame.meta = {"exposure_us": 8000, "last": number == COUNT - 1}
            time.sleep(0.01)  # as a camera would


def main() -> None:
    process = multiprocessing.get_context("spawn").Process(target=camera)
    with rm.FrameSubscriber("camera/front") as sub:
        process.start()
        seen = 0
        kept: numpy.ndarray | None = None
        for frame in sub:  # each is released when the next one comes
            seen += 1
            assert frame.array.shape == (HEIGHT, WIDTH, 3)
            assert (frame.array == frame.id).all()  # a view, read-only, of the camera's own memory
            if frame.id == 0:
                kept = frame.copy()  # to keep one without holding its buffer
            if frame.meta["last"]:
                break
        print(f"saw {seen} frames of {WIDTH} x {HEIGHT}, missed {sub.lost}: only the newest frame matters")
        assert seen + sub.lost == COUNT
        assert kept is None or (kept == 0).all()
    process.join(timeout=30)
    assert process.exitcode == 0


if __name__ == "__main__":
    main()
