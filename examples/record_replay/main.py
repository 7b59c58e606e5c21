"""Record topics, query the recording, and publish it again as fast as a reader reads."""

import math
import tempfile
from concurrent.futures import ThreadPoolExecutor

import msgspec

import ringmain as rm
from ringmain.recording import Recorder, Recording, replay


class Reading(msgspec.Struct):
    number: int
    value: float


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        with rm.Publisher("sensor", contract="reliable", type=Reading) as pub:
            with Recorder(directory, "sensor", start="oldest"):
                for number in range(100):
                    pub.send(Reading(number, math.sin(number / 10)))

        recording = Recording(directory)
        print(f"{len(recording)} messages, gaps: {recording.gaps()}")
        assert len(recording) == 100
        assert max(message.value.value for message in recording) > 0.9

        with ThreadPoolExecutor() as pool, rm.Subscriber("again", type=Reading, start="oldest") as sub:
            player = pool.submit(replay, recording, rename={"sensor": "again"}, speed=math.inf, readers=1)
            again = [sub.recv(timeout=30) for _ in range(100)]
            player.result(timeout=30)
        print(f"replayed {len(again)}, the last is {again[-1]}")
        assert [reading.number for reading in again] == list(range(100))


if __name__ == "__main__":
    main()
