"""`pipe`: one writer, one reader, nothing lost, although readers come, leave and die."""

from __future__ import annotations

import pytest

import ringmain as rm


def test_messages_wait_for_the_reader_before_it_came():
    with rm.Publisher("x", contract="pipe", capacity=4096) as pub:
        sent = 0
        with pytest.raises(rm.Full, match="reader, who has not come yet"):
            while True:
                pub.send(b"%d" % sent, timeout=0)
                sent += 1
        assert not pub.all_read
        with rm.Subscriber("x") as sub:
            assert sub.recv_many(1000) == [b"%d" % i for i in range(sent)]
            assert pub.all_read


def test_the_next_reader_goes_on_where_the_last_one_stopped():
    with rm.Publisher("x", contract="pipe") as pub:
        pub.send_many([b"%d" % i for i in range(10)])
        with rm.Subscriber("x") as first:
            assert first.recv_many(3) == [b"0", b"1", b"2"]
        with rm.Subscriber("x", start="next") as second:
            message = second.recv_message(timeout=0)
            assert (message.data, message.seq, message.lost) == (b"3", 3, 0)
        with rm.Subscriber("x", start="oldest") as third:
            assert third.recv_many(100) == [b"%d" % i for i in range(4, 10)]
            assert third.lost == 0


def test_a_reader_that_dies_leaves_what_it_had_not_fully_read(child):
    with rm.Publisher("x", contract="pipe") as pub:
        pub.send_many([b"%d" % i for i in range(10)])
        reader = child("""
            sub = rm.Subscriber("x")
            sub.recv(), sub.recv()
            lease = sub.borrow()
            sub.recv()
            say(bytes(lease.data)); hear()
        """)
        assert reader.line() == "b'2'"
        reader.kill()
        with rm.Subscriber("x") as sub:
            assert sub.recv_many(100) == [b"%d" % i for i in range(2, 10)]


def test_a_second_living_reader_is_refused(child):
    with rm.Publisher("x", contract="pipe"):
        reader = child('sub = rm.Subscriber("x", name="Ann"); say("in"); hear(); sub.close()')
        reader.line()
        with pytest.raises(rm.TopicBusy, match=rf"one reader: reader 'Ann' \(pid {reader.pid}\)") as caught:
            rm.Subscriber("x")
        assert isinstance(caught.value, OSError)
        reader.tell()
        reader.finish()
        rm.Subscriber("x").close()


def test_a_dead_reader_makes_way_at_once(child):
    with rm.Publisher("x", contract="pipe"):
        reader = child('sub = rm.Subscriber("x"); say("in"); hear()')
        reader.line()
        reader.kill()
        rm.Subscriber("x").close()


def test_the_writer_waits_for_the_reader(in_thread):
    with rm.Publisher("x", contract="pipe", capacity=4096) as pub, rm.Subscriber("x") as sub:
        sending = in_thread(lambda: [pub.send(b"%d" % i * 100, timeout=20) for i in range(500)])
        assert [sub.recv(timeout=20) for _ in range(500)] == [b"%d" % i * 100 for i in range(500)]
        assert sending() == list(range(500))


def test_unread_messages_outlive_the_writer():
    with rm.Publisher("x", contract="pipe") as pub:
        pub.send_many([b"a", b"b"])
    assert rm.info("x").writers == []
    assert rm.clean() == []
    with rm.Subscriber("x") as sub:
        assert sub.recv(timeout=0) == b"a"
    with rm.Publisher("x", contract="pipe") as pub, rm.Subscriber("x") as sub:
        assert pub.send(b"c") == 2
        assert sub.recv_many(9) == [b"b", b"c"]


def test_a_subscriber_that_joined_before_the_topic_does_not_count_what_another_read_as_lost():
    with rm.Subscriber("x") as first, rm.Subscriber("x") as early, rm.Publisher("x", contract="pipe") as pub:
        pub.send_many([b"a", b"b", b"c"])
        first.recv(timeout=0)
        first.close()
        message = early.recv_message(timeout=0)
        assert (message.data, message.lost, early.lost) == (b"b", 0, 0)
        assert early.recv(timeout=0) == b"c"
