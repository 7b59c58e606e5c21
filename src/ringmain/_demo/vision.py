"""Vision: finds the ball in the newest camera frame, without a copy, and publishes its position."""

from __future__ import annotations

import ringmain as rm
from ringmain._demo.messages import CAMERA, TARGET, Target
from ringmain._demo.rate import told_to_end

LOOK_S = 0.1
BRIGHT = 200


def main() -> None:
    over = told_to_end()
    with (
        rm.FrameSubscriber(CAMERA, conflate=True, name="vision") as sub,
        rm.Publisher(TARGET, type=Target, sender="vision") as pub,
    ):
        while not over.is_set():
            try:
                frame = sub.recv(timeout=LOOK_S)
            except rm.Timeout:
                continue  # no frame yet: check whether the process is to end
            with frame:
                rows, columns = (frame.array[:, :, 0] > BRIGHT).nonzero()  # in shared memory, not a copy
                seen = len(rows) > 0
                x, y = (float(columns.mean()), float(rows.mean())) if seen else (0.0, 0.0)
                pub.send(Target(seen, x, y, frame.id))


if __name__ == "__main__":
    main()
