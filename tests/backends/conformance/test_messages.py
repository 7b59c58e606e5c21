"""What is sent is received, with all that belongs to it, on every backend and contract.

How: a publisher and a subscriber who have met; every way to send against every way to receive.
"""

from __future__ import annotations

import gc
import threading
from contextlib import suppress
from typing import Any

import msgspec
import numpy
import pyarrow
import pytest

import ringmain as rm
from ringmain import typed
from ringmain.backends import PublisherProtocol, SubscriberProtocol
from tests import contracts
from tests.backends.conformance.conftest import PATIENCE_S, Setting


class Point(msgspec.Struct):
    x: int
    y: float


class Other(msgspec.Struct):
    name: str


def test_it_is_a_publisher_and_a_subscriber(setting: Setting) -> None:
    pub, sub = setting.pair()
    assert isinstance(pub, rm.Publisher)
    assert not isinstance(pub, rm.Subscriber)
    assert isinstance(sub, rm.Subscriber)
    assert not isinstance(sub, rm.Publisher)
    for protocol, endpoint in ((PublisherProtocol, pub), (SubscriberProtocol, sub)):
        public = {name for name in vars(protocol) if not name.startswith("_")}
        assert public <= set(dir(endpoint))
    assert pub.contract == sub.contract == setting.contract


def test_numbers_times_senders_and_kinds_travel(setting: Setting) -> None:
    pub, sub = setting.pair(pub={"sender": "camera"})
    assert [pub.send(b"one", kind="frame"), pub.send(bytearray(b"two"))] == [0, 1]
    first, second = sub.recv_message(timeout=PATIENCE_S), sub.recv_message(timeout=PATIENCE_S)
    assert (first.data, first.seq, first.sender, first.kind, first.lost) == (b"one", 0, "camera", "frame", 0)
    assert (second.data, second.seq, second.kind) == (b"two", 1, "")
    assert 1.6e18 < first.time_ns <= second.time_ns
    assert (first.topic, second.topic) == ("t", "t")
    assert pub.next_sequence == 2
    assert sub.epoch == pub.epoch


def test_structs_travel_and_another_layout_is_refused(setting: Setting) -> None:
    layout = numpy.dtype([("t", "f8"), ("gyro", "f4", (3,))], align=True)
    pub, sub = setting.pair(pub={"type": layout}, type=layout)
    pub.send((0.5, (1, 2, 3)))
    record = sub.recv(timeout=PATIENCE_S)
    assert (record["t"], record["gyro"].tolist()) == (0.5, [1, 2, 3])
    sub.close()
    with pytest.raises(rm.SchemaMismatch, match="field 't': written as <f8 at byte 0, read as <i8"):
        setting.subscriber(type=numpy.dtype([("t", "i8"), ("gyro", "f4", (3,))], align=True)).recv(timeout=PATIENCE_S)


@pytest.mark.parametrize("value", ["text", {"a": 1}, 5])
def test_what_is_not_bytes_names_the_topic_and_the_type_to_ask_for(setting: Setting, value: object) -> None:
    pub = setting.publisher()
    kind = type(value).__name__
    for send in (pub.send, lambda data: pub.send_many([data])):
        with pytest.raises(TypeError, match=f"topic 't' carries bytes, not {kind}: open both ends with type={kind}"):
            send(value)


def test_a_value_that_cannot_be_encoded_names_the_topic_and_the_way_out(setting: Setting) -> None:
    pub = setting.publisher(type=dict[str, list[float]])
    with pytest.raises(TypeError, match=r"topic 't' cannot encode this dict: .*numpy.*tolist") as caught:
        pub.send({"a": numpy.zeros(3)})
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_class_that_was_defined_again_is_recognised(setting: Setting) -> None:
    def define() -> type[msgspec.Struct]:
        return msgspec.defstruct("Cell", [("x", int)], module="__main__")

    first, second = define(), define()
    pub = setting.publisher(type=first)
    with pytest.raises(TypeError, match=r"topic 't' takes Cell, but the class was defined again.*open"):
        pub.send(second(1))
    with pytest.raises(TypeError, match="topic 't' takes Cell, not int"):
        pub.send(1)


