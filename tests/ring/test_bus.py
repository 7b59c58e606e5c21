"""`bus`: as `broadcast`, for many writers; what is borrowed is safe, and a writer it stops waits for it.

The borrowing itself is in test_borrow.py; here are several writers, and the borrower that dies.
"""

from __future__ import annotations

import pytest

import ringmain as rm


def test_many_writers_lap_a_slow_reader_and_the_count_is_exact():
    writers = [rm.Publisher("x", contract="bus", capacity=4096, sender=str(i)) for i in range(5)]
    with rm.Subscriber("x", on_lap="oldest") as sub:
        for i in range(2000):
            writers[i % 5].send(b"%d" % i)
        messages = list(iter(sub.try_recv_message, None))
        assert [int(m.data) for m in messages] == [m.seq for m in messages] == list(range(sub.lost, 2000))
        assert all(m.sender == str(m.seq % 5) for m in messages)
        for writer in writers:
            writer.close()


def test_a_writer_stopped_by_a_borrower_says_so_at_its_timeout():
    with rm.Publisher("x", contract="bus", capacity=4096) as pub, rm.Subscriber("x", name="Bea") as sub:
        pub.send(b"kept")
        with sub.borrow(timeout=0) as message:
            for timeout in (0, 0.01, 0.1):
                with pytest.raises(rm.Full, match="'Bea'"):
                    for _ in range(100):
                        pub.send(b"x" * 100, timeout=timeout)
            assert message.data == b"kept"


def test_a_borrower_that_dies_is_not_waited_for(child):
    with rm.Publisher("x", contract="bus", capacity=4096) as pub:
        borrower = child('sub = rm.Subscriber("x"); say("in"); lease = sub.borrow(); say("has it"); hear()')
        borrower.line()
        pub.send(b"kept")
        borrower.line()
        with pytest.raises(rm.Full, match=str(borrower.pid)):
            for _ in range(100):
                pub.send(b"x" * 100, timeout=0)
        borrower.kill()
        for _ in range(100):
            pub.send(b"x" * 100, timeout=0)


def test_a_writer_that_dies_while_writing_leaves_nothing_and_blocks_no_other(child):
    """It dies while it has the turn: the next writer finds that its process is dead, and takes the turn."""
    with rm.Publisher("x", contract="bus", capacity=4096) as pub, rm.Subscriber("x") as sub:
        writer = child("""
            pub = rm.Publisher("x")
            buf = pub.reserve(1000)
            buf[:1000] = b"half a message  " * 62 + b"........"
            say("writing"); hear()
        """)
        writer.line()
        with pytest.raises(rm.Full, match=rf"pid {writer.pid}\), whose turn it is"):
            pub.send(b"wait", timeout=0.01)
        writer.kill()
        assert pub.send(b"next", timeout=0) == 0
        assert sub.recv_many(9) == [b"next"]
