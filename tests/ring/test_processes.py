"""Endpoints go to other processes: passed under fork, spawn and forkserver, or inherited through fork. And what else a
process may do to itself: fork while its threads open topics, close all descriptors, start another interpreter.

How: real children, which send back what they saw over the ring itself or exit with it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import re
import threading
from pathlib import Path

import pytest

import ringmain as rm
from tests import contracts

METHODS = ["fork", "spawn", "forkserver"]
CONTRACTS = contracts.UNSHARED


def send_some(pub, count):
    for i in range(count):
        pub.send(b"%d from the child" % i, timeout=20)
    pub.close()


def echo(sub, pub):
    for _ in range(3):
        pub.send(sub.recv(timeout=20)[::-1], timeout=20)
    sub.close()
    pub.close()


def run(method, function, *args):
    process = multiprocessing.get_context(method).Process(target=function, args=args)
    process.start()
    return process


def end(process):
    process.join(30)
    assert process.exitcode == 0
    process.close()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_publisher_passed_to_a_child_works_there(method, contract):
    with rm.Publisher("x", contract=contract, sender="s") as pub, rm.Subscriber("x") as sub:
        pub.send(b"from the parent")
        child = run(method, send_some, pub, 3)
        got = [sub.recv_message(timeout=20) for _ in range(4)]
        end(child)
        assert [m.data for m in got] == [b"from the parent", *(b"%d from the child" % i for i in range(3))]
        assert [m.seq for m in got] == [0, 1, 2, 3]
        assert {m.sender for m in got} == {"s"}
        if contract in contracts.MANY_WRITERS:
            pub.send(b"both may write")
        else:
            with pytest.raises(rm.TakenOver):
                pub.send(b"given away")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("contract", CONTRACTS)
def test_both_ends_passed_to_a_child(method, contract):
    if (method, contract) == ("fork", "pipe"):
        pytest.skip("the parent stays the one reader: see the test of what is inherited through fork")
    with rm.Publisher("there", contract=contract) as there, rm.Subscriber("back") as back:
        sub, pub = rm.Subscriber("there", start="oldest"), rm.Publisher("back")
        for i in range(3):
            there.send(b"%d!" % i)
        child = run(method, echo, sub, pub)
        if method != "fork":
            sub.close()
        assert [back.recv(timeout=20) for _ in range(3)] == [b"!0", b"!1", b"!2"]
        end(child)
        sub.close()
        pub.close()


def start_fork(function):
    """Runs a function in a forked child; returns what waits for its end, which must be good."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        finally:
            os._exit(status)

    def wait():
        assert os.waitpid(pid, 0)[1] == 0

    return wait


def in_fork(function):
    start_fork(function)()


def in_threads(count, function):
    """Runs a function in so many threads at the same moment; returns what they raised."""
    raised, together = [], threading.Barrier(count)

    def run():
        together.wait(20)
        try:
            function()
        except rm.RingmainError as error:
            raised.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return raised


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_publisher_inherited_through_fork_takes_a_slot_of_its_own(contract):
    with rm.Publisher("x", contract=contract) as pub, rm.Subscriber("x") as sub:
        pub.send(b"parent")

        def child():
            pub.send(b"child", timeout=20)
            writers = {w.pid for w in rm.info("x").writers}
            assert os.getpid() in writers
            assert os.getppid() in writers

        in_fork(child)
        assert sub.recv_many(9) == [b"parent", b"child"]
        if contract in contracts.MANY_WRITERS:
            assert pub.send(b"parent again") == 2


@pytest.mark.parametrize("contract", contracts.TO_ALL)
def test_a_subscriber_inherited_through_fork_takes_a_slot_of_its_own(contract):
    with rm.Publisher("x", contract=contract) as pub, rm.Subscriber("x", start="oldest") as sub:
        pub.send_many([b"a", b"b"])

        def child():
            assert sub.recv_many(9) == [b"a", b"b"]
            assert {r.pid for r in rm.info("x").readers} == {os.getpid(), os.getppid()}

        in_fork(child)
        assert sub.recv_many(9) == [b"a", b"b"], "the child has read for itself"


