"""`work`: each message goes to one worker, which holds it until it is done.

How: the small promises by calls in one process, on shared memory and in a fake world; those about death by processes
that are killed.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

import ringmain as rm
from ringmain.testing import fake


@pytest.fixture(params=["shm", "fake"])
def backend(request: pytest.FixtureRequest) -> Iterator[Any]:
    with fake() if request.param == "fake" else nullcontext():
        yield request.param
        if "jobs" in [topic.name for topic in rm.topics()]:  # a test may leave messages that no worker took
            rm.unlink("jobs")


def jobs(backend: Any, *payloads: bytes, **options: Any) -> rm.Publisher:
    publisher = rm.Publisher("jobs", contract="work", backend=backend, **options)
    for payload in payloads:
        publisher.send(payload)
    return publisher


def worker(backend: Any, **options: Any) -> rm.Subscriber:
    return rm.Subscriber("jobs", backend=backend, **options)


def test_each_message_goes_to_one_worker(backend: Any) -> None:
    with jobs(backend, b"0", b"1", b"2", b"3"), worker(backend) as a, worker(backend) as b:
        assert [a.recv(1), b.recv(1), b.recv(1), a.recv(1)] == [b"0", b"1", b"2", b"3"]
        assert a.try_recv() is None
        assert a.lost == b.lost == 0


def test_unread_messages_wait_for_a_worker_also_when_all_have_left(backend: Any) -> None:
    jobs(backend, b"0", b"1").close()
    with worker(backend) as a:
        assert a.recv(1) == b"0"
    with worker(backend) as a:
        assert a.recv(1) == b"1"
    assert "jobs" not in [topic.name for topic in rm.topics()]


def test_what_is_received_is_done_at_the_next_call_or_at_close(backend: Any) -> None:
    with jobs(backend, b"0", b"1", b"2") as pub, worker(backend, name="a") as a:
        a.recv(1)
        assert [reader.taken for reader in rm.info("jobs").readers] == [1]
        assert rm.info("jobs").waiting == 2
        assert a.recv_many(2) == [b"1", b"2"]
        assert [reader.taken for reader in rm.info("jobs").readers] == [2]
        assert not pub.all_read
        a.close()
        assert pub.all_read


def test_a_rejected_message_goes_to_the_next_worker(backend: Any) -> None:
    with jobs(backend, b"first", b"second"), worker(backend) as a, worker(backend) as b:
        task = a.recv(1)
        a.reject(task)
        again = b.recv_message(1)
        assert (again.data, again.redelivered) == (b"first", 1)
        assert b.recv_message(1).redelivered == 0
        with pytest.raises(ValueError, match="has received and not finished"):
            a.reject(task)


def test_one_of_several_can_be_rejected_as_message_or_data(backend: Any) -> None:
    with jobs(backend, b"0", b"1", b"2"), worker(backend) as a:
        zero, one, two = a.recv_many(3)
        a.reject(one)
        message = a.recv_message(1)
        assert message.data == one
        a.reject(message)
        assert a.recv_message(1).redelivered == 2
        assert (zero, two) == (b"0", b"2")


def test_a_block_that_raises_gives_its_message_back(backend: Any) -> None:
    with jobs(backend, b"0"), worker(backend) as a:
        with pytest.raises(KeyError), a.borrow(1) as task:
            raise KeyError
        with a.borrow(1) as task:
            assert (bytes(task.data), task.redelivered) == (b"0", 1)
        assert a.try_recv() is None


def test_a_borrowed_message_can_be_rejected(backend: Any) -> None:
    with jobs(backend, b"0"), worker(backend) as a, worker(backend) as b:
        with a.borrow(1) as task:
            a.reject(task)
            assert b.recv_message(1).redelivered == 1
        assert a.try_recv() is None


def test_a_worker_whose_block_raises_gives_all_back(backend: Any) -> None:
    with jobs(backend, b"0", b"1"):
        with pytest.raises(KeyError), worker(backend) as a:
            a.recv_many(2)
            raise KeyError
        with worker(backend) as b:
            assert [b.recv_message(1).redelivered for _ in range(2)] == [1, 1]


def test_a_message_that_is_given_back_too_often_goes_to_the_dead_letters(backend: Any) -> None:
    with jobs(backend, b"bad", b"good", sender="s") as pub, worker(backend, max_deliveries=2) as a:
        for _ in range(2):
            a.reject(a.recv(1))
        assert a.recv(1) == b"good"
        pub.send(b"kinded", kind="k")
        for _ in range(2):
            a.reject(a.recv(1))
        assert a.try_recv() is None
        with rm.Subscriber("jobs.dead", backend=backend) as dead:
            assert [dead.recv(1), dead.recv_message(1).kind] == [b"bad", "k"]
    with rm.Publisher("jobs.dead", backend=backend):  # it stays, whoever leaves
        assert rm.info("jobs.dead").persist
    rm.unlink("jobs.dead")


def reject_all_but(a: Any, good: list[bytes]) -> list[bytes]:
    done = []
    while len(done) < len(good):
        task = a.recv(1)
        if task in good:
            done.append(task)
        else:
            a.reject(task)
    return done


def test_a_dead_letter_is_as_large_as_any_message(backend: Any) -> None:
    large = bytes(1 << 20)
    with jobs(backend, large, b"a", b"b", capacity="8MiB"), worker(backend, max_deliveries=2) as a:
        assert reject_all_but(a, [b"a", b"b"]) == [b"a", b"b"]
        with rm.Subscriber("jobs.dead", backend=backend) as dead:
            assert dead.recv(1) == large
    rm.unlink("jobs.dead")


def test_dead_letters_that_do_not_fit_hold_up_no_message(backend: Any) -> None:
    with rm.Publisher("jobs.dead", contract="work", capacity=4096, persist=True, backend=backend) as small:
        small.send(b"it is there already")
        with jobs(backend, *(bytes([i]) * 3000 for i in range(5)), b"a", b"b") as pub:
            with worker(backend, max_deliveries=2) as a:
                with pytest.warns(RuntimeWarning, match=r"failed 2 times and is dropped"):
                    assert reject_all_but(a, [b"a", b"b"]) == [b"a", b"b"]
                assert a.dead_letters_lost > 0
                a.try_recv()
                assert pub.all_read
    rm.unlink("jobs.dead")


def test_a_worker_that_takes_only_some_kinds_leaves_the_others(backend: Any) -> None:
    with jobs(backend) as pub, worker(backend, ignore_kinds={"big"}) as a, worker(backend) as b:
        pub.send(b"0", kind="big")
        pub.send(b"1", kind="small")
        assert a.recv(1) == b"1"
        assert a.try_recv() is None
        assert b.recv(1) == b"0"
        pub.send(b"2", kind="big")
        assert a.try_recv() is None
        a.ignore_kinds = set()
        assert a.recv(1) == b"2"


def test_the_writer_waits_for_a_slow_worker_and_names_it(backend: Any) -> None:
    with jobs(backend, b"0", capacity=4096) as pub, worker(backend, name="slow") as slow, worker(backend) as fast:
        slow.recv(1)
        with pytest.raises(rm.Full, match="slow") as full:
            for _ in range(100):
                pub.send(bytes(100), timeout=0)
                fast.recv(1)
        assert "slow" in str(full.value)
        if backend == "shm":
            assert "which has had a message for" in str(full.value)
        slow.try_recv()
        pub.send(bytes(100), timeout=1)


def test_the_writer_waits_while_no_worker_takes(backend: Any) -> None:
    with jobs(backend, capacity=4096) as pub:
        with pytest.raises(rm.Full):
            for _ in range(100):
                pub.send(bytes(100), timeout=0)
        waiting = rm.info("jobs").waiting
        assert waiting is not None
        assert waiting > 20
        with worker(backend) as a:
            assert len(a.recv_many(1000)) == waiting


def test_observers_see_all_and_take_nothing(backend: Any) -> None:
    with jobs(backend) as pub, worker(backend, observe="always") as seen, worker(backend) as a:
        pub.send(b"0")
        assert (seen.recv(1), a.recv(1)) == (b"0", b"0")


def test_a_work_topic_cannot_be_conflated(backend: Any) -> None:
    with jobs(backend), pytest.raises(rm.TopicMismatch, match="conflate"):
        worker(backend, conflate=True)


@pytest.mark.parametrize("wrong", [0, 16, -1])
def test_max_deliveries_has_limits(wrong: int) -> None:
    with pytest.raises(ValueError, match="from 1 to 15"):
        rm.Subscriber("jobs", max_deliveries=wrong)


class Task(msgspec.Struct):
    number: int


def test_typed_tasks_and_one_that_does_not_decode(backend: Any) -> None:
    with rm.Publisher("jobs", contract="work", type=Task, backend=backend) as pub:
        pub.send(Task(7))
        with worker(backend, type=Task) as a, worker(backend, max_deliveries=1) as raw:
            task = a.recv(1)
            assert task == Task(7)
            a.reject(task)
            assert raw.try_recv() is None  # it went to the dead letters, with its type
            with rm.Subscriber("jobs.dead", type=Task, backend=backend) as dead:
                assert dead.recv(1) == Task(7)
    rm.unlink("jobs.dead")


def test_a_message_that_does_not_decode_is_given_back() -> None:
    with jobs("shm", b"\xff"), worker("shm", type=Task) as a, worker("shm") as raw:
        with pytest.raises(rm.DecodeError):
            a.recv(1)
        message = raw.recv_message(1)
        assert (message.data, message.redelivered) == (b"\xff", 1)


def test_a_buffer_that_is_too_small_takes_nothing() -> None:
    with jobs("shm", b"12345"), worker("shm") as a:
        with pytest.raises(ValueError, match="not taken"):
            a.recv_into(bytearray(2))
        assert a.recv_message(1).redelivered == 0


def test_asyncio() -> None:
    async def main() -> list[bytes]:
        with jobs("shm") as pub, worker("shm") as a:
            waiting = asyncio.create_task(a.arecv(5))
            await asyncio.sleep(0)
            pub.send_many([b"0", b"1"])
            return [await waiting, await a.arecv(5)]

    assert asyncio.run(main()) == [b"0", b"1"]


WORKER = """
import sys, time, ringmain as rm
with rm.Subscriber("jobs", name=sys.argv[1]) as sub:
    for task in sub:
        print(task.decode(), flush=True)
        if sys.argv[2] == "stay": time.sleep(3600)
