"""A control loop over several topics: the newest message of each, whether each is alive, and one wait for all."""

import threading

import ringmain as rm


def sensor(topic: str, rate_hz: float, stop: threading.Event) -> None:
    with rm.Publisher(topic, type=float) as pub:
        value = 0.0
        while not stop.wait(1 / rate_hz):
            value += 1.0
            pub.send(value)


def main() -> None:
    stop = threading.Event()
    sensors = [threading.Thread(target=sensor, args=(name, hz, stop)) for name, hz in (("imu", 200.0), ("gps", 20.0))]
    for thread in sensors:
        thread.start()
    try:
        with rm.Latest({"imu": 200.0, "gps": 20.0, "lidar": 10.0}) as latest:
            while not (latest.seen["imu"] and latest.seen["gps"]):
                assert latest.update(timeout=10), "nothing came"
            for _ in range(20):
                latest.update(timeout=10)
            print(f"imu {latest['imu']}, gps {latest['gps']}, lidar alive: {latest.alive['lidar']}")
            assert not latest.seen["lidar"]
    finally:
        stop.set()
        for thread in sensors:
            thread.join()


if __name__ == "__main__":
    main()