def test_a_pipe_reader_inherited_through_fork_says_who_has_the_slot():
    with rm.Publisher("x", contract="pipe") as pub, rm.Subscriber("x", name="parent") as sub:
        pub.send(b"a")

        def child():
            with pytest.raises(rm.TopicBusy, match=rf"'parent' \(pid {os.getppid()}\); close that one first"):
                sub.recv(timeout=0)

        in_fork(child)
        assert sub.recv(timeout=0) == b"a"


@pytest.mark.parametrize("contract", contracts.ONE_WRITER)
def test_a_second_child_does_not_take_over_from_its_sibling(contract):
    with rm.Publisher("x", contract=contract) as pub, rm.Subscriber("x") as sub:
        done, go = os.pipe()

        def first():
            pub.send(b"first", timeout=20)
            os.write(go, b"!")
            os.read(ended, 1)
            pub.send(b"first again", timeout=20)

        def second():
            with pytest.raises(rm.TopicBusy, match="the publisher replaces no other"):
                pub.send(b"second", timeout=20)

        ended, end_first = os.pipe()
        wait = start_fork(first)
        os.read(done, 1)
        in_fork(second)
        os.write(end_first, b"!")
        wait()
        assert sub.recv_many(9) == [b"first", b"first again"]
        for end in (done, go, ended, end_first):
            os.close(end)


def test_a_passed_publisher_replaces_only_the_writer_it_came_from():
    """The process is the same and so is its pid, but the writer is another one."""
    with rm.Publisher("x") as pub:
        passed = pickle.dumps(pub)
    with rm.Publisher("x"), pytest.raises(rm.TopicBusy, match="the publisher replaces no other"):
        pickle.loads(passed)
    with pickle.loads(passed) as again:
        assert again.send(b"there is no other writer") == 0


@pytest.mark.parametrize("use", [
    lambda pub: pub.send(b"x", timeout=20),
    lambda pub: pub.max_message_bytes,
    lambda pub: pub.wait_for_readers(0, timeout=20),
    lambda pub: (pub.next_sequence, pub.contract, pub.schema),
])  # fmt: skip
def test_threads_of_a_child_share_the_publisher_that_it_inherited(use):
    with rm.Publisher("x", contract="bus") as pub:

        def child():
            assert in_threads(8, lambda: use(pub)) == []
            pub.send(b"one more", timeout=20)
            assert sorted(w.pid for w in rm.info("x").writers) == sorted([os.getppid(), os.getpid()])

        for _ in range(5):
            in_fork(child)


def test_a_revived_publisher_whose_schema_no_longer_fits_is_closed():
    with rm.Publisher("x", contract="bus", type=dict) as pub:
        other = rm.typed.codec_for(str).schema.to_bytes()

        def child():
            with rm.Publisher("x", contract="bus") as bare:
                bare._set_schema(other)
            with pytest.raises(rm.SchemaMismatch):
                pub.send({})
            assert pub.closed
            with pytest.raises(rm.Closed):
                pub.send({})

        in_fork(child)


def test_a_subscriber_that_came_before_its_topic_begins_at_the_latest_message_in_a_child():
    """It begins with the oldest in the process that was there before the topic, and in no other."""
    with rm.Subscriber("x") as sub, rm.Publisher("x", capacity=4096) as pub:
        for i in range(1000):
            pub.send(b"%d" % i)
            assert sub.recv(timeout=20) == b"%d" % i

        def child():
            assert sub.try_recv() is None
            assert sub.lost == 0
            os.write(joined, b"!")
            assert sub.recv_message(timeout=20).data == b"new"
            assert sub.lost == 0

        waiting, joined = os.pipe()
        wait = start_fork(child)
        os.read(waiting, 1)
        pub.send(b"new")
        wait()
        os.close(waiting)
        os.close(joined)


def test_a_child_that_only_inherits_and_ends_affects_no_other():
    with rm.Publisher("x", contract="reliable") as pub, rm.Subscriber("x") as sub:

        def child():
            pub.close()
            sub.close()

        in_fork(child)
        pub.send(b"a")
        assert sub.recv(timeout=0) == b"a"
        info = rm.info("x")
        assert [p.alive for p in (*info.writers, *info.readers)] == [True, True]