"""


def start(name: str, how: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WORKER, name, how], stdout=subprocess.PIPE, text=True)


def read_lines(crew: list[subprocess.Popen[str]], count: int) -> list[str]:
    texts = dict.fromkeys(crew, "")
    with selectors.DefaultSelector() as selector:
        for process in crew:
            assert process.stdout is not None
            selector.register(process.stdout, selectors.EVENT_READ, process)
        while sum(text.count("\n") for text in texts.values()) < count:
            ready = selector.select(30)
            assert ready, f"only {list(texts.values())} came"
            for key, _ in ready:
                texts[key.data] += os.read(key.fd, 1).decode()
    return [line for text in texts.values() for line in text.split()]


def test_the_message_of_a_killed_worker_goes_to_one_that_waits() -> None:
    with jobs("shm", b"0") as pub, start("victim", "stay") as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "0\n"
        with worker("shm") as a:
            assert a.try_recv() is None
            victim.kill()
            message = a.recv_message(10)
            assert (message.data, message.redelivered) == (b"0", 1)
            assert sum(reader.redelivered for reader in rm.info("jobs").readers) == 1
        pub.send(b"1")
        with worker("shm") as a:
            assert a.recv_message(1).redelivered == 0


def test_the_message_of_the_last_worker_stays_when_it_is_killed() -> None:
    with start("victim", "stay") as victim:
        with jobs("shm", b"0"):
            assert victim.stdout is not None
            victim.stdout.readline()
        victim.kill()
    rm.clean()
    with worker("shm") as a:
        assert a.recv_message(1).redelivered == 1


def test_a_program_that_ends_with_an_error_gives_its_message_back() -> None:
    program = "import ringmain as rm\nsub = rm.Subscriber('jobs')\nsub.recv(5)\nraise SystemExit(3)"
    with jobs("shm", b"0"):
        assert subprocess.run([sys.executable, "-W", "ignore", "-c", program]).returncode == 3
        with worker("shm") as a:
            assert a.recv_message(1).redelivered == 1


def test_workers_that_sleep_share_the_work(until) -> None:
    with jobs("shm") as pub:
        crew = [start(f"w{i}", "go") for i in range(3)]
        try:
            pub.wait_for_readers(3, timeout=30)
            for i in range(6):
                pub.send(b"%d" % i)
            lines = sorted(read_lines(crew, 6))
            assert lines == [str(i) for i in range(6)]
            until(lambda: pub.all_read)  # what a killed worker has not finished stays, and the topic with it
        finally:
            for process in crew:
                process.send_signal(signal.SIGKILL)
                process.communicate()
