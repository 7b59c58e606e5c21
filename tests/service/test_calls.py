"""Requests and replies between threads of one process: results, failures, deadlines, order, back-pressure, large
arrays."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

import ringmain as rm
from ringmain import _extension
from tests.conftest import PATIENCE_S

InThread = Callable[..., Callable[[], Any]]
Until = Callable[[Callable[[], object]], None]


class Observation(msgspec.Struct):
    x: float


class Action(msgspec.Struct):
    y: float


def double(server: rm.Server[Observation, Action], count: int) -> None:
    for _, request in zip(range(count), server, strict=False):
        request.reply(Action(2 * request.data.x))


def upper(server: rm.Server[bytes, bytes], count: int) -> None:
    for _, request in zip(range(count), server, strict=False):
        request.reply(request.data.upper())


def test_a_typed_call(in_thread: InThread) -> None:
    with rm.Server("infer", request=Observation, reply=Action) as server:
        done = in_thread(double, server, 2)
        with rm.Client("infer", request=Observation, reply=Action) as client:
            assert client.call(Observation(1.5), timeout=PATIENCE_S) == Action(3.0)
            assert client.call(Observation(2.0)) == Action(4.0)
        done()


def test_bytes_without_types(in_thread: InThread) -> None:
    with rm.Server("echo") as server, rm.Client("echo") as client:
        done = in_thread(upper, server, 1)
        assert client.call(b"abc", timeout=PATIENCE_S) == b"ABC"
        done()


def test_many_in_flight_and_replies_out_of_order() -> None:
    with rm.Server("echo") as server, rm.Client("echo") as client:
        futures = [client.submit(b"%d" % i, timeout=PATIENCE_S) for i in range(100)]
        taken = server.take(100, timeout=PATIENCE_S)
        assert client.in_flight == 100
        for request in reversed(taken):
            request.reply(request.data + b"!")
        assert [future.result(PATIENCE_S) for future in futures] == [b"%d!" % i for i in range(100)]
        assert client.in_flight == 0


def test_threads_share_a_client(in_thread: InThread) -> None:
    with rm.Server("echo") as server, rm.Client("echo") as client:
        served = in_thread(upper, server, 400)

        def calls(name: str) -> bool:
            return all(
                client.call(f"{name}{i}".encode(), timeout=PATIENCE_S) == f"{name}{i}".upper().encode()
                for i in range(100)
            )

        assert all(each() for each in [in_thread(calls, name) for name in "abcd"])
        served()


def test_a_cancelled_future_ignores_its_reply() -> None:
    with rm.Server("echo") as server, rm.Client("echo") as client:
        cancelled, kept = client.submit(b"a", timeout=PATIENCE_S), client.submit(b"b", timeout=PATIENCE_S)
        assert cancelled.cancel()
        for request in server.take(2, timeout=PATIENCE_S):
            request.reply(request.data)
        assert kept.result(PATIENCE_S) == b"b"


# ------------------------------------------------------------------------------------------------ failures


def test_a_failure_reaches_the_client_with_its_text(in_thread: InThread) -> None:
    with rm.Server("infer") as server, rm.Client("infer") as client:
        done = in_thread(lambda: next(server).fail("no such model"))
        with pytest.raises(rm.RequestFailed, match=r"^no such model$"):
            client.call(b"", timeout=PATIENCE_S)
        done()


def test_a_handlers_exception_fails_its_request_and_the_next_is_served(in_thread: InThread) -> None:
    with rm.Server("divide") as server, rm.Client("divide") as client:
        done = in_thread(server.serve, lambda data: b"%d" % (10 // int(data)))
        with pytest.raises(rm.RequestFailed, match=r"^ZeroDivisionError: .*zero$"):
            client.call(b"0", timeout=PATIENCE_S)
        assert client.call(b"5", timeout=PATIENCE_S) == b"2"
        server.close()
        done()


def test_an_exception_that_ends_the_server_fails_what_it_had(in_thread: InThread) -> None:
    with rm.Client("infer") as client:

        def serve() -> None:
            with rm.Server("infer") as server:
                for _ in server:
                    raise ValueError("bad weights")

        done = in_thread(serve)
        with pytest.raises(rm.RequestFailed, match=r"^ValueError: bad weights$"):
            client.call(b"", timeout=PATIENCE_S)
        with pytest.raises(ValueError, match="bad weights"):
            done()


def test_a_request_that_is_dropped_fails(in_thread: InThread) -> None:
    with rm.Server("infer") as server, rm.Client("infer") as client:
        done = in_thread(lambda: bool(server.take(1, timeout=PATIENCE_S)))
        with pytest.raises(rm.RequestFailed, match="dropped the request"):
            client.call(b"", timeout=PATIENCE_S)
        done()


def test_a_request_is_answered_once(in_thread: InThread) -> None:
    with rm.Server("infer") as server, rm.Client("infer") as client:
        future = client.submit(b"x", timeout=PATIENCE_S)
        request = next(server)
        assert not request.answered
        request.reply(b"y")
        assert request.answered
        with pytest.raises(ValueError, match="answered already"):
            request.reply(b"z")
        assert future.result(PATIENCE_S) == b"y"


def test_a_wrong_reply_leaves_the_request_open() -> None:
    with rm.Server("infer", request=Observation, reply=Action) as server:
        with rm.Client("infer", request=Observation, reply=Action) as client:
            future = client.submit(Observation(1), timeout=PATIENCE_S)
            request = next(server)
            with pytest.raises(TypeError, match="Action"):
                request.reply(Observation(1))  # type: ignore[arg-type]
            request.reply(Action(1))
            assert future.result(PATIENCE_S) == Action(1)


def test_types_that_do_not_fit() -> None:
    class Other(msgspec.Struct):
        z: str

    with rm.Server("infer", request=Observation, reply=Action) as server:
        with pytest.raises(rm.SchemaMismatch):
            rm.Client("infer", request=Other, reply=Action)
        with rm.Client("infer", request=Observation, reply=Other) as client:
            future = client.submit(Observation(1), timeout=PATIENCE_S)
            next(server).reply(Action(1))
            with pytest.raises(rm.RequestFailed, match="does not read as"):
                future.result(PATIENCE_S)


def test_a_reply_that_is_too_large_says_so() -> None:
    with rm.Server("infer") as server, rm.Client("infer", reply_capacity=4096) as client:
        future = client.submit(b"", timeout=PATIENCE_S)
        next(server).reply(bytes(100_000))
        with pytest.raises(rm.RequestFailed, match="reply_capacity"):
            future.result(PATIENCE_S)


# ------------------------------------------------------------------------------------ servers come and go


def test_no_server_yet_the_call_waits_for_one(in_thread: InThread, until: Until) -> None:
    with rm.Client("late") as client:
        called = in_thread(lambda: client.call(b"abc", timeout=PATIENCE_S))
        until(lambda: rm.info("late").waiting == 1)
        with rm.Server("late") as server:
            upper(server, 1)
            assert called() == b"ABC"


def test_no_server_at_all_is_what_the_timeout_says() -> None:
    with rm.Client("none") as client:
        with pytest.raises(rm.Timeout, match=r"service 'none' within 0.05 s: it has no server"):
            client.call(b"", timeout=0.05)
        future = client.submit(b"", timeout=0.05)
        with pytest.raises(rm.Timeout, match="it has no server"):
            future.result(PATIENCE_S)


def test_a_timeout_says_which_server_has_the_request(in_thread: InThread) -> None:
    with rm.Server("slow", name="heavy") as server, rm.Client("slow") as client:
        called = in_thread(lambda: client.call(b"", timeout=0.2))
        request = next(server)
        with pytest.raises(rm.Timeout, match="not answered yet: 'heavy'"):
            called()
        assert request.expired
        request.reply(b"too late")


def test_a_server_that_closes_with_a_request(in_thread: InThread) -> None:
    with rm.Client("infer") as client:
        with rm.Server("infer") as server:
            future = client.submit(b"", timeout=PATIENCE_S)
            request = next(server)
        assert request.answered
        with pytest.raises(rm.ServerGone, match="closed before it answered"):
            future.result(PATIENCE_S)


def test_with_retry_another_server_gets_what_one_leaves() -> None:
    with rm.Client("infer") as client:
        with rm.Server("infer") as server:
            future = client.submit(b"abc", timeout=PATIENCE_S, retry=True)
            kept = next(server)
        with rm.Server("infer") as server:
            request = next(server)
            assert (request.redelivered, kept.answered) == (1, True)
            request.reply(b"again")
        assert future.result(PATIENCE_S) == b"again"


def test_requests_that_were_not_taken_stay_for_the_next_server() -> None:
    with rm.Client("infer") as client:
        with rm.Server("infer"):
            future = client.submit(b"abc", timeout=PATIENCE_S)
        with rm.Server("infer") as server:
            upper(server, 1)
        assert future.result(PATIENCE_S) == b"ABC"


def test_closing_a_client_ends_its_calls(in_thread: InThread, until: Until) -> None:
    with rm.Server("infer") as server:
        client = rm.Client("infer")
        future = client.submit(b"")
        called = in_thread(lambda: client.call(b""))
        until(lambda: client.in_flight == 2)
        client.close()
        with pytest.raises(rm.Closed):
            called()
        with pytest.raises(rm.Closed):
            future.result(PATIENCE_S)
        with pytest.raises(rm.Closed):
            client.call(b"")
        for request in server.take(2, timeout=PATIENCE_S):
            request.reply(b"for a client that has left")


# ------------------------------------------------------------------------------ deadlines, back-pressure


def test_a_request_whose_client_has_given_up_is_not_computed() -> None:
    with rm.Client("infer") as client:
        with pytest.raises(rm.Timeout):
            client.call(b"expired", timeout=0.01)
        with rm.Server("infer") as server:
            future = client.submit(b"wanted", timeout=PATIENCE_S)
            request = next(server)
            assert (request.data, request.expired) == (b"wanted", False)
            request.reply(b"done")
            assert future.result(PATIENCE_S) == b"done"


def test_busy_without_a_server_with_a_busy_one_and_with_a_full_ring() -> None:
    with rm.Client("infer", capacity=4096) as client:
        with pytest.raises(rm.Busy, match="has no server"):
            client.call(b"", if_idle=True)
        with rm.Server("infer") as server:
            future = client.submit(b"", timeout=PATIENCE_S)
            request = next(server)
            with pytest.raises(rm.Busy, match="1 servers have 1 requests"):
                client.call(b"", if_idle=True)
            waiting = []
            with pytest.raises(rm.Busy, match="no room"):
                while True:
                    waiting.append(client.submit(bytes(512), room_timeout=0))
            with pytest.raises(rm.Full, match="no room"):
                client.call(bytes(512), timeout=0.01)
            request.reply(b"first")
            for later in server.take(len(waiting), timeout=PATIENCE_S):
                later.reply(b"later")
            assert future.result(PATIENCE_S) == b"first"
            assert {each.result(PATIENCE_S) for each in waiting} == {b"later"}


def test_a_call_that_does_not_wait_for_a_free_server_waits_for_its_reply(in_thread: InThread) -> None:
    with rm.Server("infer") as server, rm.Client("infer") as client:
        done = in_thread(upper, server, 1)
        assert client.call(b"abc", if_idle=True) == b"ABC"
        done()


def test_a_client_that_does_not_read_holds_up_no_other(in_thread: InThread) -> None:
    with rm.Server("infer") as server, rm.Client("infer") as fast:
        with rm.Client("infer", reply_capacity=4096) as slow:
            sent = [slow._send(b"slow%d" % i, PATIENCE_S) for i in range(10)]
            for request in server.take(10, timeout=PATIENCE_S):
                request.reply(bytes(1000))
            assert server._replies.unsent > 0
            done = in_thread(upper, server, 1)
            assert fast.call(b"abc", timeout=PATIENCE_S) == b"ABC"
            done()
            served = in_thread(server.serve, bytes.upper)
            assert [slow._outcome(call) for call in sent] == [bytes(1000)] * 10
            server.close()
            served()


# ------------------------------------------------------------------------------------------------ batches


def test_a_batch_ends_at_its_size_or_after_its_time() -> None:
    with rm.Server("infer") as server, rm.Client("infer") as client:
        futures = [client.submit(b"%d" % i, timeout=PATIENCE_S) for i in range(10)]
        sizes = []
        for batch in server.batches(max_requests=4, wait_s=0.001):
            sizes.append(len(batch))
            for request in batch:
                request.reply(request.data)
            if sum(sizes) == 10:
                break
        assert sizes == [4, 4, 2]
        assert [future.result(PATIENCE_S) for future in futures] == [b"%d" % i for i in range(10)]


def test_a_batch_waits_for_more(in_thread: InThread) -> None:
    with rm.Server("infer") as server, rm.Client("infer") as client:
        batches = server.batches(max_requests=2, wait_s=PATIENCE_S)
        first = client.submit(b"a", timeout=PATIENCE_S)
        got = in_thread(next, batches)
        second = client.submit(b"b", timeout=PATIENCE_S)
        batch = got()
        assert [request.data for request in batch] == [b"a", b"b"]
        for request in batch:
            request.reply(b"")
        first.result(PATIENCE_S)
        second.result(PATIENCE_S)


@pytest.mark.parametrize("arguments", [{"max_requests": 0}, {"wait_s": -1}])
def test_a_batch_that_cannot_be(arguments: dict[str, Any]) -> None:
    with rm.Server("infer") as server, pytest.raises(ValueError, match="at least"):
        next(server.batches(**arguments))


# ----------------------------------------------------------------------------------------- large arrays


def test_arrays_are_written_and_read_in_place() -> None:
    image = np.arange(512 * 512, dtype=np.float32)
    with rm.Server("infer", capacity="4MiB") as server, rm.Client("infer", reply_capacity="4MiB") as client:
        draft = client.reserve(image.nbytes, timeout=PATIENCE_S)
        with draft:
            np.frombuffer(draft.buffer, np.float32)[:] = image
        request = next(server)
        with request.borrow() as view:
            in_place = np.frombuffer(view, np.float32)
            assert not in_place.flags.owndata
            with request.reserve(image.nbytes) as out:
                np.frombuffer(out, np.float32)[:] = in_place * 2
            del in_place
        assert (np.frombuffer(draft.result(), np.float32) == image * 2).all()


def test_typed_arrays() -> None:
    with rm.Server("infer", request=np.ndarray, reply=np.ndarray) as server:
        with rm.Client("infer", request=np.ndarray, reply=np.ndarray) as client:
            future = client.submit(np.ones((3, 4)), timeout=PATIENCE_S)
            request = next(server)
            with request.borrow() as array:
                total = array + 1
                del array
            request.reply(total)
            assert future.result(PATIENCE_S).tolist() == (np.ones((3, 4)) + 1).tolist()


def test_a_draft_whose_block_raises_is_not_sent() -> None:
    with rm.Server("infer") as server, rm.Client("infer") as client:
        draft = client.reserve(10)
        with pytest.raises(ZeroDivisionError), draft:
            raise ZeroDivisionError
        with pytest.raises(ValueError, match="not sent"):
            draft.result()
        assert server.take(1, timeout=0) == []


def test_a_block_that_raises_fails_the_request() -> None:
    with rm.Server("infer") as server, rm.Client("infer") as client:
        reading, writing = client.submit(b"a", timeout=PATIENCE_S), client.submit(b"b", timeout=PATIENCE_S)
        one, other = server.take(2, timeout=PATIENCE_S)
        with pytest.raises(KeyError), one.borrow():
            raise KeyError("weights")
        with pytest.raises(ValueError, match="too long"), other.reserve(4):
            raise ValueError("too long")
        with pytest.raises(rm.RequestFailed, match=r"^KeyError: 'weights'$"):
            reading.result(PATIENCE_S)
        with pytest.raises(rm.RequestFailed, match=r"^ValueError: too long$"):
            writing.result(PATIENCE_S)


# -------------------------------------------------------------------------------------------- inspecting


def test_what_is_known_of_a_service(until: Until) -> None:
    with rm.Server("infer", request=Observation, reply=Action, name="gpu0") as server:
        with rm.Client("infer", request=Observation, reply=Action) as client:
            futures = [client.submit(Observation(i), timeout=PATIENCE_S) for i in range(3)]
            first = next(server)
            there = rm.service("infer")
            assert ([s.name for s in there.servers], there.clients) == (["gpu0"], 1)
            assert (there.waiting, there.in_flight) == (2, 1)
            assert there.slowest is not None
            first.reply(Action(0))
            next(server).fail("no")
            next(server).reply(Action(2))
            until(lambda: server.take(1, timeout=0.01) or rm.service("infer").requests == 3)
            there = rm.service("infer")
            assert (there.request, there.reply, there.failed) == ("Observation", "Action", 1)
            assert 0 < there.handler_p50_us <= there.handler_p99_us
            assert [each.name for each in rm.services()] == ["infer"]
            assert futures[2].result(PATIENCE_S) == Action(2)
    with pytest.raises(rm.TopicNotFound):
        rm.service("infer")
    assert rm.services() == []


def test_the_traffic_is_readable_as_that_of_any_topic() -> None:
    with rm.Server("infer", request=Observation, reply=Action) as server:
        with (
            rm.Client("infer", request=Observation, reply=Action) as client,
            rm.Subscriber("infer", type=Observation, observe="always") as requests,
            rm.Subscriber(f"infer.replies/{client.id}", type=Action, observe="always") as replies,
        ):
            future = client.submit(Observation(1.5), timeout=2, retry=True)
            taken = next(server)
            taken.reply(Action(3.0))
            assert future.result(PATIENCE_S) == Action(3.0)
            request, reply = requests.recv_message(1), replies.recv_message(1)
            assert (request.data, request.sender, request.kind) == (
                Observation(1.5),
                client.id,
                "",
            )
            assert request.extension == _extension.of_request(taken.deadline_ns, True)
            assert (reply.data, reply.kind) == (Action(3.0), "")
            assert _extension.answer_of(reply.extension) == (request.seq, "")


def test_they_can_be_pickled(in_thread: InThread) -> None:
    with rm.Server("infer", name="a") as server, rm.Client("infer") as client:
        with pickle.loads(pickle.dumps(server)) as other, pickle.loads(pickle.dumps(client)) as another:
            assert another.id != client.id
            assert client.wait_for_servers(2, timeout=PATIENCE_S) == 2
            future = another.submit(b"abc", timeout=PATIENCE_S)
            upper(other, 1)
            assert future.result(PATIENCE_S) == b"ABC"


def test_zmq_refuses_with_a_reason() -> None:
    for kind in (rm.Server, rm.Client):
        with pytest.raises(rm.Unsupported, match="its server dies"):
            kind("infer", backend="zmq")  # type: ignore[operator]


def test_a_client_that_is_open_when_the_program_ends_is_closed_silently(child: Callable[..., Any]) -> None:
    program = child("client = rm.Client('left_open')")
    program.finish()
    assert program.errors() == ""
    assert rm.topics() == []
