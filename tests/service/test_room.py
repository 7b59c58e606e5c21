"""Two limits of a request: how long it waits for room, and until when its reply must come. One that nobody waits for
any more gives its room back, without a server."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

import ringmain as rm
from ringmain.testing import fake
from tests.conftest import PATIENCE_S

InThread = Callable[..., Callable[[], Any]]
Until = Callable[[Callable[[], object]], None]


@pytest.fixture(params=["shm", "fake"])
def backend(request: pytest.FixtureRequest) -> Iterator[Any]:
    with fake() if request.param == "fake" else nullcontext():
        yield request.param


def fill(client: rm.Client[bytes, bytes], timeout: float | None = None) -> list[Any]:
    futures = []
    with pytest.raises(rm.Busy, match="no room"):
        while True:
            futures.append(client.submit(bytes(900), timeout=timeout, room_timeout=0))
    return futures


def waits_for_room() -> bool:
    return any(writer.waits_for for writer in rm.info("infer").writers)


def test_a_request_that_does_not_wait_for_room_has_a_deadline(backend: Any) -> None:
    with rm.Client("infer", capacity=4096, backend=backend) as client:
        futures = fill(client, timeout=0.05)
        for future in futures:
            with pytest.raises(rm.Timeout, match="it has no server"):
                future.result(PATIENCE_S)
        assert rm.info("infer").waiting == 0
        assert len(fill(client)) == len(futures)  # there is room again


def test_the_wait_for_room_may_be_shorter_than_that_for_the_reply() -> None:
    with rm.Client("infer", capacity=4096) as client:
        fill(client)
        for send in (client.submit, client.call):
            with pytest.raises(rm.Full, match="no room"):
                send(bytes(900), timeout=PATIENCE_S, room_timeout=0.01)
        with pytest.raises(rm.Full):
            client.reserve(900, timeout=PATIENCE_S, room_timeout=0.01)

        async def in_loop() -> None:
            with pytest.raises(rm.Full, match="no room"):
                await client.acall(bytes(900), timeout=PATIENCE_S, room_timeout=0.01)
            with pytest.raises(rm.Busy):
                await client.acall(bytes(900), timeout=PATIENCE_S, room_timeout=0)

        asyncio.run(in_loop())


def test_a_request_that_waits_for_room_gets_that_of_an_expired_one() -> None:
    with rm.Client("infer", capacity=4096) as client:
        fill(client, timeout=0.1)
        last = b"x" * 900
        future = client.submit(last, timeout=PATIENCE_S)
        with rm.Server("infer") as server:
            # Where others hold this process up, the later ones have not expired yet.
            next(request for request in server if request.data == last).reply(b"done")
        assert future.result(PATIENCE_S) == b"done"


def test_a_thread_that_waits_for_room_holds_up_no_other(in_thread: InThread, until: Until) -> None:
    with rm.Client("infer", capacity=4096) as client:
        fill(client)
        waiting = in_thread(lambda: client.submit(bytes(900)))
        until(waits_for_room)
        with pytest.raises(rm.Busy, match="another thread"):
            client.submit(bytes(900), room_timeout=0)
        with pytest.raises(rm.Full, match="another thread"):
            client.call(bytes(900), room_timeout=0.001)
        with rm.Server("infer") as server:
            for request in server.take(100, timeout=PATIENCE_S):
                request.reply(b"")
            waiting()


@pytest.mark.parametrize("how", ["call", "submit", "acall"])
def test_a_request_that_gets_room_while_its_client_closes_has_an_outcome(
    in_thread: InThread, until: Until, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It is sent when those in flight were told already that the client is closed."""
    with rm.Client("infer", capacity=4096) as client:
        futures = fill(client)
        waiting = in_thread(
            {
                "call": lambda: client.call(b"last" * 225),
                "submit": lambda: client.submit(b"last" * 225).result(PATIENCE_S),
                "acall": lambda: asyncio.run(client.acall(b"last" * 225)),
            }[how]
        )
        until(waits_for_room if how != "acall" else lambda: client._pumps)
        close_replies = client._replies.close

        def close() -> None:
            with rm.Server("infer") as server:
                for request in server:
                    if request.data.startswith(b"last"):
                        break
                    request.reply(b"")
                close_replies()

        monkeypatch.setattr(client._replies, "close", close)
        client.close()
        with pytest.raises(rm.Closed):
            waiting()
        for future in futures:
            with pytest.raises(rm.Closed):
                future.result(PATIENCE_S)


