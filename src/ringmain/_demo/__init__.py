"""A small robot, for `ringmain demo`: a process each for camera, vision, IMU, GPS, control and a dashboard that is too
slow.

Each part is a page and runs alone: `python -m ringmain._demo.imu`. They know one another by their topics only, which
are in messages.py; processes.py starts and stops them, scenario.py says what to expect.
"""
