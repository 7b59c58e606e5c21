"""A bridge keeps numbers, times, senders and kinds, counts what it drops, and goes from shared memory to zmq and back.

How: two bridges make a loop from shared memory over zmq into another topic; small rings and a closed far end make the
losses.
"""

from __future__ import annotations

import os
import re
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq

import ringmain as rm
from tests import asleep, contracts
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
        with rm.bridge("a", "b", start="oldest", thread=False) as carrying:
            assert carrying.carry(timeout=0) == 1
            message = far.recv_message(timeout=0)
            assert (message.seq, message.time_ns, message.kind) == (41, 1234567, "k")


@pytest.mark.parametrize(("start", "carried"), [("next", 0), ("oldest", 3), ("newest", 1)])
def test_it_begins_with_what_comes_unless_told_otherwise(start: Any, carried: int) -> None:
    with rm.Publisher("a") as pub, rm.Subscriber("b") as far:
        pub.send_many([b"before"] * 3)
        with rm.bridge("a", "b", start=start, thread=False) as carrying:
            assert carrying.carry(timeout=0) == carried
            pub.send(b"after")
            assert carrying.carry(timeout=0) == 1
            assert carrying.traffic.dropped == 0
        assert far.recv_many(10) == [b"before"] * carried + [b"after"]


def test_a_full_ring_from_before_it_came_is_no_loss() -> None:
    with rm.Publisher("a", capacity=4096) as pub:
        pub.send_many([b"x" * 100] * 200)
        with rm.bridge("a", "b", thread=False) as carrying:
            pub.send(b"new")
            assert carrying.carry(timeout=0) == 1
            assert carrying.traffic.dropped == 0


def test_what_was_lapped_before_the_bridge_came_to_it_is_counted() -> None:
    with rm.Publisher("a", capacity=4096) as pub, rm.Subscriber("b") as far:
        with rm.bridge("a", "b", thread=False) as carrying:
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


HEADER = struct.Struct("<4sBBBxQqQ")


def packed(seq: int, sender: bytes = b"", kind: bytes = b"") -> list[bytes]:
    """A message as any program may send it to a zmq subscriber (ringmain/backends/zmq/_wire.py)."""
    return [HEADER.pack(b"RMZ2", 0, len(sender), len(kind), seq, 1, 1) + sender + kind, b"%d" % seq]


@contextmanager
def warned() -> Iterator[list[str]]:
    """The warnings of the block, as they come, from any thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        texts: list[str] = []
        warnings.showwarning = lambda message, *_: texts.append(str(message))
        yield texts


@contextmanager
def stranger() -> Iterator[tuple[zmq.Socket[bytes], str]]:
    """A publisher that is not ringmain's, and its address."""
    with zmq.Context.instance().socket(zmq.XPUB) as socket:
        socket.linger = 0
        yield socket, f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"


INVALID = {
    "a kind that is not UTF-8, and longer as text": packed(3, kind=b"\xfe" * 255),
    "a sender like that": packed(3, sender=b"\xff" * 255),
    "a number that no message has": packed(2**63),
    "the largest number": packed(2**64 - 1),
    "not ringmain's": [b"hello"],
    "three frames": [b"a", b"b", b"c"],
    "a hello that says nothing": [HEADER.pack(b"RMZ2", 1, 0, 0, 0, 1, 1), b"{}"],
}


@pytest.mark.parametrize("invalid", INVALID.values(), ids=INVALID)
def test_an_invalid_message_is_dropped_counted_and_reported_at_once(invalid: list[bytes]) -> None:
    with stranger() as (there, address), rm.Subscriber("b") as far, warned() as said:
        with rm.bridge(f"zmq:a@{address}", "b", insecure=True) as carrying:
            assert there.poll(PATIENCE_S * 1000)
            for frames in (packed(2), invalid, packed(4), packed(5)):
                there.send_multipart(frames)
            received = [far.recv_message(timeout=PATIENCE_S) for _ in range(3)]
            assert [(message.seq, message.data) for message in received] == [(2, b"2"), (4, b"4"), (5, b"5")]
            assert (carrying.traffic.invalid, carrying.error) == (1, None)
        (text,) = said
        assert text.startswith("the bridge from 'a' to 'b' dropped a message (1 so far): ")


