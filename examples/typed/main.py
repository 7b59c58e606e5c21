"""Typed topics: objects in, objects out; the schema is stored with the topic, and a reader that does not fit raises."""

import dataclasses

import msgspec

import ringmain as rm
from ringmain.typed import codec_from_schema


class Imu(msgspec.Struct):
    time_ns: int
    acceleration: tuple[float, float, float]
    temperature: float | None = None


@dataclasses.dataclass
class WrongImu:
    time_ns: str


def main() -> None:
    with rm.Publisher("imu", type=Imu, sender="left wheel") as pub, rm.Subscriber("imu", type=Imu) as sub:
        pub.send(Imu(1, (0.0, 0.0, 9.81)))
        print(sub.recv(timeout=1))

        try:
            rm.Subscriber("imu", type=WrongImu)
        except rm.SchemaMismatch as error:
            print(error)

        # A program without the class can read it too: the schema says what is in the bytes.
        with rm.Subscriber("imu", start="oldest") as stranger:
            codec = codec_from_schema(stranger.schema)
            print(msgspec.to_builtins(codec.decode(stranger.recv(timeout=1))))


if __name__ == "__main__":
    main()
