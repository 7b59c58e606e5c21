"""Asyncio: nothing polls, a cancelled task loses no message, one loop after another, uvloop too."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import shutil
import signal
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

import ringmain as rm
from ringmain.testing import die_at
from tests import asleep, contracts
from tests.conftest import PATIENCE_S, Child
from tests.ring.test_descriptors import readable, recreated

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


@pytest.mark.parametrize("contract", contracts.WAITING_FOR_EACH)
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


class Counting(rm.Publisher):
    """Counts how often `asend` tries."""

    tries = 0

    def send(self, *args: Any, **options: Any) -> int:
        self.tries += 1
        return super().send(*args, **options)


@pytest.mark.parametrize("obstacle", ["a writer", "a reader", "no readers"])
def test_asend_sleeps_until_something_changes(run: Run, obstacle: str) -> None:
    """A try costs a hundred times as much as a look of the thread that watches."""

    async def main() -> None:
        with (
            rm.Publisher("s", contract="reliable", capacity=4096) as owner,
            Counting("s", min_readers=2 if obstacle == "no readers" else 0) as pub,
            rm.Subscriber("s") as sub,
        ):
            if obstacle == "a reader":
                with pytest.raises(rm.Full):
                    for _ in range(1000):
                        owner.send(b"x" * 100, timeout=0)
            message = owner.reserve(1) if obstacle == "a writer" else None
            with pytest.raises(rm.Full):
                await pub.asend(b"x" * 100, timeout=0.5)
            assert pub.tries <= 3, "in half a second"
            if message:
                message.discard()
            sub.recv_many(1000)

    run(main())


@pytest.mark.parametrize(("end", "obstacle"), [("close", "a writer"), ("close", "a reader"), ("unlink", "a reader")])
def test_asend_hears_of_the_end_while_it_waits(run: Run, end: str, obstacle: str) -> None:
    """A topic is not removed while a writer is in the middle of a message."""

    async def main() -> None:
        with rm.Publisher("e", contract="reliable", capacity=4096) as owner, rm.Subscriber("e"), Counting("e") as pub:
            if obstacle == "a reader":
                with pytest.raises(rm.Full):
                    for _ in range(1000):
                        owner.send(b"x" * 100, timeout=0)
            message = owner.reserve(1) if obstacle == "a writer" else None
            waiting = asyncio.ensure_future(pub.asend(b"x" * 100))
            await asyncio.sleep(0)
            pub.close() if end == "close" else rm.unlink("e", force=True)
            with pytest.raises(rm.Closed if end == "close" else rm.TopicNotFound):
                await asyncio.wait_for(waiting, PATIENCE_S)
            assert pub.tries <= 3
            if message:
                message.discard()

    run(main())


def test_asend_hears_of_a_takeover_while_it_waits(run: Run) -> None:
    async def main() -> None:
        with Counting("o", contract="pipe", capacity=4096) as pub, rm.Subscriber("o") as sub:
            with pytest.raises(rm.Full):
                for _ in range(1000):
                    pub.send(b"x" * 100, timeout=0)
            waiting = asyncio.ensure_future(pub.asend(b"x" * 100))
            await asyncio.sleep(0)
            with rm.Publisher("o", takeover=True), pytest.raises(rm.TakenOver):
                await asyncio.wait_for(waiting, PATIENCE_S)
            sub.recv_many(1000)

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


def test_a_task_that_never_waits_lets_others_run(run: Run) -> None:
    async def main() -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        with rm.Publisher("often") as pub, rm.Subscriber("often") as sub:
            beside = asyncio.ensure_future(other())
            for call in (lambda: pub.asend(b"x"), sub.arecv):
                turns = 0
                for _ in range(640):
                    await call()
                assert turns >= 9
            beside.cancel()

    run(main())


@pytest.mark.descriptors(2048)
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


@pytest.mark.parametrize("how", ["restarted", "unlinked"])
def test_all_tasks_follow_a_topic_that_is_recreated(run: Run, how: str) -> None:
    async def main() -> None:
        pub = rm.Publisher("t")
        subs = [rm.Subscriber("t") for _ in range(4)]
        tasks = [asyncio.ensure_future(sub.arecv(timeout=PATIENCE_S)) for sub in subs]
        await asyncio.sleep(0.05)  # so that the native thread most likely sleeps; if not, it is the easier
        with recreated(how, pub) as new:
            new.send(b"new")
            assert await asyncio.gather(*tasks) == [b"new"] * 4
            for sub in subs:
                sub.close()

    run(main())


@pytest.mark.parametrize(
    ("label", "script"),
    [
        ("create: named, bell not rung", "rm.Publisher('t')"),
        ("remove: writers stopped, not retired", "rm.unlink('t', force=True)"),
        ("retire: marked, name kept", "rm.unlink('t', force=True)"),
        ("retire: unlinked, not announced", "rm.unlink('t', force=True)"),
    ],
)
def test_the_process_that_should_have_rung_died(run: Run, child: Callable[..., Child], label: str, script: str) -> None:
    """Whether the topic was being created or removed: a task and a descriptor find the life that comes next."""

    async def main() -> None:
        old = None if label.startswith("create") else rm.Publisher("t")
        with rm.Subscriber("t") as waiting, rm.Subscriber("t") as watched:
            watched.fileno()
            task = asyncio.ensure_future(waiting.arecv(timeout=PATIENCE_S))
            await asyncio.sleep(0.05)
            killed = child(script, env=die_at(label))
            assert await asyncio.to_thread(killed.process.wait, PATIENCE_S) == -signal.SIGKILL
            if old is not None:
                old.close()
            with rm.Publisher("t") as new:
                new.send(b"new")
                assert await task == b"new"
                while (data := watched.try_recv()) is None:
                    assert await asyncio.to_thread(readable, watched)
                assert data == b"new"

    run(main())


def test_a_message_whose_writer_died_before_it_rang_is_found(run: Run, child: Callable[..., Child]) -> None:
    async def main() -> None:
        with rm.Publisher("t", contract="bus"), rm.Subscriber("t") as waiting, rm.Subscriber("t") as watched:
            watched.fileno()
            task = asyncio.ensure_future(waiting.arecv(timeout=PATIENCE_S))
            await asyncio.sleep(0)  # the task waits now
            killed = child(
                "rm.Publisher('t', contract='bus').send(b'late')", env=die_at("publish: turn given back, bell not rung")
            )
            assert await asyncio.to_thread(killed.process.wait, PATIENCE_S) == -signal.SIGKILL
            assert await task == b"late"
            assert await asyncio.to_thread(readable, watched)

    run(main())


@pytest.mark.parametrize("there", [True, False])
def test_closing_in_another_task_ends_all_that_wait(run: Run, there: bool) -> None:
    async def main() -> None:
        pub = rm.Publisher("x") if there else None
        sub = rm.Subscriber("x")

        async def iterate() -> str:
            async for _ in sub:
                raise AssertionError("there is no message")
            return "ended"

        loops = [asyncio.ensure_future(iterate()) for _ in range(2)]
        single = asyncio.ensure_future(sub.arecv())
        await asyncio.sleep(0.01)
        sub.close()
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.gather(*loops) == ["ended"] * 2
            with pytest.raises(rm.Closed):
                await single
        if pub:
            pub.close()

    run(main())


@pytest.mark.usefixtures("no_bell")
def test_a_directory_without_a_bell_leaves_the_loop_free(run: Run) -> None:
    async def main() -> None:
        with rm.Subscriber("later") as sub:
            task = asyncio.ensure_future(sub.arecv(timeout=PATIENCE_S))
            await asyncio.sleep(0.01)
            assert await asyncio.to_thread(asleep.least_asleep, os.getpid()) >= asleep.ENOUGH
            with rm.Publisher("later") as pub:
                pub.send(b"x")
                assert await task == b"x"

    run(main())


def test_a_directory_that_is_removed_and_made_again(run: Run, runtime_dir: Path) -> None:
    async def main() -> None:
        with rm.Subscriber("t") as sub, rm.Subscriber("t") as watched:
            assert not readable(watched, 0)
            task = asyncio.ensure_future(sub.arecv(timeout=PATIENCE_S))
            await asyncio.sleep(0.01)
            shutil.rmtree(runtime_dir)
            with rm.Publisher("t") as pub:
                pub.send(b"x")
                assert await task == b"x"
                while (data := watched.try_recv()) is None:
                    assert await asyncio.to_thread(readable, watched)
                assert data == b"x"

    run(main())