def test_of_many_invalid_messages_some_are_reported() -> None:
    with stranger() as (there, address), rm.bridge(f"zmq:a@{address}", "b", thread=False) as carrying, warned() as said:
        while not there.poll(0):
            carrying.carry(timeout=0.01)
        for _ in range(150):
            there.send_multipart([b"noise"])
        while carrying.traffic.invalid < 150:
            carrying.carry(timeout=PATIENCE_S)
        assert [re.findall(r"\((\d+) so far\)", text) for text in said] == [["1"], ["10"], ["100"]]


def test_a_kind_of_a_ring_that_is_not_utf_8_does_not_end_the_bridge_to_zmq(runtime_dir: Path) -> None:
    with rm.Publisher("a") as pub, rm.bridge("a", "zmq:z", thread=False) as carrying:
        for number in range(3):
            pub.send(b"%d" % number, kind="k" * 255 if number == 1 else "")
        with (runtime_dir / "a.ring").open("r+b") as ring:
            ring.seek(ring.read().index(b"k" * 255))
            ring.write(b"\xfe" * 255)
        with pytest.warns(RuntimeWarning, match="message 1 of topic 'a': kind is at most 255 bytes"):
            assert carrying.carry(timeout=0) == 2
        assert (carrying.traffic.carried, carrying.traffic.invalid) == (2, 1)


def test_a_bridge_that_ends_says_so_at_once(until: Callable[[Callable[[], object]], None]) -> None:
    with rm.FramePublisher("cam", 4):
        carrying = rm.bridge("cam", "far")
    with warned() as said, rm.FramePublisher("cam", 8) as pub:
        pub.send(np.zeros(8, "u1"))
        until(lambda: said)
    assert "the bridge from 'cam' to 'far' has ended: TopicMismatch: the frames" in said[0]
    with pytest.raises(rm.TopicMismatch, match="another layout"):
        carrying.close()


def test_an_end_that_is_closed_under_the_bridge_is_said(until: Callable[[Callable[[], object]], None]) -> None:
    with warned() as said, rm.Publisher("a") as pub:
        carrying = rm.bridge("a", "b")
        carrying.target.close()
        pub.send(b"x")
        until(lambda: said)
    assert "the bridge from 'a' to 'b' has ended: Closed" in said[0]
    with pytest.raises(rm.Closed):
        carrying.close()


def test_the_schema_goes_along() -> None:
    with rm.Publisher("a", type=Point) as pub, rm.bridge("a", "zmq:z", thread=False) as out:
        with rm.Subscriber("z", backend="zmq", type=Point) as far:
            out.target.wait_for_readers(1, timeout=PATIENCE_S)
            pub.send(Point(3))
            out.carry(timeout=PATIENCE_S)
            assert far.recv(timeout=PATIENCE_S) == Point(3)
            assert out.target.schema == pub.schema


def test_a_new_life_of_the_source_goes_on_with_the_numbers() -> None:
    with rm.Subscriber("b") as far, rm.bridge("a", "b", thread=False) as carrying:
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


@pytest.mark.parametrize("burst", [255, 256, 257, 258, 512, 513, 1000])
@pytest.mark.parametrize(("there", "here"), [*product(contracts.ALL, contracts.ALL)])
def test_every_message_of_a_burst_is_carried(there: Any, here: Any, burst: int) -> None:
    """More than one call of `carry` takes: none may be dropped between two calls."""
    source, target = rm.Subscriber("a", start="oldest"), rm.Publisher("b", contract=here)
    with rm.Publisher("a", contract=there) as pub, rm.Bridge(source, target) as carrying:
        with rm.Subscriber("b", start="oldest") as far:
            sent = [b"%d" % i for i in range(burst)]
            pub.send_many(sent)
            carried = 0
            while more := carrying.carry(timeout=0):
                carried += more
            traffic = carrying.traffic
            assert (carried, traffic.carried, traffic.dropped) == (burst, burst, 0)
            assert traffic.carried_bytes == sum(map(len, sent))
            assert [(m.seq, m.data) for m in iter(far.try_recv_message, None)] == list(enumerate(sent))
            assert far.lost == 0


