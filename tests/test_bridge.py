"""A bridge keeps numbers, times, senders and kinds, counts what it drops, and goes from shared memory to zmq and back.

How: two bridges make a loop from shared memory over zmq into another topic; small rings and a closed far end make the
losses.
"""

from __future__ import annotations

import msgspec
import pytest

import ringmain as rm
from tests.conftest import PATIENCE_S


class Point(msgspec.Struct):
    x: int


def test_there_and_back_again() -> None:
    with rm.Publisher("a", sender="camera") as pub, rm.Subscriber("b", name="far") as far:
        with rm.bridge("a", "zmq:z") as out, rm.bridge("zmq:z", "b") as back:
            out.target.wait_for_readers(1, timeout=PATIENCE_S)
            back.target.wait_for_readers(0, timeout=PATIENCE_S)
            sent = [(pub.send(b"%d" % i, kind="k"), b"%d" % i) for i in range(100)]
            received = [far.recv_message(timeout=PATIENCE_S) for _ in range(100)]
            assert [(message.seq, message.data) for message in received] == sent
            assert {(message.sender, message.kind, message.lost) for message in received} == {("camera", "k", 0)}
            assert received[0].time_ns <= received[-1].time_ns
            assert out.traffic.carried == 100
            assert (out.traffic.dropped, back.traffic.dropped) == (0, 0)


def test_the_times_are_those_of_the_first_publisher() -> None:
    with rm.Publisher("a") as pub, rm.Subscriber("b", start="oldest") as far:
        pub._send_as(b"old", 41, 1234567, "k")
        with rm.bridge("a", "b", start=False) as carrying:
            assert carrying.carry(timeout=0) == 1
            message = far.recv_message(timeout=0)
            assert (message.seq, message.time_ns, message.kind) == (41, 1234567, "k")


def test_what_was_lapped_before_the_bridge_came_to_it_is_counted() -> None:
    with rm.Publisher("a", capacity=4096) as pub, rm.Subscriber("b") as far:
        with rm.bridge("a", "b", start=False) as carrying:
            pub.send(b"0")
            carrying.carry(timeout=0)
            pub.send_many([b"x" * 100] * 200)
            while carrying.carry(timeout=0):
                pass
            pub.send(b"last")
            carrying.carry(timeout=0)
            traffic = carrying.traffic
            assert traffic.lost > 0
            assert traffic.carried + traffic.dropped == 202
            received = far.recv_many(1000)
            assert received[-1] == b"last"
            assert far.lost == traffic.lost == 202 - len(received)


def test_a_target_without_room_drops_and_counts() -> None:
    source, target = rm.Publisher("a"), rm.Publisher("b", contract="pipe", capacity=4096)
    with source, rm.Bridge(rm.Subscriber("a"), target, timeout=0) as carrying, rm.Subscriber("b") as far:
        source.send_many([b"x" * 100] * 100)
        source.send(b"x" * 8000)
        carrying.carry(timeout=0)
        traffic = carrying.traffic
        assert (traffic.too_large, traffic.carried + traffic.full) == (1, 100)
        assert traffic.full > 50
        assert len(far.recv_many(1000)) == traffic.carried


def test_the_schema_goes_along() -> None:
    with rm.Publisher("a", type=Point) as pub, rm.bridge("a", "zmq:z", start=False) as out:
        with rm.Subscriber("z", backend="zmq", type=Point) as far:
            out.target.wait_for_readers(1, timeout=PATIENCE_S)
            pub.send(Point(3))
            out.carry(timeout=PATIENCE_S)
            assert far.recv(timeout=PATIENCE_S) == Point(3)
            assert out.target.schema == pub.schema


def test_a_new_life_of_the_source_goes_on_with_the_numbers() -> None:
    with rm.Subscriber("b") as far, rm.bridge("a", "b", start=False) as carrying:
        for life in (b"first", b"second"):
            with rm.Publisher("a") as pub:
                pub.send_many([life, life])
                while carrying.carry(timeout=0):
                    pass
                rm.unlink("a", force=True)
        assert far.recv_many(10) == [b"first", b"first", b"second", b"second"]
        assert (far.lost, carrying.target.next_sequence) == (0, 4)


def test_an_end_that_is_not_one_is_refused() -> None:
    with pytest.raises(ValueError, match="zmq:topic@tcp://host:port"):
        rm.bridge("carrier:pigeon", "b")
    with rm.Publisher("b"), pytest.raises(rm.TopicBusy):
        rm.bridge("a", "b")
