"""The control loop: reads the newest message of three topics and sends 50 commands per second on a reliable topic.

It continues while the GPS is dead, and says so in its commands.
"""

from __future__ import annotations

import ringmain as rm
from ringmain._demo import camera, gps, imu
from ringmain._demo.messages import COMMAND, GPS, IMU, TARGET, Command
from ringmain._demo.rate import ticks

RATE_HZ = 50.0
SEND_TIMEOUT_S = 0.5


def main() -> None:
    rates = {IMU: imu.RATE_HZ, GPS: gps.RATE_HZ, TARGET: camera.RATE_HZ}
    with (
        rm.Publisher(COMMAND, type=Command, contract="reliable", sender="control") as pub,
        rm.Latest(rates) as latest,
    ):
        for _ in ticks(RATE_HZ):
            latest.update(timeout=0)
            turn = latest[IMU].turn_rate if latest.seen[IMU] else 0.0
            target = latest[TARGET] if latest.seen[TARGET] else None
            aim = (target.x / camera.WIDTH - 0.5) if target and target.seen else 0.0
            alive = latest.alive[GPS]
            pub.send(
                Command(aim - turn, 1.0 if alive else 0.3, alive, target.frame if target else -1),
                timeout=SEND_TIMEOUT_S,
            )


if __name__ == "__main__":
    main()
