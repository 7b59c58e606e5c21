"""One way to receive: who waits has the turn to receive for all, or sleeps until its call is finished or the turn is
free.

How: `ClientEnd.slept` counts how often a thread slept because another received. A caller that is alone never does, also
after futures and tasks have used the client; no time is measured.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import ringmain as rm
from tests.conftest import PATIENCE_S, Child

InThread = Callable[..., Callable[[], Any]]
Until = Callable[[Callable[[], object]], None]
CALLS = 200


def calls_alone(client: rm.Client[bytes, bytes]) -> None:
    """That it receives each of its replies itself."""
    slept = client._end.slept
    for i in range(CALLS):
        assert client.call(b"%d" % i, timeout=PATIENCE_S) == b"%d" % i
    assert client._end.slept == slept


def test_a_caller_alone_receives_for_itself(client: rm.Client[bytes, bytes]) -> None:
    calls_alone(client)


def test_after_the_last_future_a_caller_is_alone_again(client: rm.Client[bytes, bytes]) -> None:
    for _ in range(3):
        assert client.submit(b"x", timeout=PATIENCE_S).result(PATIENCE_S) == b"x"
        calls_alone(client)
    futures = [client.submit(b"%d" % i) for i in range(CALLS)]
    assert [future.result(PATIENCE_S) for future in futures] == [b"%d" % i for i in range(CALLS)]
    calls_alone(client)


def test_after_the_last_task_a_caller_is_alone_again(client: rm.Client[bytes, bytes]) -> None:
    async def tasks() -> None:
        assert await asyncio.gather(*(client.acall(b"x") for _ in range(10))) == [b"x"] * 10

    for _ in range(3):
        asyncio.run(tasks())
        calls_alone(client)


def test_calls_finish_while_a_future_stays_in_flight(client: rm.Client[bytes, bytes]) -> None:
    held = client.submit(b"hold", timeout=PATIENCE_S)
    for i in range(CALLS):
        assert client.call(b"%d" % i, timeout=PATIENCE_S) == b"%d" % i
    assert not held.done()
    assert client.call(b"free", timeout=PATIENCE_S) == b"free"
    assert held.result(PATIENCE_S) == b"freed"
    calls_alone(client)


def test_a_caller_receives_for_tasks_and_futures(client: rm.Client[bytes, bytes], in_thread: InThread) -> None:
    """A thread that waits for a slow call has the turn all the while."""
    slow = in_thread(lambda: client.call(b"hold", timeout=PATIENCE_S))

    async def tasks() -> list[bytes]:
        return await asyncio.gather(*(client.acall(b"%d" % i, timeout=PATIENCE_S) for i in range(20)))

    for i in range(20):
        assert client.submit(b"%d" % i, timeout=PATIENCE_S).result(PATIENCE_S) == b"%d" % i
    assert asyncio.run(tasks()) == [b"%d" % i for i in range(20)]
    assert client.call(b"free", timeout=PATIENCE_S) == b"free"
    assert slow() == b"freed"


def test_a_callback_of_a_future_may_call(client: rm.Client[bytes, bytes]) -> None:
    replies: list[bytes] = []
    called = threading.Event()

    def call(_: object) -> None:
        replies.append(client.call(b"again", timeout=PATIENCE_S))
        called.set()

    client.submit(b"x", timeout=PATIENCE_S).add_done_callback(call)
    assert called.wait(PATIENCE_S)
    assert replies == [b"again"]


def test_a_callback_that_ends_its_thread_costs_no_other_future_its_result(client: rm.Client[bytes, bytes]) -> None:
    """`Future` passes on what is no `Exception`."""

    def leave(_: object) -> None:
        raise SystemExit

    held = [client.submit(b"hold", timeout=PATIENCE_S) for _ in range(10)]
    for each in held[::2]:
        each.add_done_callback(leave)
    assert client.call(b"free", timeout=PATIENCE_S) == b"free"
    assert [each.result(PATIENCE_S) for each in held] == [b"freed"] * 10
    assert client.submit(b"x").result(PATIENCE_S) == b"x"


def test_what_a_thread_received_for_a_task_that_was_cancelled_is_let_go(
    client: rm.Client[bytes, bytes],
) -> None:
    async def tasks() -> None:
        task = asyncio.create_task(client.acall(b"hold", timeout=PATIENCE_S))
        while not client.in_flight:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)  # the one that receives for tasks waits
        (pump,) = client._pumps.values()
        assert client.call(b"free", timeout=PATIENCE_S) == b"free"  # it receives, and the loop does not run meanwhile
        task.cancel()
        while client._pumps:
            await asyncio.sleep(0.01)
        assert task.cancelled()
        assert client._end.forget(pump.waiter) == []

    asyncio.run(tasks())


@pytest.mark.parametrize("ends", ["late", "closed"])
def test_the_next_one_receives_when_the_first_gives_up(
    client: rm.Client[bytes, bytes], in_thread: InThread, until: Until, ends: str
) -> None:
    first = in_thread(lambda: client.call(b"hold", timeout=0.2 if ends == "late" else None))
    until(lambda: client.in_flight == 1)
    others = [in_thread(lambda: client.call(b"hold", timeout=PATIENCE_S)) for _ in range(3)]
    until(lambda: client.in_flight == 4)
    if ends == "late":
        with pytest.raises(rm.Timeout):
            first()
        assert client.call(b"free", timeout=PATIENCE_S) == b"free"
        assert [other() for other in others] == [b"freed"] * 3
        calls_alone(client)
        return
    client.close()
    for call in (first, *others):
        with pytest.raises(rm.Closed, match="client of service 'infer' was closed"):
            call()


def test_each_of_many_threads_gets_what_is_its_own(client: rm.Client[bytes, bytes], in_thread: InThread) -> None:
    def calls(name: str) -> bool:
        texts = [f"{name}{i}".encode() for i in range(100)]
        return all(client.call(text, timeout=PATIENCE_S) == text for text in texts)

    def futures(name: str) -> bool:
        texts = [f"{name}{i}".encode() for i in range(100)]
        return [each.result(PATIENCE_S) for each in map(client.submit, texts)] == texts

    async def tasks() -> list[bytes]:
        return await asyncio.gather(*(client.acall(b"t%d" % i) for i in range(100)))

    threads = [in_thread(calls, name) for name in "abcd"] + [in_thread(futures, name) for name in "ef"]
    assert asyncio.run(tasks()) == [b"t%d" % i for i in range(100)]
    assert all(each() for each in threads)
    calls_alone(client)


INTERRUPTED = """
import threading
with rm.Client("infer") as client:
    def ask():
        say(client.call(b"other", timeout=60))
    caught = False
    try:
        say("calls")
        other = threading.Thread(target=lambda: hear() or ask())
        other.start()
        client.call(b"first", timeout=60)
    except KeyboardInterrupt:
        say("interrupted")
    other.join()
    say(client.call(b"last", timeout=60))
