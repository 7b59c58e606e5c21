"""The fake world: virtual time, an order that the seed decides, faults on demand, and errors instead of hanging.

How: small programs with threads and event loops, unchanged from what they would be on shared memory. An hour passes in
no real time, which shows that no thread really waits.
"""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import ringmain as rm
from ringmain._contracts import CONTRACTS
from ringmain.backends import choose
from ringmain.testing import Deadlock, Killed, Stuck, fake
from tests import contracts
from tests.conftest import PATIENCE_S


def test_time_is_virtual_and_starts_where_it_always_starts() -> None:
    with fake() as world, rm.Publisher("x") as pub, rm.Subscriber("x") as sub:
        before = time.time()
        pub.send(b"1")
        world.advance(3600)
        pub.send(b"2")
        first, second = sub.recv_message(), sub.recv_message()
        assert second.time_ns - first.time_ns == 3600 * 10**9
        assert first.time_ns == 1_700_000_000 * 10**9
        with pytest.raises(rm.Timeout, match="within 7200 s"):
            sub.recv(timeout=7200)
        time.sleep(3600)
        assert time.time() - before == 4 * 3600
    assert choose() == "shm"


def test_a_later_event_happens_while_a_thread_waits() -> None:
    with fake() as world, rm.Publisher("x") as pub, rm.Subscriber("x") as sub:
        world.after(10, lambda: pub.send(b"later"))
        message = sub.recv_message(timeout=60)
        assert (message.data, message.time_ns) == (b"later", world.time_ns())
        assert world.time_ns() == 1_700_000_010 * 10**9


def race(seed: int) -> list[bytes]:
    """Three threads write to a bus as they please; the order they come out in."""
    with fake(seed=seed), rm.Subscriber("x") as sub:

        def write(name: str) -> None:
            with rm.Publisher("x", contract="bus", sender=name) as pub:
                for i in range(5):
                    pub.send(f"{name}{i}".encode())

        threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        received = [sub.recv() for _ in range(15)]
        for thread in threads:
            thread.join()
        assert sorted(received) == sorted(f"{name}{i}".encode() for name in "abc" for i in range(5))
        return received


def test_the_seed_decides_the_order() -> None:
    runs = {seed: race(seed) for seed in range(8)}
    assert all(race(seed) == run for seed, run in runs.items())
    assert len({tuple(run) for run in runs.values()}) > 1


def test_a_writer_waits_for_a_slow_thread_in_virtual_time() -> None:
    with fake() as world, rm.Publisher("x", contract="pipe", capacity=4096) as pub:
        received = []

        def read_slowly() -> None:
            with rm.Subscriber("x") as sub:
                for _ in range(200):
                    time.sleep(1)
                    received.append(sub.recv())

        reader = threading.Thread(target=read_slowly)
        reader.start()
        for i in range(200):
            pub.send(b"%d" % i * 100)
        reader.join()
        assert received == [b"%d" % i * 100 for i in range(200)]
        assert world.time_ns() == 1_700_000_200 * 10**9


def test_asyncio_runs_on_the_virtual_clock() -> None:
    async def main() -> list[object]:
        with rm.Publisher("x", contract="pipe", capacity=4096) as pub, rm.Subscriber("x") as sub:

            async def publish() -> None:
                for i in range(60):
                    await pub.asend(b"%d" % i * 100)
                    await asyncio.sleep(10)

            publishing = asyncio.create_task(publish())
            received = [await sub.arecv(timeout=11) for _ in range(60)]
            await publishing
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1000):
                    await sub.arecv()
            return received

    with fake() as world:
        assert asyncio.run(main()) == [b"%d" % i * 100 for i in range(60)]
        assert world.time_ns() // 10**9 == 1_700_000_000 + 1600


def test_latest_and_syncqueue_live_there_too() -> None:
    with fake() as world, rm.Latest({"x": 1.0}) as latest, rm.Publisher("x") as pub:
        pub.send(b"1")
        assert latest.update(timeout=1)
        assert latest.alive["x"]
        world.advance(60)
        assert not latest.alive["x"]
        with rm.SyncQueue("q", "one") as one, rm.SyncQueue("q", "two") as two:
            one.append("k", "hello")
            message = two.pop(block=True, timeout=1)
            assert message is not None
            assert (message.text, message.sender) == ("hello", "one")


# ---------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize("contract", contracts.ALL)
def test_a_message_can_be_lost(contract: rm._publisher.Contract) -> None:
    with fake() as world, rm.Publisher("x", contract=contract) as pub, rm.Subscriber("x", name="r") as sub:
        world.lose("x", 2)
        world.lose("x", 3, reader="somebody else")
        pub.send_many([b"%d" % i for i in range(5)])
        received = [sub.recv_message() for _ in range(4)]
        assert [message.seq for message in received] == [0, 1, 3, 4]
        told = 0 if CONTRACTS[contract].shared else 1  # what a worker does not get may be another's
        assert [message.lost for message in received] == [0, 0, told, 0]
        assert sub.lost == told