def test_a_parent_that_dies_is_dead_though_its_child_lives(child, until):
    """The child shares the parent's open files: its lock must not speak for the parent."""
    parent = child("""
        import signal
        pub = rm.Publisher("x")
        if os.fork() == 0:
            say("child", os.getpid()); hear(); os._exit(0)
        say("parent"); signal.pause()
    """)
    lines = [parent.line(), parent.line()]
    grandchild = next(int(line.split()[1]) for line in lines if line.startswith("child"))
    parent.process.kill()
    parent.process.wait(20)
    os.kill(grandchild, 0)  # lives
    try:
        with rm.Publisher("x") as pub:  # not TopicBusy
            pub.send(b"a")
    finally:
        os.kill(grandchild, 9)


def test_fork_while_another_thread_is_inside():
    """The thread is not in the child, so whatever it had entered must be free there."""
    with rm.Publisher("x", contract="bus") as pub, rm.Subscriber("x", start="oldest") as sub:
        waiting = threading.Thread(target=lambda: sub.recv(timeout=20))
        waiting.start()
        while not rm.info("x").readers:
            pass

        def child():
            pub.send(b"a")
            assert sub.recv(timeout=20) == b"a"

        in_fork(child)
        waiting.join(20)
        assert not waiting.is_alive()


def topic_descriptors(directory):
    """The descriptors of this process that are topic files, named or not."""
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = os.readlink(fd)
            if target.startswith(f"{directory}/") and (".ring" in target or "/#" in target):
                yield target


