"""What one client does fails its own requests at most: the server lives, and the other clients have their replies."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ringmain as rm
from ringmain._extension import Said
from ringmain._service import _unsent
from tests.conftest import PATIENCE_S

InThread = Callable[..., Callable[[], Any]]
Until = Callable[[Callable[[], object]], None]


class Number(msgspec.Struct):
    x: int


@pytest.fixture(autouse=True)
def clean_up(runtime_dir: Path) -> Iterator[None]:
    """A topic of replies that was removed or damaged stays."""
    yield
    for topic in runtime_dir.glob("infer*.ring"):
        with suppress(rm.RingmainError):
            rm.unlink(topic.stem.replace("+", "/"), force=True)


@pytest.fixture
def served(in_thread: InThread) -> Iterator[rm.Client[bytes, str]]:
    """Another client of a server that decodes: it is served before and after what the test does."""
    with rm.Server("infer", reply=str) as server:
        done = in_thread(server.serve, bytes.decode)
        with rm.Client("infer", reply=str) as client:
            assert client.call(b"before", timeout=PATIENCE_S) == "before"
            yield client
            assert client.call(b"after", timeout=PATIENCE_S) == "after"
        server.close()
        done()


@pytest.mark.parametrize("timeout", [1e10, 1e300, float("inf")])
def test_a_very_long_timeout_is_none(served: rm.Client[bytes, str], timeout: float) -> None:
    assert served.submit(b"x", timeout=timeout).result(PATIENCE_S) == "x"
    assert served.call(b"x", timeout=timeout) == "x"


@pytest.mark.parametrize(
    "extension", [b"\xff", b"\xff\x00", b"\xff\x03\x01\x00\x00", b"\xff\x01\x09", b"\xff" * 255, b""]
)
@pytest.mark.parametrize("kind", ["", "call", "17 failed", "\0"])
def test_whatever_it_says_it_is_a_request(served: rm.Client[bytes, str], kind: str, extension: bytes) -> None:
    with rm.Publisher("infer", contract="work", sender=served.id) as foreign:
        foreign._send_as(b"x", -1, 0, Said((extension + kind.encode())[:255]), 10)


@pytest.mark.parametrize("sender", ["", "..", "a/b", "é" * 100, "\n"])
def test_any_sender_is_a_client(served: rm.Client[bytes, str], sender: str) -> None:
    with rm.Publisher("infer", contract="work", sender=sender) as foreign:
        foreign.send(b"x")


def another_contract() -> Iterator[str]:
    with rm.Publisher("infer.replies/bad", contract="bus"), rm.Subscriber("infer.replies/bad"):
        yield "bad"


def removed() -> Iterator[str]:
    with rm.Client("infer") as client:
        client.call(b"", timeout=PATIENCE_S)  # the server has opened it
        rm.unlink(f"infer.replies/{client.id}", force=True)
        yield client.id


def damaged(runtime_dir: Path) -> Iterator[str]:
    with rm.Client("infer") as client:
        client.call(b"", timeout=PATIENCE_S)
        path = runtime_dir / f"infer.replies+{client.id}.ring"
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as words:
            words[640:648] = (1000).to_bytes(8, "little")  # the turn: of a slot that there is not
        yield client.id


def another_type() -> Iterator[str]:
    with rm.Client("infer", reply=Number, reply_capacity=4096) as client:
        yield client.id


@pytest.mark.parametrize("spoil", [another_contract, removed, damaged, another_type])
def test_a_topic_of_replies_that_cannot_be_used(
    served: rm.Client[bytes, str], spoil: Callable[..., Iterator[str]], runtime_dir: Path, until: Until
) -> None:
    spoiled = spoil(runtime_dir) if spoil is damaged else spoil()
    client = next(spoiled)
    with rm.Publisher("infer", contract="work", sender=client) as publisher:
        for _ in range(100):  # more than there is room for, where there is any
            publisher.send(b"x")
        until(lambda: rm.info("infer").waiting == 0)
    if spoil is not removed:  # where there is nobody to tell, none is dropped
        until(lambda: rm.service("infer").dropped > 0)
    assert next(spoiled, None) is None


def test_a_request_that_does_not_decode_fails_and_the_loop_goes_on() -> None:
    with rm.Server("infer", request=Number) as server, rm.Client("infer", request=Number) as client:
        with rm.Client("infer") as raw:
            for take in (lambda: next(server), lambda: server.take(1, timeout=PATIENCE_S)[0]):
                bad, good = raw.submit(b"\xff", timeout=PATIENCE_S), client.submit(Number(7), timeout=PATIENCE_S)
                request = take()
                assert request.data == Number(7)
                request.reply(b"seven")
                assert good.result(PATIENCE_S) == b"seven"
                with pytest.raises(rm.RequestFailed, match="DecodeError"):
                    bad.result(PATIENCE_S)


def test_a_reply_written_in_place_that_does_not_fit_fails_its_request() -> None:
    with rm.Server("infer") as server, rm.Client("infer", reply_capacity=4096) as client:
        future = client.submit(b"", timeout=PATIENCE_S)
        with next(server).reserve(100_000) as out:
            out[:] = bytes(100_000)
        with pytest.raises(rm.RequestFailed, match="reply_capacity"):
            future.result(PATIENCE_S)


# ------------------------------------------------------------------------------------------ batches of requests


def outcome(result: Callable[[float], Any]) -> object:
    try:
        return result(PATIENCE_S)
    except rm.RequestFailed as failed:
        return str(failed)


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        pytest.param(lambda batch: [100 // each.x for each in batch], "ZeroDivisionError", id="raises"),
        pytest.param(lambda batch: (100 // each.x for each in batch), "ZeroDivisionError", id="yields"),
        pytest.param(
            lambda batch: [100 // each.x if each.x else KeyError("zero") for each in batch], "KeyError", id="returns"
        ),
        pytest.param(lambda batch: [100 // each.x if each.x else "text" for each in batch], "TypeError", id="wrong"),
    ],
)
def test_one_of_a_batch_fails_and_the_others_do_not(in_thread: InThread, handler: Any, expected: str) -> None:
    with rm.Client("infer", request=Number, reply=int) as client, rm.Client("infer", reply=int) as raw:
        futures = [client.submit(Number(x), timeout=PATIENCE_S) for x in (1, 0, 5)]
        bad = raw.submit(b"\xff", timeout=PATIENCE_S)
        with rm.Server("infer", request=Number, reply=int) as server:
            done = in_thread(server.serve_batches, handler)
            first, second, third = (outcome(future.result) for future in futures)
            assert (first, third) == (100, 20)
            assert str(second).startswith(expected)
            assert "DecodeError" in str(outcome(bad.result))
            assert client.call(Number(4), timeout=PATIENCE_S) == 25
            server.close()
            done()


def test_a_handler_that_returns_too_few_replies(in_thread: InThread) -> None:
    with rm.Client("infer") as client:
        futures = [client.submit(b"%d" % i, timeout=PATIENCE_S) for i in range(3)]
        with rm.Server("infer") as server:
            done = in_thread(server.serve_batches, lambda batch: [] if b"1" in batch else batch)
            assert [outcome(future.result) for future in futures] == [
                b"0",
                "ValueError: the handler returned 0 replies to 1 requests",
                b"2",
            ]
            server.close()
            done()


# --------------------------------------------------------------------------------------- clients that do not read


def test_replies_that_are_not_read_are_bounded(monkeypatch: pytest.MonkeyPatch, in_thread: InThread) -> None:
    monkeypatch.setattr(_unsent, "MOST_REPLIES", 20)
    monkeypatch.setattr(_unsent, "MOST_BYTES", 5_000)
    with rm.Server("infer") as server, rm.Client("infer", reply_capacity=4096) as slow:
        sent = [slow._send(b"slow") for _ in range(40)]
        for request in server.take(40, timeout=PATIENCE_S):
            request.reply(bytes(1000))
        assert server._replies.unsent == 20
        served = in_thread(server.serve, bytes.upper)
        with rm.Client("infer") as other:
            assert other.call(b"abc", timeout=PATIENCE_S) == b"ABC"
        outcomes = [outcome(lambda _, call=call: slow._outcome(call)) for call in sent[:20]]
        results = [each for each in outcomes if each == bytes(1000)]
        assert all("did not read" in str(each) for each in outcomes if each not in results)
        assert 5 <= len(results) < 20
        server.close()
        served()
        assert server._replies.dropped == 40 - len(results)


def test_replies_that_nobody_waits_for_any_more_are_dropped(until: Until) -> None:
    with rm.Server("infer") as server, rm.Client("infer", reply_capacity=4096) as slow:
        for _ in range(20):
            slow._send(b"slow", 0.2)
        for request in server.take(20, timeout=PATIENCE_S):
            request.reply(bytes(1000))
        unsent = server._replies.unsent
        assert unsent > 0
        until(lambda: server.take(1, timeout=0.01) or server._replies.unsent == 0)
        assert server._replies.dropped == unsent
        until(lambda: server.take(1, timeout=0.01) or rm.service("infer").dropped == unsent)


# --------------------------------------------------------------------------------------------------------- lanes


def test_a_lane_is_served_though_the_one_before_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmain._service._topics.CLIENTS_PER_LANE", 1)
    first, second, third = (rm.Client("infer") for _ in range(3))
    second.close()
    with first, third, rm.Server("infer") as server:
        assert third._sender.publisher.topic == "infer.lane3"
        futures = [client.submit(b"x", timeout=PATIENCE_S) for client in (first, third)]
        for _ in futures:
            next(server).reply(b"y")
        assert [future.result(PATIENCE_S) for future in futures] == [b"y", b"y"]
        assert rm.service("infer").clients == 2


def test_a_topic_that_only_looks_like_a_lane_is_left_alone() -> None:
    with (
        rm.Publisher("infer.lane2", contract="bus") as bus,
        rm.Publisher("infer.lane3", contract="work", type=Number) as typed,
    ):
        bus.send(b"no request")
        typed.send(Number(1))
        with rm.Server("infer", request=str) as server, rm.Client("infer", request=str) as client:
            future = client.submit("x", timeout=PATIENCE_S)
            next(server).reply(b"y")
            assert future.result(PATIENCE_S) == b"y"
            assert server.take(1, timeout=0) == []
