"""Heats below 19 degrees; stops above 21, and when the sensor is silent for 10 s."""

import ringmain as rm


def main() -> None:
    heating = False
    with (
        rm.Subscriber("temperature", name="thermostat") as readings,
        rm.Publisher("heater") as heater,
    ):
        while True:
            try:
                message = readings.recv_message(timeout=10)
            except rm.Timeout:
                wanted = False
            else:
                if message.kind == "stop":
                    return
                degrees = float(message.data)
                wanted = degrees < 21 if heating else degrees < 19
            if wanted != heating:
                heating = wanted
                heater.send(b"on" if heating else b"off")


if __name__ == "__main__":
    main()
