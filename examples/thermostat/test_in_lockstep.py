"""The thermostat as a process of its own, one reading at a time."""

import subprocess
import sys
from pathlib import Path

import ringmain as rm
from ringmain.testing import Lockstep

THERMOSTAT = Path(__file__).with_name("thermostat.py")


def test_it_follows_the_temperature() -> None:
    steps = [(b"18", b"on"), (b"20", None), (b"22", b"off"), (b"20", None)]
    with (
        Lockstep(["temperature"]) as step,
        rm.Publisher("temperature") as sensor,
        rm.Subscriber("heater") as heater,
    ):
        with subprocess.Popen([sys.executable, THERMOSTAT]) as thermostat:
            for degrees, expected in steps:
                step.feed(sensor, degrees)  # waits for its pause, then publishes
                step.wait_for("temperature")  # it pauses again: this reading is handled
                assert heater.try_recv() == expected
            step.wait_for("temperature").expire()  # the timeout, without ten seconds
            step.feed(sensor, b"", kind="stop")
            assert thermostat.wait(timeout=30) == 0
