"""Asyncio and descriptors: nothing polls, a cancelled task loses no message, one loop after another, uvloop too."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import selectors
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

import ringmain as rm
from tests.conftest import PATIENCE_S, Child

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return asyncio.run if request.param == "asyncio" else uvloop.run


def test_receives_what_another_process_sends(run: Run, child: Callable[..., Child]) -> None:
    sender = child("""
        with rm.Publisher("a") as pub:
            pub.wait_for_readers(1, timeout=30)
            for i in range(1000): pub.send(b"%d" % i)
            hear()
    """)

    async def main() -> None:
        got = []
        with rm.Subscriber("a") as sub:
            async for data in sub:
                got.append(int(data))
                if got[-1] == 999:
                    break
            assert len(got) + sub.lost == 1000
        assert got == sorted(set(got))

    run(main())
    sender.tell()
    sender.finish()


def test_a_topic_that_appears_later(run: Run) -> None:
    async def main() -> None:
        with rm.Subscriber("later") as sub:
            receiving = asyncio.ensure_future(sub.arecv_message(timeout=PATIENCE_S))
            await asyncio.sleep(0)
            with rm.Publisher("later", sender="me") as pub:
                pub.send(b"x", kind="k")
                message = await receiving
                assert (message.data, message.sender, message.kind) == (b"x", "me", "k")

    run(main())


def test_timeout_says_for_whom(run: Run) -> None:
    async def main() -> None:
        with rm.Publisher("t", name="cam"), rm.Subscriber("t") as sub:
            with pytest.raises(rm.Timeout, match=r"'t' within 0\.01 s: waiting for writer 'cam'"):
                await sub.arecv(timeout=0.01)

    run(main())


@pytest.mark.parametrize("contract", ["pipe", "reliable"])
def test_asend_waits_for_room_and_says_for_whom(run: Run, contract: Any) -> None:
    async def main() -> None:
        with rm.Publisher("w", contract=contract, capacity=4096) as pub, rm.Subscriber("w", name="slow") as sub:

            async def produce() -> None:
                for i in range(1000):
                    await pub.asend(b"%d" % i, timeout=PATIENCE_S)

            async def consume() -> list[int]:
                return [int(await sub.arecv(timeout=PATIENCE_S)) for _ in range(1000)]

            _, got = await asyncio.gather(produce(), consume())
            assert got == list(range(1000))
            with pytest.raises(rm.Full, match="'slow'"):
                for _ in range(1000):
                    await pub.asend(b"x" * 100, timeout=0.01)
            sub.recv_many(1000)

    run(main())


def test_asend_goes_on_when_the_reader_dies(run: Run, child: Callable[..., Child]) -> None:
    async def main() -> None:
        with rm.Publisher("d", contract="reliable", capacity=4096) as pub:
            reader = child('with rm.Subscriber("d") as sub: say("in"); hear()')
            reader.line()
            with pytest.raises(rm.Full):
                for _ in range(1000):
                    pub.send(b"x" * 100, timeout=0)
            waiting = asyncio.ensure_future(pub.asend(b"x" * 100, timeout=PATIENCE_S))
            await asyncio.sleep(0)
            reader.kill()
            await waiting

    run(main())


def test_cancellation_loses_nothing(run: Run, seed: int) -> None:
    """Receives are cancelled at random moments, while another thread sends; on a pipe every message must arrive."""
    count = 3000
    dice = random.Random(seed)

    def send() -> None:
        with rm.Publisher("c", contract="pipe", capacity=65536) as pub:
            for i in range(count):
                pub.send(b"%d" % i, timeout=PATIENCE_S)
            while not pub.all_read:
                threading.Event().wait(0.001)

    async def main() -> None:
        sender = threading.Thread(target=send)
        with rm.Subscriber("c") as sub:
            sender.start()
            got: list[int] = []
            cancelled = 0
            while len(got) < count:
                task = asyncio.ensure_future(sub.arecv(timeout=PATIENCE_S))
                for _ in range(dice.randrange(3)):
                    await asyncio.sleep(0)
                if dice.random() < 0.5:
                    task.cancel()
                try:
                    got.append(int(await task))
                except asyncio.CancelledError:
                    cancelled += 1
            assert got == list(range(count))
            assert cancelled > 0
        sender.join(PATIENCE_S)

    run(main())


def test_many_subscribers_share_one_waiter(run: Run) -> None:
    """200 topics awaited in one loop: two native threads (127 each), not 200, and no descriptor for each."""

    async def main() -> None:
        before = len(os.listdir("/proc/self/task"))  # other libraries have threads of their own
        subs = [rm.Subscriber(f"m/{i}") for i in range(200)]
        pubs = [rm.Publisher(f"m/{i}", capacity=4096) for i in range(200)]
        try:
            tasks = [asyncio.ensure_future(sub.arecv(timeout=PATIENCE_S)) for sub in subs]
            await asyncio.sleep(0.01)
            threads = len(os.listdir("/proc/self/task"))
            for i, pub in enumerate(pubs):
                pub.send(b"%d" % i)
            assert [int(data) for data in await asyncio.gather(*tasks)] == list(range(200))
            assert threads <= before + 6
        finally:
            for endpoint in [*subs, *pubs]:
                endpoint.close()

    run(main())


def test_one_loop_after_another_and_nothing_leaks(run: Run) -> None:
    async def main() -> None:
        with rm.Publisher("l") as pub, rm.Subscriber("l") as sub:
            task = asyncio.ensure_future(sub.arecv(timeout=PATIENCE_S))
            await asyncio.sleep(0)
            pub.send(b"x")
            assert await task == b"x"

    run(main())
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        run(main())
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_closing_ends_the_iteration(run: Run) -> None:
    async def main() -> None:
        sub = rm.Subscriber("x")
        with rm.Publisher("x") as pub:
            pub.send(b"1")
            got = []
            async for data in sub:
                got.append(data)
                sub.close()
            assert got == [b"1"]

    run(main())


def test_descriptor_is_readable_while_a_message_is_there() -> None:
    with rm.Subscriber("fd") as sub, rm.Publisher("fd") as pub, selectors.DefaultSelector() as selector:
        selector.register(sub, selectors.EVENT_READ)
        assert not selector.select(0)
        pub.send(b"1")
        pub.send(b"2")
        assert selector.select(PATIENCE_S)
        assert sub.recv() == b"1"
        assert selector.select(0), "one is still there"
        assert sub.recv() == b"2"
        assert not selector.select(0)
        pub.send(b"3")
        assert selector.select(PATIENCE_S)
        assert sub.recv_many(10) == [b"3"]
        assert not selector.select(0)


def test_descriptor_of_a_topic_that_appears_later() -> None:
    with rm.Subscriber("soon") as sub, selectors.DefaultSelector() as selector:
        selector.register(sub, selectors.EVENT_READ)
        with rm.Publisher("soon") as pub:
            pub.send(b"1")
            while sub.try_recv() is None:
                assert selector.select(PATIENCE_S)
            assert not selector.select(0)
