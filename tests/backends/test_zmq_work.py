"""`work` over ZeroMQ: each message goes to one worker, and what cannot be promised is refused with a sentence."""

from __future__ import annotations

from typing import Any

import pytest

import ringmain as rm
from ringmain.backends import _features
from ringmain.backends.zmq import Address
from tests.conftest import PATIENCE_S


def workers(count: int, **options: Any) -> list[rm.Subscriber]:
    return [rm.Subscriber("jobs", backend="zmq", name=f"w{i}", **options) for i in range(count)]


def refused(feature: str) -> Any:
    return pytest.raises(rm.Unsupported, match=feature)


@pytest.mark.parametrize("address", [None, "tcp://127.0.0.1:*"])
def test_each_message_goes_to_one_worker(address: str | None) -> None:
    with rm.Publisher("jobs", contract="work", backend="zmq", address=address) as pub:
        there: Any = pub
        given = Address(there.address.endpoint, contract="work") if address else None
        a, b = workers(2, address=given)
        with a, b:
            pub.wait_for_readers(2, timeout=PATIENCE_S)
            sent = {b"%d" % i for i in range(20)}
            for payload in sorted(sent):
                pub.send(payload, timeout=PATIENCE_S)
            received = [sub.recv(timeout=PATIENCE_S) for _ in range(10) for sub in (a, b)]
            assert sorted(received) == sorted(sent)
            assert (a.try_recv(), b.try_recv(), a.lost, b.lost) == (None, None, 0, 0)


def test_a_send_waits_for_a_worker() -> None:
    with rm.Publisher("jobs", contract="work", backend="zmq") as pub:
        with pytest.raises(rm.Full, match="a worker, and none has come yet"):
            pub.send(b"0", timeout=0)
        assert rm.info("jobs").contract == "work"


def test_what_would_lose_messages_is_refused() -> None:
    with rm.Publisher("jobs", contract="work", backend="zmq") as pub:
        with pytest.raises(rm.TopicBusy):  # its one writer
            rm.Publisher("jobs", contract="work", backend="zmq")
        with refused("gives messages back"):
            workers(1, max_deliveries=3)
        with refused("take only some messages"):
            workers(1, only_kinds={"small"})
        with refused("observers of pipe and work"):
            workers(1, observe="always")
        with pytest.raises(rm.TopicMismatch, match="conflate"):
            workers(1, conflate=True)
        (sub,) = workers(1)
        with sub:
            pub.wait_for_readers(1, timeout=PATIENCE_S)
            with refused("take only some messages"):
                sub.ignore_kinds = {"big"}
            with refused("take only some messages"):
                sub.ignore_senders.add("me")
            assert not sub.ignore_kinds
            assert not sub.ignore_senders
            pub.send(b"0", kind="big", timeout=PATIENCE_S)
            task = sub.recv(timeout=PATIENCE_S)
            with refused("gives messages back"):
                sub.reject(task)
    assert _features.missing("zmq", "unfinished work stays in the topic")
