"""The thermostat, unchanged, in a fake world: ten silent seconds take no time."""

import threading

from thermostat import main

import ringmain as rm
from ringmain.testing import fake


def test_a_silent_sensor_switches_off() -> None:
    with (
        fake(seed=1) as world,
        rm.Publisher("temperature") as sensor,
        rm.Subscriber("heater") as heater,
    ):
        thermostat = threading.Thread(target=main)
        thermostat.start()
        sensor.wait_for_readers(1)
        sensor.send(b"18.5")
        assert heater.recv(timeout=1) == b"on"
        switched_on_ns = world.time_ns()
        message = heater.recv_message(timeout=60)
        assert message.data == b"off"
        assert message.time_ns - switched_on_ns == 10 * 10**9
        sensor.send(b"", kind="stop")
        thermostat.join()


def test_a_lost_reading_does_no_harm() -> None:
    with (
        fake(seed=1) as world,
        rm.Publisher("temperature") as sensor,
        rm.Subscriber("heater") as heater,
    ):
        world.lose("temperature", 1)  # the reading that would have switched off
        thermostat = threading.Thread(target=main)
        thermostat.start()
        sensor.wait_for_readers(1)
        for degrees in (b"18", b"25", b"24"):
            sensor.send(degrees)
        assert [heater.recv(timeout=1) for _ in range(2)] == [b"on", b"off"]
        sensor.send(b"", kind="stop")
        thermostat.join()