@pytest.mark.parametrize("contract", contracts.ALL)
def test_the_contract_is_kept_where_the_target_has_it(contract: Any) -> None:
    with rm.Publisher("a", contract=contract) as pub, rm.bridge("a", "b", thread=False) as carrying:
        assert rm.info("b").contract == contract
        assert carrying.describe() == f"shm:a ({contract}) -> shm:b ({contract})"
        pub.send(b"x")
        carrying.carry(timeout=0)
        with rm.Subscriber("b", start="oldest") as far:
            assert far.recv(timeout=0) == b"x"


@pytest.mark.parametrize("contract", contracts.ALL)
def test_the_contract_of_a_source_that_comes_later_is_kept_too(contract: Any) -> None:
    with rm.bridge("a", "b", thread=False) as carrying, rm.Publisher("a", contract=contract) as pub:
        pub.send(b"x")
        assert carrying.carry(timeout=PATIENCE_S) == 1
        assert rm.info("b").contract == contract
        with rm.Subscriber("b", start="oldest") as far:
            assert far.recv(timeout=0) == b"x"


def test_another_contract_is_said() -> None:
    with rm.Publisher("a", contract="reliable"):
        with pytest.warns(RuntimeWarning, match=r"'a': its contract is reliable, that of 'z' is broadcast"):
            carrying = rm.bridge("a", "zmq:z", thread=False)
        with carrying:
            assert "is broadcast, on which a slow reader is lapped" in carrying.describe()


def test_a_target_that_others_write_to_keeps_its_contract_and_it_is_said() -> None:
    with rm.Publisher("b", contract="bus"), rm.bridge("a", "b", thread=False) as carrying, rm.Subscriber("b") as far:
        with rm.Publisher("a", contract="reliable") as pub:
            pub.send(b"x")
            with pytest.warns(RuntimeWarning, match="'a': its contract is reliable, that of 'b' is bus"):
                assert carrying.carry(timeout=PATIENCE_S) == 1
            assert far.recv(timeout=PATIENCE_S) == b"x"


@pytest.mark.parametrize("when", ["before", "after"])
def test_frames_are_copied_to_a_frame_topic(when: str) -> None:
    if when == "before":
        pub = rm.FramePublisher("cam", (2, 3), "f4")
        carrying = rm.bridge("cam", "far", thread=False)
    else:
        carrying = rm.bridge("cam", "far", thread=False)
        pub = rm.FramePublisher("cam", (2, 3), "f4")
    with pub, carrying, rm.FrameSubscriber("far", start="oldest") as far:
        if when == "after":
            carrying.carry(timeout=0)  # it sees what the source is
        for number in range(3):
            with pub.frame() as draft:
                draft.array[:] = number
                draft.id, draft.meta, draft.valid = 10 + number, {"gain": number}, number != 1
            while not carrying.carry(timeout=0):
                pass
            with far.recv(timeout=PATIENCE_S) as frame:
                assert frame.array.tolist() == [[float(number)] * 3] * 2
                assert (frame.id, frame.meta, frame.valid) == (10 + number, {"gain": number}, number != 1)
        assert (carrying.traffic.carried, carrying.traffic.carried_bytes, carrying.traffic.dropped) == (3, 72, 0)
        assert carrying.describe() == "shm:cam (frames) -> shm:far (frames)"


def test_frames_do_not_go_where_there_are_none() -> None:
    with rm.FramePublisher("cam", 4):
        with pytest.raises(rm.TopicMismatch, match=r"'zmq' has no frames"):
            rm.bridge("cam", "zmq:cam")
        with rm.FrameSubscriber("cam") as source, rm.Publisher("b") as target:
            with pytest.raises(rm.TopicMismatch, match="FramePublisher"):
                rm.Bridge(source, target)


def test_frames_of_another_shape_end_the_bridge_with_a_sentence() -> None:
    with rm.FramePublisher("cam", 4) as pub, rm.bridge("cam", "far", thread=False) as carrying:
        pub.close()
        with rm.FramePublisher("cam", 8) as pub:
            pub.send(np.zeros(8, "u1"))
            with pytest.raises(rm.TopicMismatch, match="another layout"):
                carrying.carry(timeout=PATIENCE_S)