def test_no_fork_comes_between_opening_a_topic_and_knowing_its_descriptor(runtime_dir):
    """Otherwise the child keeps the descriptor, and with it the lock: its parent would look alive when it is dead."""
    over = threading.Event()

    def open_and_close(name):
        while not over.is_set():
            with rm.Publisher(name, contract="bus", capacity=4096), rm.Subscriber(name):
                pass

    def child():
        assert list(topic_descriptors(runtime_dir)) == []

    threads = [threading.Thread(target=open_and_close, args=(f"x{i}",)) for i in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            in_fork(child)
    finally:
        over.set()
        for thread in threads:
            thread.join(20)


def test_a_daemon_that_closed_all_descriptors_goes_on_with_what_it_inherited():
    with rm.Publisher("x", contract="bus") as pub, rm.Subscriber("x") as sub:

        def daemon():
            os.closerange(3, 1024)
            strangers = [os.open("/dev/null", os.O_RDWR) for _ in range(40)]
            with rm.Subscriber("x") as new:
                pub.send(b"from the daemon", timeout=20)
                assert new.recv(timeout=20) == b"from the daemon"
                pub.send(b"again", timeout=20)
                assert sub.try_recv() is None  # joins, at the next message
            pub.close()
            sub.close()
            for stranger in strangers:
                os.fstat(stranger)

        in_fork(daemon)
        assert sub.recv_many(9) == [b"from the daemon", b"again"]


def test_a_process_that_closes_all_descriptors_goes_on(child):
    """Its slots stay its own, and it neither locks nor closes the files that have the numbers now."""
    there = child("""
        pub = rm.Publisher("x", contract="reliable", capacity=4096); sub = rm.Subscriber("x")
        os.closerange(3, 1024)
        files = [os.open(f"{os.environ['RINGMAIN_DIR']}/file{i}", os.O_RDWR | os.O_CREAT) for i in range(40)]
        say("closed"); hear()
        try:
            while True: pub.send(bytes(1000), timeout=0.1)
        except rm.Full: say("full")
        pub._set_schema(b"x")
        while sub.try_recv(): pass
        pub.send(b"more"); say(sub.recv())
        pub.close(); sub.close()
        say(rm.topics())
        say([os.fstat(file).st_size for file in files if "lock:" in open(f"/proc/self/fdinfo/{file}").read()])
    """)
    assert there.line() == "closed"
    info = rm.info("x")
    assert [each.alive for each in (*info.writers, *info.readers)] == [True, True]
    assert rm.clean() == []
    there.tell("go on")
    assert [there.line() for _ in range(4)] == ["full", "b'more'", "[]", "[]"]
    there.finish()


def test_a_process_that_closes_all_descriptors_of_a_topic_that_is_gone(child):
    there = child("""
        pub = rm.Publisher("x", contract="reliable", capacity=4096)
        os.rename(f"{os.environ['RINGMAIN_DIR']}/x.ring", f"{os.environ['RINGMAIN_DIR']}/gone")
        os.closerange(3, 1024)
        try: pub._set_schema(b"x")
        except rm.RingmainError as error: say(type(error).__name__, error)
        os._exit(0)
    """)
    assert there.line().startswith("SystemFailure the descriptor of topic 'x' was closed by other code of this process")
    there.finish()


def test_a_subinterpreter_is_refused_and_the_main_interpreter_goes_on(child):
    there = child("""
        try: import _xxsubinterpreters as interpreters
        except ImportError: import _interpreters as interpreters
        pub = rm.Publisher("x", contract="bus"); sub = rm.Subscriber("x")
        another = interpreters.create()
        script = "try: import ringmain\\nexcept ImportError as error: import os; os.write(1, f'{error}\\\\n'.encode())"
        interpreters.run_string(another, script)
        interpreters.destroy(another)
        with pub.reserve(1) as buf: buf[:] = b"a"
        with sub.borrow(timeout=0) as message: say(bytes(message.data))
        pub.close(); sub.close()
    """)
    # Python 3.12 and newer refuse by themselves, before the module can say it.
    assert re.match("ringmain cannot be imported in a subinterpreter|.* does not support loading in", there.line())
    assert there.line() == "b'a'"
    there.finish()


def test_importing_the_native_module_again_gives_the_same_one(child):
    there = child("""
        import importlib, ringmain._ring as first
        pub = rm.Publisher("x", contract="bus"); sub = rm.Subscriber("x")
        del sys.modules["ringmain._ring"]
        again = importlib.import_module("ringmain._ring")
        say(again is first, importlib.reload(again) is first)
        pub.send(b"a")
        with sub.borrow(timeout=0) as message: say(bytes(message.data))
        pub.close(); sub.close()
    """)
    assert there.line() == "True True"
    assert there.line() == "b'a'"
    there.finish()


def open_named(topic, passed):
    with rm.Publisher(topic, contract="bus"), rm.Subscriber(topic), rm.Publisher(topic, contract="bus", name="given"):
        passed.send(b"x", timeout=20)
        names = [each.name for each in (*rm.info(topic).writers, *rm.info(topic).readers)]
        passed.send("\n".join(names).encode(), timeout=20)


@pytest.mark.parametrize("method", METHODS)
def test_participants_are_called_after_the_process_that_they_are_in(method):
    with rm.Publisher("x", contract="bus") as pub, rm.Subscriber("x") as sub:
        child = multiprocessing.get_context(method).Process(target=open_named, args=("x", pub), name="camera-7")
        child.start()
        assert sub.recv(timeout=20) == b"x"
        names = sub.recv(timeout=20).decode().split("\n")
        end(child)
    assert names.count("camera-7") == 3
    assert names.count("given") == 1
    assert len(names) == 6


def test_a_reservation_does_not_outlive_a_fork():
    with rm.Publisher("x", contract="bus") as pub, rm.Subscriber("x") as sub:
        with pub.reserve(3) as buf:
            buf[:] = b"abc"

            def child():
                for use in (lambda: memoryview(buf), buf.commit):
                    with pytest.raises(rm.Closed, match="parent"):
                        use()
                with pytest.raises(rm.Full, match="turn"):
                    pub.send(b"child", timeout=0)
                with pytest.raises(rm.Closed, match="parent"):
                    buf.commit()

            in_fork(child)
        assert sub.recv_many(9) == [b"abc"]


def test_closed_endpoints_do_not_come_back_by_copying():
    with rm.Publisher("x") as pub:
        sub = rm.Subscriber("x", ignore_senders={"me"}, ignore_kinds={"k"}, conflate=True)
        again = pickle.loads(pickle.dumps(sub))
        assert set(again.ignore_senders) == {"me"}
        assert set(again.ignore_kinds) == {"k"}
        pub.send_many([b"a", b"b"])
        assert again.recv(timeout=0) == sub.recv(timeout=0) == b"b"
        again.close()
        sub.close()
    for endpoint in (pub, sub):
        with pytest.raises(rm.Closed):
            pickle.dumps(endpoint)
