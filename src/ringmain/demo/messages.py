"""What the robot's topics carry."""

from __future__ import annotations

import msgspec

CAMERA = "robot/camera"
IMU = "robot/imu"
GPS = "robot/gps"
COMMAND = "robot/command"
TOPICS = (CAMERA, IMU, GPS, COMMAND)


class Imu(msgspec.Struct):
    """Acceleration in m/s², turning in rad/s."""

    acceleration: tuple[float, float, float]
    turn_rate: float


class Gps(msgspec.Struct):
    latitude: float
    longitude: float
    satellites: int


class Command(msgspec.Struct):
    """What the control loop wants, and what it knew when it decided."""

    steer: float
    speed: float
    gps_alive: bool
    frame: int
    """The number of the newest camera frame, or -1."""