def test_a_call_that_waits_for_room_is_not_longer_for_it(in_thread: InThread, until: Until) -> None:
    with rm.Client("infer", capacity=4096) as client:
        fill(client, timeout=1.0)
        last = b"x" * 900
        waiting = in_thread(lambda: client.call(last, timeout=PATIENCE_S))
        until(waits_for_room)
        waits_ns = time.monotonic_ns()
        until(lambda: not waits_for_room())  # one of the others has expired, and it was sent
        with rm.Server("infer") as server:
            request = next(request for request in server if request.data == last)
            assert request.deadline_ns is not None
            assert request.deadline_ns <= waits_ns + PATIENCE_S * 1e9
            request.reply(b"")
            waiting()


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_that_cannot_be(timeout: float) -> None:
    with rm.Client("infer") as client:
        for send in (client.call, client.submit):
            with pytest.raises(ValueError, match="timeout"):
                send(b"", timeout=timeout)


def test_a_cancelled_call_takes_its_request_back() -> None:
    async def main() -> None:
        with rm.Client("infer") as client:
            task = asyncio.create_task(client.acall(b"x"))
            await asyncio.sleep(0)
            assert rm.info("infer").waiting == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert rm.info("infer").waiting == 0

    asyncio.run(main())


# --------------------------------------------------------------------------------------------------------------- map


def test_map_gives_the_replies_in_order(in_thread: InThread) -> None:
    with rm.Server("infer") as server, rm.Client("infer") as client:
        done = in_thread(server.serve, bytes.upper)
        for buffersize in (None, 1, 3):
            replies = client.map((b"a%d" % i for i in range(50)), timeout=PATIENCE_S, buffersize=buffersize)
            assert list(replies) == [b"A%d" % i for i in range(50)]
        server.close()
        done()


def test_map_sends_at_once_and_no_more_than_its_buffer() -> None:
    asked = []
    with rm.Client("infer") as client:
        replies = client.map((asked.append(i) or b"x" for i in range(10)), timeout=0.05, buffersize=3)  # type: ignore[func-returns-value]
        assert asked == [0, 1, 2]
        with pytest.raises(rm.Timeout, match="it has no server"):
            next(replies)
        with pytest.raises(ValueError, match="buffersize"):
            client.map([], buffersize=0)


# ------------------------------------------------------------------------------------------------ futures and loops


def test_a_future_expires_while_other_replies_keep_coming(client: rm.Client[bytes, bytes]) -> None:
    held = client.submit(b"hold", timeout=0.2)
    begun_s = time.monotonic()
    while not held.done():
        client.submit(b"x").result(PATIENCE_S)
        assert time.monotonic() - begun_s < PATIENCE_S
    with pytest.raises(rm.Timeout):
        held.result(0)


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # asyncio's, of what was left in the loop
def test_an_event_loop_that_was_closed_with_a_call_under_way(client: rm.Client[bytes, bytes]) -> None:
    loop = asyncio.new_event_loop()
    task = loop.create_task(client.acall(b"x"))
    loop.call_soon(loop.stop)
    loop.run_forever()  # the call was sent; its reply is received by the thread of the futures
    loop.close()
    for _ in range(3):
        assert client.submit(b"y").result(PATIENCE_S) == b"y"
    assert not task.done()
    assert asyncio.run(client.acall(b"z", timeout=PATIENCE_S)) == b"z"
    del task, loop
    gc.collect()


def test_loops_do_not_stay(client: rm.Client[bytes, bytes]) -> None:
    for _ in range(20):
        assert asyncio.run(client.acall(b"x", timeout=PATIENCE_S)) == b"x"
    gc.collect()
    assert sum(isinstance(each, asyncio.AbstractEventLoop) for each in gc.get_objects()) < 5


def test_what_ends_the_thread_of_the_futures_fails_them(
    client: rm.Client[bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(futures: object) -> list[Any]:
        raise rm.Corrupt("broken")

    before = threading.active_count()
    with monkeypatch.context() as patched:
        patched.setattr("ringmain.backends.shm._futures.Futures._wait", fails)
        with pytest.raises(rm.Corrupt):
            client.submit(b"x").result(PATIENCE_S)
    assert client.submit(b"x").result(PATIENCE_S) == b"x"
    assert threading.active_count() <= before + 2, "the one that ended may still be on its way out"
