"""Endpoints go to other processes: passed under fork, spawn and forkserver, or inherited through fork.

How: real children, which send back what they saw over the ring itself or exit with it.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading

import pytest

import ringmain as rm

METHODS = ["fork", "spawn", "forkserver"]
CONTRACTS = ["broadcast", "pipe", "bus", "reliable"]


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
        if contract in ("bus", "reliable"):
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


def in_fork(function):
    """Runs a function in a forked child; its exit status must be 0."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


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
        if contract in ("bus", "reliable"):
            assert pub.send(b"parent again") == 2


@pytest.mark.parametrize("contract", ["broadcast", "bus", "reliable"])
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


def test_a_child_that_only_inherits_and_ends_disturbs_no_other():
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
