"""Closing: with views still out it is refused or deferred, never a crash; the forgotten are collected and warned of."""

from __future__ import annotations

import gc

import numpy
import pytest

import ringmain as rm


def test_closing_a_subscriber_with_a_view_out_is_refused():
    with rm.Publisher("x", contract="bus") as pub:
        sub = rm.Subscriber("x")
        pub.send(b"data")
        lease = sub.borrow(timeout=0)
        with pytest.raises(BufferError, match="topic 'x' cannot be closed"):
            sub.close()
        assert not sub.closed
        pub.send(b"more")
        assert sub.recv(timeout=0) == b"more"
        assert lease.data == b"data"
        lease.release()
        sub.close()


def test_closing_a_publisher_with_a_view_out_is_refused():
    pub = rm.Publisher("x")
    buf = pub.reserve(10)
    with pytest.raises(BufferError, match="topic 'x' cannot be closed"):
        pub.close()
    buf.discard()
    pub.close()


@pytest.mark.parametrize("make", [rm.Publisher, rm.Subscriber])
def test_the_forgotten_are_collected_at_once_and_warn(make):
    endpoint = make("x")
    with rm.Publisher("y"), pytest.warns(ResourceWarning, match=rf"unclosed <ringmain.{make.__name__} 'x'>"):
        del endpoint  # by counting references: no cycle keeps it
    assert [topic.name for topic in rm.topics()] == []


def test_a_closed_one_does_not_warn(recwarn):
    for make in (rm.Publisher, rm.Subscriber):
        endpoint = make("x")
        endpoint.close()
        del endpoint
    gc.collect()
    assert len(recwarn) == 0


def test_one_that_could_not_be_opened_does_not_warn(recwarn):
    for make in (rm.Publisher, rm.Subscriber):
        with pytest.raises(ValueError):
            make("../x")
    with rm.Publisher("x"), pytest.raises(rm.TopicBusy):
        rm.Publisher("x")
    gc.collect()
    assert len(recwarn) == 0


def test_a_subscriber_forgotten_in_favour_of_its_array(recwarn):
    """The array keeps the lease, the lease the subscriber: the bytes stay until the last of them goes."""
    with rm.Publisher("x", contract="bus", capacity=4096) as pub:
        sub = rm.Subscriber("x")
        pub.send(b"12345678")
        array = numpy.frombuffer(sub.borrow(timeout=0).data, "u1")
        del sub
        gc.collect()
        with pytest.raises(rm.Full):
            for _ in range(100):
                pub.send(b"x" * 100, timeout=0)
        assert array.tobytes() == b"12345678"
        with pytest.warns(ResourceWarning, match="unclosed"):
            del array
        for _ in range(100):
            pub.send(b"x" * 100, timeout=0)
        assert rm.info("x").readers == []


def test_a_view_may_outlive_the_topic():
    with rm.Subscriber("x") as sub:
        with rm.Publisher("x", contract="bus") as pub:
            pub.send(b"12345678")
            lease = sub.borrow(timeout=0)
        rm.unlink("x", force=True)
        assert lease.data == b"12345678"
        lease.release()
        with rm.Publisher("x") as pub:
            pub.send(b"new")
            assert sub.recv(timeout=0) == b"new"


def test_the_interpreter_ends_with_views_out(child):
    """Whatever order modules and objects go in, the process ends by itself and with status 0."""
    child("""
        import numpy
        pub = rm.Publisher("x", contract="bus"); sub = rm.Subscriber("x")
        pub.send(b"12345678")
        lease = sub.borrow(); array = numpy.frombuffer(lease.data, "u1")
        other = rm.Publisher("y"); buf = other.reserve(100); view = memoryview(buf)
        sys.modules["kept"] = [array, view]
    """).finish()
    rm.clean()


def test_context_managers_close():
    with rm.Publisher("x") as pub, rm.Subscriber("x") as sub:
        assert not pub.closed
        assert not sub.closed
    assert pub.closed
    assert sub.closed
    assert "closed" in repr(pub)
    assert repr(sub) == "<ringmain.Subscriber 'x' closed>"
