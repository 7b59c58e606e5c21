"""A small robot, for `ringmain demo`: a process each for camera, vision, IMU, GPS, control and a dashboard that is too
slow.

Each part is one short module and can run alone: `python -m ringmain._demo.imu`. They are connected only by their topics
(messages.py). processes.py starts and stops them. scenario.py says what to expect.
"""