def test_any_takes_whatever_can_be_encoded(setting: Setting) -> None:
    pub, sub = setting.pair(pub={"type": Any}, type=Any)
    for value in ({"a": [1, 2.5]}, "text", None):
        pub.send(value)
        assert sub.recv(timeout=PATIENCE_S) == value
    with pytest.raises(TypeError, match="cannot encode this object"):
        pub.send(object())


def test_every_way_to_receive(setting: Setting) -> None:
    pub, sub = setting.pair()
    assert pub.send_many(b"%d" % i for i in range(7)) == 7
    assert sub.recv(timeout=PATIENCE_S) == b"0"
    received: list[bytes] = []
    while len(received) < 3:
        received += sub.recv_many(3 - len(received), timeout=PATIENCE_S)
    assert received == [b"1", b"2", b"3"]
    buffer = bytearray(8)
    assert sub.recv_into(buffer, timeout=PATIENCE_S) == 1
    assert buffer[:1] == b"4"
    assert next(iter(sub)) == b"5"
    with sub.borrow(timeout=PATIENCE_S) as message:
        assert bytes(message.data) == b"6"
        assert message.seq == 6
    assert sub.try_recv() is None
    assert sub.try_recv_message() is None
    assert sub.recv_many(5) == sub.recv_many(5, timeout=0.01) == []  # where recv() raises Timeout
    assert sub.lost == 0


def test_many_messages_have_a_kind_each_and_come_with_their_envelopes(setting: Setting) -> None:
    pub, sub = setting.pair(pub={"sender": "camera"})
    kinds = ["a", "a", "b", "", "b"]
    assert pub.send_many((b"%d" % i for i in range(5)), kinds=iter(kinds)) == 5
    received: list[rm.Message] = []
    while len(received) < 5:
        received += sub.recv_messages(5 - len(received), timeout=PATIENCE_S)
    assert [(each.data, each.seq, each.kind) for each in received] == [
        (b"%d" % i, i, kind) for i, kind in enumerate(kinds)
    ]
    assert {(each.sender, each.topic, each.lost) for each in received} == {("camera", sub.topic, 0)}
    assert sub.recv_messages(5) == sub.recv_messages(5, timeout=0.01) == []
    for wrong in ({"kinds": ["a"]}, {"kinds": ["a", "b"], "kind": "c"}):
        with pytest.raises(ValueError, match="one kind for each"):
            pub.send_many([b"x", b"y"], **wrong)
    with pytest.raises(ValueError, match="kind"):
        pub.send_many([b"x", b"y"], kinds=["a", "k" * 256])
    assert sub.recv_many(5) == []


def test_a_batch_is_arrow_columns(setting: Setting) -> None:
    pub, sub = setting.pair(pub={"sender": "me"})
    pub.send_many([b"a", b"bb"], kind="k")
    rows: list[dict[str, object]] = []
    while len(rows) < 2:
        rows += pyarrow.record_batch(sub.recv_batch(timeout=PATIENCE_S)).to_pylist()
    assert [(row["seq"], row["sender"], row["kind"], row["lost"], row["data"]) for row in rows] == [
        (0, "me", "k", 0, b"a"),
        (1, "me", "k", 0, b"bb"),
    ]
    assert pyarrow.record_batch(sub.recv_batch()).num_rows == 0


def test_a_buffer_that_is_too_small_leaves_the_message(setting: Setting) -> None:
    pub, sub = setting.pair()
    pub.send(b"12345")
    with pytest.raises(ValueError, match="5 bytes and the buffer 2"):
        sub.recv_into(bytearray(2), timeout=PATIENCE_S)
    assert sub.recv(timeout=PATIENCE_S) == b"12345"


@pytest.mark.contracts(*contracts.UNSHARED)
def test_gaps_in_the_numbers_are_counted(setting: Setting) -> None:
    pub, sub = setting.pair()
    pub.send(b"first")
    assert sub.recv_message(timeout=PATIENCE_S).lost == 0
    pub._send_as(b"later", 5, 42, "k")
    message = sub.recv_message(timeout=PATIENCE_S)
    assert (message.seq, message.time_ns, message.kind, message.lost, sub.lost) == (5, 42, "k", 4, 4)
    assert pub.next_sequence == 6


