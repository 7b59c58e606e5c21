"""numpy without a copy: an array is written directly into the ring, and read there."""

import numpy

import ringmain as rm

SHAPE = (480, 640)


def main() -> None:
    with rm.Publisher("depth", contract="bus", capacity="8MiB") as pub, rm.Subscriber("depth") as sub:
        for number in range(3):
            with pub.reserve(SHAPE[0] * SHAPE[1] * 4) as buffer:
                view = numpy.frombuffer(buffer, "f4").reshape(SHAPE)
                view[:] = number  # straight into shared memory
                del view  # no view may outlive the block
            with sub.borrow(timeout=1) as message:
                depth = numpy.frombuffer(message.data, "f4").reshape(SHAPE)
                print(f"frame {message.seq}: mean {depth.mean()}")
                assert depth.mean() == number
                del depth

    # Or typed: dtype and shape are sent along. One copy to send, none to receive.
    with rm.Publisher("points", type=numpy.ndarray) as pub, rm.Subscriber("points", type=numpy.ndarray) as sub:
        pub.send(numpy.eye(3))
        assert sub.recv(timeout=1).shape == (3, 3)


if __name__ == "__main__":
    main()