def test_a_reader_can_be_lapped() -> None:
    with (
        fake() as world,
        rm.Publisher("x") as pub,
        rm.Subscriber("x", name="a") as a,
        rm.Subscriber("x", name="b") as b,
    ):
        pub.send_many([b"0", b"1", b"2"])
        assert a.recv() == b"0"
        assert world.lap("x", "a") == 2
        pub.send(b"3")
        assert (a.recv_many(10), a.lost) == ([b"3"], 2)
        assert (b.recv_many(10), b.lost) == ([b"0", b"1", b"2", b"3"], 0)
    with fake() as world, rm.Publisher("x", contract="pipe"), rm.Subscriber("x"):
        with pytest.raises(ValueError, match="cannot be lapped"):
            world.lap("x")
        with pytest.raises(rm.TopicNotFound):
            world.lap("nowhere")


def test_a_writer_can_be_killed_and_leaves_nothing_half_done() -> None:
    with fake() as world, rm.Subscriber("x") as sub:
        pub = rm.Publisher("x", contract="reliable", name="victim")
        other = rm.Publisher("x")
        world.kill("x", "victim", before=2)
        assert [pub.send(b"0"), pub.send(b"1")] == [0, 1]
        with pytest.raises(Killed, match="'victim'"):
            pub.send(b"never")
        with pytest.raises(Killed):
            pub.send(b"never")
        assert other.send(b"2") == 2
        assert sub.recv_many(10) == [b"0", b"1", b"2"]
        assert [writer.name for writer in rm.info("x").writers] == [other.name]
        other.close()


def test_killing_the_reader_that_blocks_lets_the_writer_continue() -> None:
    with fake() as world, rm.Publisher("x", contract="reliable", capacity=4096) as pub:
        rm.Subscriber("x", name="asleep")
        world.after(5, lambda: world.kill("x", "asleep"))
        for _ in range(100):
            pub.send(b"x" * 100, timeout=60)
        assert world.time_ns() == 1_700_000_005 * 10**9
        with pytest.raises(rm.TopicNotFound, match="no participant 'asleep'"):
            world.kill("x", "asleep")


def test_all_that_was_sent_can_be_looked_at() -> None:
    with fake() as world, rm.Publisher("x", sender="me") as pub:
        pub.send(b"1", kind="k")
        (message,) = world.sent("x")
        assert (message.data, message.sender, message.kind, message.topic) == (b"1", "me", "k", "x")
        assert world.sent("y") == []


# --------------------------------------------------------------------------------------- instead of hanging


def test_a_wait_that_nothing_can_end_is_an_error() -> None:
    with fake(seed=5), rm.Publisher("x") as pub, rm.Subscriber("x") as sub:
        with pytest.raises(Deadlock, match=r"seed 5.*\n.*waits for a message on topic 'x'"):
            sub.recv()
        pub.send(b"1")
        assert sub.recv() == b"1"  # and life goes on


def test_a_thread_that_waits_for_something_else_is_named() -> None:
    release = threading.Event()
    with fake(patience_s=0.2), rm.Subscriber("x") as sub:
        outside = threading.Thread(target=release.wait, name="outside")
        outside.start()
        with pytest.raises(Stuck, match="'outside'"):
            sub.recv(timeout=1)
        release.set()


def test_threads_that_outlive_their_world_are_told() -> None:
    errors: list[BaseException] = []

    def read() -> None:
        try:
            with rm.Subscriber("x") as sub:
                sub.recv()
        except rm.RingmainError as error:
            errors.append(error)

    with fake() as world:
        threading.Thread(target=read).start()
        world.sleep(1)
    assert "has ended" in str(errors[0])


def test_an_event_loop_of_the_real_clock_is_refused() -> None:
    loop = asyncio.new_event_loop()
    try:
        with fake(), rm.Subscriber("x") as sub, pytest.raises(RuntimeError, match="real clock"):
            loop.run_until_complete(sub.arecv())
    finally:
        loop.close()


def test_nothing_stays_replaced() -> None:
    before = threading.Thread.start, threading.Thread.join, time.sleep, time.time, asyncio.new_event_loop
    with pytest.raises(KeyError), fake():
        raise KeyError
    assert before == (threading.Thread.start, threading.Thread.join, time.sleep, time.time, asyncio.new_event_loop)


def test_worlds_are_apart_and_stay_in_their_process() -> None:
    with fake(), rm.Publisher("x") as pub:
        with pytest.raises(TypeError, match="one process alone"):
            pickle.dumps(pub)
        with fake():
            assert rm.topics() == []
        assert [topic.name for topic in rm.topics()] == ["x"]


def test_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["ringmain.testing.plugin"]')
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent("""
        import ringmain as rm

        def test_a_program(ringmain_world):
            with rm.Publisher("x") as pub:
                assert type(pub).__name__ == "FakePublisher"
            assert ringmain_world.seed == 7
        """)
    )
    command = [sys.executable, "-m", "pytest", "-q", "--ringmain-seed=7", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_no_shared_memory_is_touched(runtime_dir: Path) -> None:
    with fake(), rm.Publisher("x") as pub, rm.Subscriber("x") as sub:
        pub.send(b"1")
        assert sub.recv() == b"1"
        rm.topics()
    assert list(runtime_dir.iterdir()) == []
