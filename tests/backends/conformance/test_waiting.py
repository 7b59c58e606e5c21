"""Waiting: with a timeout, for several topics, in asyncio, for a topic that is not there yet or has another life.

How: real waits are either ended by a message that comes for certain, or so short that they can only time out.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import ClassVar

import pytest

import ringmain as rm
from tests import contracts
from tests.backends.conformance.conftest import PATIENCE_S, Setting


def test_a_timeout_says_for_whom_it_waited(setting: Setting) -> None:
    _, sub = setting.pair(pub={"name": "the-writer"})
    with pytest.raises(TimeoutError, match=r"no message on topic 't' within 0.01 s: waiting for writer 'the-writer'"):
        sub.recv(timeout=0.01)
    with pytest.raises(rm.Timeout):
        sub.borrow(timeout=0)


def test_a_subscriber_may_come_before_its_topic(setting: Setting) -> None:
    sub = setting.subscriber()
    assert not sub.attached
    assert sub.contract is None
    with pytest.raises(rm.Timeout, match="there is no such topic"):
        sub.recv(timeout=0.01)
    pub = setting.publisher()
    sub.try_recv()
    pub.wait_for_readers(1, timeout=PATIENCE_S)
    pub.send(b"first")
    message = sub.recv_message(timeout=PATIENCE_S)
    assert (message.data, message.seq, message.lost) == (b"first", 0, 0)
    assert sub.attached


def test_a_subscriber_follows_its_topic_into_another_life(setting: Setting) -> None:
    pub, sub = setting.pair()
    pub.send(b"one")
    assert sub.recv(timeout=PATIENCE_S) == b"one"
    first = pub.epoch
    pub.close()
    if setting.backend != "zmq":  # there a topic ends with its publisher; here, with its last participant
        rm.unlink("t", force=True) if rm.topics() else None
    again = setting.publisher()
    for _ in range(200):
        assert sub.try_recv() is None
        try:
            again.wait_for_readers(1, timeout=0.05)
            break
        except rm.Timeout:
            continue
    again.send(b"two")
    message = sub.recv_message(timeout=PATIENCE_S)
    assert (message.data, message.seq) == (b"two", 0)
    assert sub.epoch == again.epoch != first


def test_wait_for_readers_times_out(setting: Setting) -> None:
    pub, _ = setting.pair()
    with pytest.raises(rm.Timeout, match="1 of 2 readers"):
        pub.wait_for_readers(2, timeout=0.01)


def test_wait_tells_who_has_something(setting: Setting) -> None:
    pairs = [setting.pair(f"t{i}") for i in range(3)]
    subs = [sub for _, sub in pairs]
    assert rm.wait(subs, timeout=0) == []
    assert rm.wait(subs, timeout=0.01) == []
    pairs[1][0].send(b"here")
    assert rm.wait(subs, timeout=PATIENCE_S) == [subs[1]]
    assert rm.wait(subs, timeout=0) == [subs[1]]
    assert subs[1].recv(timeout=0) == b"here"
    assert rm.wait(subs, timeout=0) == []
    with pytest.raises(TypeError, match="takes subscribers"):
        rm.wait([subs[0], object()])  # type: ignore[list-item]


def test_a_thread_that_waits_is_woken(setting: Setting) -> None:
    pub, sub = setting.pair()
    received: list[bytes] = []

    def read() -> None:
        received.extend(sub.recv(timeout=PATIENCE_S) for _ in range(50))

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(50):
        pub.send(b"%d" % i, timeout=PATIENCE_S)
    reader.join(PATIENCE_S)
    assert received == [b"%d" % i for i in range(50)]


@pytest.mark.contracts(*contracts.UNSHARED)
def test_conflate_delivers_the_newest(setting: Setting) -> None:
    pub, sub = setting.pair(conflate=True)
    for i in range(20):
        pub.send(b"%d" % i)
    newest = b""
    while newest != b"19":  # on zmq they may still be on their way
        newest = sub.recv(timeout=PATIENCE_S)
    assert sub.lost == 0
    assert sub.try_recv() is None


def test_asyncio(setting: Setting) -> None:
    pub, sub = setting.pair()

    async def publish() -> None:
        for i in range(5):
            await asyncio.sleep(0.001)
            pub.send(b"%d" % i)

    async def main() -> list[bytes]:
        publishing = asyncio.create_task(publish())
        received = [await sub.arecv(timeout=PATIENCE_S) for _ in range(3)]
        async for data in sub:
            received.append(data)
            if len(received) == 5:
                break
        await publishing
        with pytest.raises(rm.Timeout):
            await sub.arecv(timeout=0.01)
        return received

    assert asyncio.run(main()) == [b"%d" % i for i in range(5)]


def test_ctrl_c_in_a_decoder_passes_and_the_message_stays(setting: Setting) -> None:
    pub, sub = setting.pair(pub={"type": Number}, type=Number)
    pub.send(Number(1))
    Number.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        sub.recv(timeout=PATIENCE_S)
    assert sub.recv(timeout=PATIENCE_S) == Number(1)


def test_closing_in_another_task_ends_the_iteration(setting: Setting) -> None:
    _, sub = setting.pair()

    async def main() -> list[bytes]:
        async def iterate() -> list[bytes]:
            return [data async for data in sub]

        task = asyncio.ensure_future(iterate())
        await asyncio.sleep(0.01)
        sub.close()
        return await asyncio.wait_for(task, PATIENCE_S)

    assert asyncio.run(main()) == []


@dataclasses.dataclass
class Number:
    n: int
    interrupts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if Number.interrupts:
            Number.interrupts = False
            raise KeyboardInterrupt
