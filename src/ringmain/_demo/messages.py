"""The topics and message types of the robot. The camera's is a frame topic, the others are typed."""

from __future__ import annotations

import msgspec

CAMERA = "robot/camera"
TARGET = "robot/target"
IMU = "robot/imu"
GPS = "robot/gps"
COMMAND = "robot/command"
TOPICS = (CAMERA, TARGET, IMU, GPS, COMMAND)


class Target(msgspec.Struct):
    """Where vision found the ball, in pixels."""

    seen: bool
    x: float
    y: float
    frame: int
    """The number of the camera's frame."""


class Imu(msgspec.Struct):
    """Acceleration in m/s², turn rate in rad/s."""

    acceleration: tuple[float, float, float]
    turn_rate: float


class Gps(msgspec.Struct):
    latitude: float
    longitude: float
    satellites: int


class Command(msgspec.Struct):
    """A command of the control loop, and what it is based on."""

    steer: float
    speed: float
    gps_alive: bool
    frame: int
    """The number of the camera's frame, or -1."""
