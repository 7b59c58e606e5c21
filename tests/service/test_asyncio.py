"""Requests in an event loop: calls that run at the same time, a server that is a task, deaths, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

import ringmain as rm
from tests.conftest import Child

Run = Callable[[Coroutine[Any, Any, None]], None]
LONG_S = 60.0


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return asyncio.run if request.param == "asyncio" else uvloop.run


async def serve(server: rm.Server[bytes, bytes]) -> None:
    async for request in server:
        request.reply(request.data.upper())


def test_calls_and_a_server_in_one_loop(run: Run) -> None:
    async def main() -> None:
        with rm.Server("echo") as server, rm.Client("echo") as client:
            serving = asyncio.create_task(serve(server))
            replies = await asyncio.gather(*(client.acall(b"a%d" % i, timeout=LONG_S) for i in range(50)))
            assert replies == [b"A%d" % i for i in range(50)]
            assert await client.acall(b"b") == b"B"
            server.close()
            await serving

    run(main())


def test_another_process_serves_tasks_out_of_order(run: Run, child: Callable[..., Child]) -> None:
    server = child("""
        with rm.Server("echo") as server:
            say("ready")
            first, second = server.batches(2, wait_s=300).__next__()
            second.reply(second.data)
            hear()
            first.reply(first.data)
            hear()
    """)
    assert server.line() == "ready"

    async def main() -> None:
        with rm.Client("echo") as client:
            first = asyncio.create_task(client.acall(b"first", timeout=LONG_S))
            await asyncio.sleep(0)  # it runs up to where it waits
            assert await client.acall(b"second", timeout=LONG_S) == b"second"
            assert not first.done()
            server.tell()
            assert await first == b"first"
            server.tell()

    run(main())
    server.finish()


def test_failures_and_timeouts(run: Run) -> None:
    async def main() -> None:
        with rm.Client("echo") as client:
            with pytest.raises(rm.Timeout, match="it has no server"):
                await client.acall(b"", timeout=0.02)
            with pytest.raises(rm.Busy):
                await client.acall(b"", if_idle=True)
            with rm.Server("echo") as server:
                call = asyncio.create_task(client.acall(b"x", timeout=LONG_S))
                request = await anext(server)
                request.fail("no")
                with pytest.raises(rm.RequestFailed, match=r"^no$"):
                    await call

    run(main())


def test_a_server_that_is_killed(run: Run, child: Callable[..., Child]) -> None:
    victim = child("""
        server = rm.Server("echo")
        say("ready")
        requests = server.take(2)
        say("taken")
        hear()
    """)
    assert victim.line() == "ready"

    async def main() -> None:
        with rm.Client("echo") as client:
            call = asyncio.create_task(client.acall(b"x", timeout=LONG_S))
            assert await asyncio.to_thread(victim.line) == "taken"
            victim.kill()
            with pytest.raises(rm.ServerGone):
                await call

    run(main())
    rm.clean()


def test_a_cancelled_call_ignores_its_reply(run: Run) -> None:
    async def main() -> None:
        with rm.Server("echo") as server, rm.Client("echo") as client:
            cancelled = asyncio.create_task(client.acall(b"cancelled", timeout=LONG_S))
            request = await anext(server)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            kept = asyncio.create_task(client.acall(b"kept", timeout=LONG_S))
            request.reply(b"too late")
            (await anext(server)).reply(b"in time")
            assert await kept == b"in time"

    run(main())


def test_a_full_ring_is_waited_for(run: Run) -> None:
    async def main() -> None:
        with rm.Client("echo", capacity=4096) as client, rm.Server("echo") as server:
            calls = [asyncio.create_task(client.acall(bytes(1000), timeout=LONG_S)) for _ in range(20)]
            serving = asyncio.create_task(serve(server))
            assert await asyncio.gather(*calls) == [bytes(1000)] * 20
            server.close()
            await serving

    run(main())


def test_threads_and_tasks_share_a_client(run: Run) -> None:
    async def main() -> None:
        with rm.Server("echo") as server, rm.Client("echo") as client:
            serving = asyncio.create_task(serve(server))
            threads = [asyncio.to_thread(client.call, b"t%d" % i, LONG_S) for i in range(5)]
            tasks = [client.acall(b"a%d" % i, timeout=LONG_S) for i in range(5)]
            future = client.submit(b"f", timeout=LONG_S)
            replies = await asyncio.gather(*threads, *tasks)
            assert replies == [b"T%d" % i for i in range(5)] + [b"A%d" % i for i in range(5)]
            assert await asyncio.wrap_future(future) == b"F"
            server.close()
            await serving

    run(main())


def test_closing_a_client_ends_its_tasks(run: Run) -> None:
    async def main() -> None:
        client = rm.Client("echo")
        call = asyncio.create_task(client.acall(b"x", timeout=LONG_S))
        await asyncio.sleep(0)
        client.close()
        with pytest.raises(rm.Closed):
            await call

    run(main())