@pytest.mark.contracts(*contracts.UNSHARED)
def test_what_is_screened_is_not_delivered_and_not_lost(setting: Setting) -> None:
    pub, sub = setting.pair(ignore_kinds={"noise"})
    for kind in ("noise", "signal", "noise", "other"):
        pub.send(kind.encode(), kind=kind)
    assert sub.recv(timeout=PATIENCE_S) == b"signal"
    sub.ignore_kinds.add("signal")
    sub.ignore_kinds.remove("noise")
    assert sub.recv(timeout=PATIENCE_S) == b"noise"
    sub.ignore_senders = {""}
    assert sub.try_recv() is None
    assert sub.lost == 0


@pytest.mark.contracts(*contracts.UNSHARED)
def test_only_what_is_wanted_is_delivered(setting: Setting) -> None:
    pub, sub = setting.pair(only_kinds={"signal"})
    for kind in ("noise", "signal", "", "other"):
        pub.send(kind.encode(), kind=kind)
    assert sub.recv(timeout=PATIENCE_S) == b"signal"
    sub.only_kinds.add("other")
    assert sub.recv(timeout=PATIENCE_S) == b"other"
    sub.only_kinds, sub.only_senders = None, {"camera"}
    pub.send(b"unsigned")
    pub._set_sender("camera")
    pub.send(b"signed")
    assert sub.recv(timeout=PATIENCE_S) == b"signed"
    with pytest.raises(ValueError, match="ignore_senders and only_senders both have 'camera'"):
        sub.ignore_senders.add("camera")
    assert sub.lost == 0


@pytest.mark.needs("start='oldest' and 'newest' find earlier messages")
@pytest.mark.contracts(*contracts.TO_ALL)
def test_last_begins_with_the_newest(setting: Setting) -> None:
    pub = setting.publisher()
    pub.send_many([b"1", b"2"])
    sub = setting.subscriber(start="newest")
    pub.send(b"3")
    assert [sub.recv(timeout=PATIENCE_S), sub.recv(timeout=PATIENCE_S), sub.lost] == [b"2", b"3", 0]


def test_reserve_sends_what_was_used(setting: Setting) -> None:
    pub, sub = setting.pair()
    with pub.reserve(100, kind="r") as buffer:
        numpy.frombuffer(buffer, "u1")[:5] = list(b"hello")
        gc.collect()
        buffer.truncate(5)
        assert len(buffer) == 5
    with pytest.raises(KeyError), pub.reserve(10):
        raise KeyError("dropped")
    message = sub.recv_message(timeout=PATIENCE_S)
    assert (message.data, message.kind) == (b"hello", "r")
    pub.send(b"next")
    assert sub.recv_message(timeout=PATIENCE_S).seq == 1


def test_a_view_that_outlives_its_reservation_is_noticed(setting: Setting) -> None:
    pub, sub = setting.pair()
    kept = []
    with pytest.raises(rm.InUse, match="still alive"), pub.reserve(10) as buffer:
        kept.append(numpy.frombuffer(buffer, "u1"))
    with pytest.raises(rm.InUse):
        pub.send(b"too early")
    with pytest.raises(rm.InUse):
        pub.close()
    kept.clear()
    assert pub.send(b"now") == 0
    assert sub.recv(timeout=PATIENCE_S) == b"now"


def test_a_stream_grows_into_one_message(setting: Setting) -> None:
    pub, sub = setting.pair()
    with pub.stream(kind="s") as out:
        out.write(b"part one, ")
        out.write(b"part two")
        assert out.tell() == 18
    with pub.stream() as out:
        out.write(b"never")
        out.discard()
    with suppress(KeyError), pub.stream() as out:
        out.write(b"never")
        raise KeyError
    assert sub.recv_message(timeout=PATIENCE_S).data == b"part one, part two"
    assert sub.try_recv() is None