def test_work_is_carried_to_workers_elsewhere() -> None:
    with (
        rm.Publisher("near", contract="work") as pub,
        rm.bridge("near", "zmq:between"),
        rm.bridge("zmq:between", "far"),
    ):
        for i in range(30):
            pub.send(b"%d" % i)
        with rm.Subscriber("far") as a, rm.Subscriber("far") as b:
            done = [worker.recv(timeout=PATIENCE_S) for _ in range(15) for worker in (a, b)]
            assert sorted(done, key=int) == [b"%d" % i for i in range(30)]
            assert rm.info("far").contract == "work"


@pytest.mark.parametrize("what", ["messages", "work", "frames"])
def test_a_bridge_that_waits_for_room_without_a_limit_can_be_closed(
    what: str, in_thread: Callable[..., Callable[[], object]], until: Callable[[Callable[[], object]], None]
) -> None:
    with ExitStack() as stack:
        if what == "frames":
            near, far = (stack.enter_context(rm.FramePublisher(name, 16, buffers=2)) for name in "ab")
            source: Any = rm.FrameSubscriber("a")
            reader: Any = stack.enter_context(rm.FrameSubscriber("b"))
            held = []
            for _ in range(2):
                far.send(np.zeros(16, "u1"), timeout=PATIENCE_S)
                held.append(stack.enter_context(reader.recv(timeout=PATIENCE_S)))
            sent = 1
        else:
            contract: Any = "reliable" if what == "messages" else "work"
            near = stack.enter_context(rm.Publisher("a", contract=contract))
            far = rm.Publisher("b", contract=contract, capacity=4096)
            source = rm.Subscriber("a")
            stack.enter_context(rm.Subscriber("b")).try_recv()
            sent = 100
        source.try_recv()
        carrying = rm.Bridge(source, far, timeout=None).start()
        for _ in range(sent):
            near.send(np.zeros(16, "u1") if what == "frames" else bytes(100))
        until(lambda: what == "frames" or carrying.traffic.carried > 10)
        in_thread(carrying.close)()
        if what == "work":
            assert carrying.traffic.dropped == 0
            with rm.Subscriber("a") as worker:
                assert len(worker.recv_many(1000)) == 100 - carrying.traffic.carried
        else:
            assert carrying.traffic.full <= 1
        carrying.close()
    for topic in rm.topics():
        rm.unlink(topic.name, force=True)


def test_work_that_finds_no_room_sleeps(until: Callable[[Callable[[], object]], None]) -> None:
    with rm.Publisher("a", contract="work") as pub, rm.Publisher("b", contract="work", capacity=4096) as far:
        for _ in range(100):
            pub.send(bytes(100))
        with rm.Bridge(rm.Subscriber("a"), far, timeout=0).start() as carrying:
            until(lambda: carrying._kept is not None)
            assert asleep.least_asleep(os.getpid()) >= asleep.ENOUGH
    rm.unlink("a", force=True)
    rm.unlink("b", force=True)


def test_work_that_finds_no_room_is_kept_and_given_back() -> None:
    with rm.Publisher("near", contract="work") as pub, rm.Publisher("far", contract="work", capacity=4096) as far:
        for i in range(100):
            pub.send(b"%02d" % i + bytes(100))
        with rm.bridge("near", "far", timeout=0, thread=False) as carrying:
            carried = carrying.carry(timeout=0)
            assert 0 < carried < 50
            assert carrying.carry(timeout=0) == 0
            assert carrying.traffic.dropped == 0
            with rm.Subscriber("far") as worker:
                assert worker.recv(timeout=0)[:2] == b"00"
                assert len(worker.recv_many(100)) == carried - 1
                worker.try_recv()
                carrying.carry(timeout=0)
                assert worker.recv(timeout=0)[:2] == b"%02d" % carried
            rest = carrying.traffic.carried
        with rm.Subscriber("near") as worker:
            first = worker.recv_message(timeout=0)
            assert int(first.data[:2]) == rest
        far.close()
    rm.unlink("near")
    rm.unlink("far")