"""


def test_ctrl_c_in_the_one_that_receives_costs_another_no_reply(child: Callable[..., Child], until: Until) -> None:
    with rm.Server("infer") as server:
        program = child(INTERRUPTED)
        assert program.line() == "calls"
        (first,) = server.take(1, timeout=PATIENCE_S)
        program.tell()  # the other thread calls, and sleeps: the main thread receives
        (other,) = server.take(1, timeout=PATIENCE_S)
        program.process.send_signal(signal.SIGINT)
        assert program.line() == "interrupted"
        other.reply(b"other's")
        first.reply(b"no one waits for it")
        assert program.line() == 'b"other\'s"'
        (last,) = server.take(1, timeout=PATIENCE_S)
        last.reply(b"last's")
        assert program.line() == 'b"last\'s"'
        program.finish()


def test_a_signal_handler_cannot_use_the_client_that_it_interrupts(child: Callable[..., Child]) -> None:
    program = child("""
        import signal
        with rm.Client("infer") as client:
            def handle(*_):
                try: client.call(b"nested", timeout=60)
                except rm.InUse: say("in use")
            signal.signal(signal.SIGTERM, handle)
            say("calls")
            say(client.call(b"x", timeout=60))
    """)
    with rm.Server("infer") as server:
        assert program.line() == "calls"
        (request,) = server.take(1, timeout=PATIENCE_S)
        program.process.send_signal(signal.SIGTERM)
        assert program.line() == "in use"
        request.reply(b"done")
        assert program.line() == "b'done'"
        server.take(1, timeout=0)
        program.finish()


def test_each_caller_hears_that_its_server_died(
    client: rm.Client[bytes, bytes], in_thread: InThread, child: Callable[..., Child]
) -> None:
    """Also one that sleeps, while another that still waits receives."""
    with rm.Client("mortal") as other:
        waits = in_thread(lambda: other.call(b"x", timeout=PATIENCE_S))
        victim = child("""
            with rm.Server("mortal") as server:
                say("ready")
                taken = server.take(1)
                say("taken")
                hear()
        """)
        assert [victim.line(), victim.line()] == ["ready", "taken"]
        also = in_thread(lambda: other.call(b"never taken", timeout=PATIENCE_S))
        victim.kill()
        with pytest.raises(rm.ServerGone):
            waits()
        with rm.Server("mortal") as server:
            (request,) = server.take(1, timeout=PATIENCE_S)
            request.reply(b"by the next")
            assert also() == b"by the next"
