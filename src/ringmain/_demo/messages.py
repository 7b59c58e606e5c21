"""What the robot's topics carry. The camera's is a stream of frames, the others are typed."""

from __future__ import annotations

import msgspec

CAMERA = "robot/camera"
TARGET = "robot/target"
IMU = "robot/imu"
GPS = "robot/gps"
COMMAND = "robot/command"
TOPICS = (CAMERA, TARGET, IMU, GPS, COMMAND)


class Target(msgspec.Struct):
    """Where vision saw the ball, in pixels."""

    seen: bool
    x: float
    y: float
    frame: int
    """The camera's number of the frame."""


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
    """The number of the camera frame it followed, or -1."""