def test_typed_topics(setting: Setting) -> None:
    pub, sub = setting.pair(pub={"type": Point}, type=Point)
    pub.send(Point(1, 2.5))
    assert sub.recv(timeout=PATIENCE_S) == Point(1, 2.5)
    with pytest.raises(TypeError, match="takes"):
        pub.send(Other("wrong"))
    assert pub.schema == sub.schema
    assert "Point" in pub.schema.type_name


@pytest.mark.contracts(*contracts.TO_ALL)
def test_a_reader_of_another_type_is_refused(setting: Setting) -> None:
    setting.pair(pub={"type": Point})
    with pytest.raises(rm.SchemaMismatch, match="Point"):
        setting.subscriber(type=Other)


@pytest.mark.contracts(*contracts.MANY_TO_ALL)
def test_a_second_writer_must_send_what_readers_of_the_first_can_read(setting: Setting) -> None:
    class Less(msgspec.Struct):
        x: int

    class More(msgspec.Struct):
        x: int
        y: float
        z: int = 0

    setting.publisher(type=Point)
    with pytest.raises(rm.SchemaMismatch, match="Less"):
        setting.publisher(type=Less)
    assert "More" in setting.publisher(type=More).schema.type_name


@pytest.mark.contracts(*contracts.UNSHARED)
def test_a_message_that_does_not_decode_is_skipped(setting: Setting) -> None:
    pub, sub = setting.pair(type=Point)
    pub.send(b"not a point")
    pub.send(typed.codec_for(Point).encode(Point(1, 2.0)))
    with pytest.raises(rm.DecodeError, match="message 0"):
        sub.recv(timeout=PATIENCE_S)
    message = sub.recv_message(timeout=PATIENCE_S)
    assert (message.data, message.seq, message.lost) == (Point(1, 2.0), 1, 0)


def test_what_can_never_fit_is_refused(setting: Setting) -> None:
    pub, sub = setting.pair(pub={"capacity": 4096})
    assert pub.capacity == 4096
    largest = pub.max_message_bytes
    pub.send(b"x" * largest, timeout=PATIENCE_S)
    assert len(sub.recv(timeout=PATIENCE_S)) == largest
    with pytest.raises(rm.MessageTooLarge, match=r"takes up to \d+; ask for capacity=8192"):
        pub.send(b"x" * (largest + 1))
    with pytest.raises(rm.MessageTooLarge):
        pub.send_many([b"fine", b"x" * (largest + 1)])
    assert pub.next_sequence == 1
    with pytest.raises(rm.MessageTooLarge):
        pub.reserve(largest + 1)


def test_bad_arguments_teach(setting: Setting) -> None:
    pub, sub = setting.pair()
    with pytest.raises(ValueError, match="timeout is a number of seconds"):
        sub.recv(timeout=-1)
    with pytest.raises(ValueError, match="kind is at most 255 bytes"):
        pub.send(b"", kind="k" * 256)
    with pytest.raises(ValueError, match="max_messages"):
        sub.recv_many(-1)
    with pytest.raises(TypeError):
        pub.send("text")
    with pytest.raises(ValueError, match="'next', 'oldest' or 'newest'"):
        rm.Subscriber("t", backend=setting.backend, start="latest")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="contract is"):
        rm.Publisher("u", backend=setting.backend, contract="gossip")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a topic's name"):
        rm.Publisher("..", backend=setting.backend)


def test_what_is_closed_says_so(setting: Setting) -> None:
    pub, sub = setting.pair()
    for endpoint in (sub, pub):
        endpoint.close()
        endpoint.close()
        assert endpoint.closed
        assert "closed" in repr(endpoint)
    with pytest.raises(rm.Closed):
        pub.send(b"")
    with pytest.raises(rm.Closed):
        sub.recv()
    assert list(sub) == []


def test_closing_from_another_thread_ends_a_wait(setting: Setting) -> None:
    _, sub = setting.pair()
    ended: list[object] = []

    def read() -> None:
        ended.extend(sub)
        ended.append("ended")

    reader = threading.Thread(target=read)
    reader.start()
    sub.close()
    reader.join(PATIENCE_S)
    assert ended == ["ended"]
