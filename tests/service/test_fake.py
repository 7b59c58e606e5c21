"""Requests in a fake world: virtual time, and deaths on demand."""

from __future__ import annotations

import asyncio
import threading

import pytest

import ringmain as rm
from ringmain.testing import fake


def serve(server: rm.Server[bytes, bytes], count: int) -> None:
    for _, request in zip(range(count), server, strict=False):
        request.reply(request.data.upper())


@pytest.mark.parametrize("seed", range(5))
def test_calls_and_futures(seed: int) -> None:
    with fake(seed=seed), rm.Server("echo") as server, rm.Client("echo") as client:
        thread = threading.Thread(target=serve, args=(server, 4))
        thread.start()
        assert client.call(b"a", timeout=1) == b"A"
        futures = [client.submit(b"b%d" % i, timeout=1) for i in range(3)]
        assert [future.result() for future in futures] == [b"B0", b"B1", b"B2"]
        thread.join()


def test_a_timeout_takes_virtual_time() -> None:
    with fake() as world, rm.Client("echo") as client:
        before_ns = world.time_ns()
        with pytest.raises(rm.Timeout, match="it has no server"):
            client.call(b"", timeout=3600)
        assert world.time_ns() - before_ns > 3599e9
        with pytest.raises(rm.Busy):
            client.call(b"", if_idle=True)


def test_an_expired_request_is_not_computed() -> None:
    with fake() as world, rm.Client("echo") as client, rm.Server("echo") as server:
        client._send(b"expired", 1.0)
        world.sleep(2)
        call = client._send(b"wanted", 60.0)
        request = next(server)
        assert request.data == b"wanted"
        request.reply(b"done")
        assert client._outcome(call) == b"done"


def test_a_batch_ends_after_its_time() -> None:
    with fake() as world, rm.Client("echo") as client, rm.Server("echo") as server:
        client._send(b"one", 60.0)
        before_ns = world.time_ns()
        (request,) = next(server.batches(64, wait_s=5.0))
        assert world.time_ns() - before_ns > 4.9e9
        request.fail("late")


@pytest.mark.parametrize("retry", [False, True])
def test_a_server_is_killed(retry: bool) -> None:
    with fake() as world, rm.Client("echo") as client:
        victim = rm.Server("echo", name="victim")
        call = client._send(b"x", 60.0, retry)
        kept = next(victim)
        world.kill("echo", "victim")
        with rm.Server("echo") as server:
            if retry:
                request = next(server)
                assert request.redelivered == 1
                request.reply(b"done")
                assert client._outcome(call) == b"done"
            else:
                with pytest.raises(rm.ServerGone):
                    client._outcome(call)
                assert server.take(1, timeout=1) == []
        kept._abandon()
        victim._reporter.close()


def test_asyncio() -> None:
    async def main() -> None:
        with rm.Server("echo") as server, rm.Client("echo") as client:

            async def serving() -> None:
                async for request in server:
                    request.reply(request.data.upper())

            task = asyncio.create_task(serving())
            assert await asyncio.gather(*(client.acall(b"a%d" % i, timeout=5) for i in range(5))) == [
                b"A%d" % i for i in range(5)
            ]
            server.close()
            await task

    with fake():
        asyncio.run(main())
