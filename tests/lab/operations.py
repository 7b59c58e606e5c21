"""The operations of which each allocation fails once, and what must hold afterwards: see failing_allocations.py."""

from __future__ import annotations

import asyncio
import os
import select
import struct
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from typing import Any

import face
import msgspec

import ringmain as rm
from ringmain import _native, _recording

PATIENCE_S = 20.0
WAIT_S = 0.03
"""Longer than the first, brief sleep of a wait: then deaths are watched."""
Check = Generator[Callable[[], Any], Any, None]
"""Yields what may fail once; is sent what it returned, or FAILED; then checks all else, and closes."""
FAILED = object()
Case = Callable[[str], Check]
"""By a contract."""


def _messages(sub: Any) -> list[tuple[int, bytes]]:
    return sorted((message.seq, message.data) for message in sub.recv_messages(100, timeout=0))


def _goes_on(pub: Any, sub: Any, before: list[bytes]) -> None:
    """What is received now is what was sent before, and one more."""
    pub.send(b"after", timeout=PATIENCE_S)
    got = _messages(sub)
    assert [data for _, data in got] == [*before, b"after"], (got, before)
    numbers = [number for number, _ in got]
    assert numbers == list(range(numbers[-1] + 1 - len(got), numbers[-1] + 1)), got
    assert sub.lost == 0


def sends(send: Callable[[Any], Any], sent: list[bytes]) -> Case:
    def check(contract: str) -> Check:
        with rm.Publisher("t", contract=contract, capacity=4096) as pub, rm.Subscriber("t") as sub:
            pub.send(b"first")
            result = yield lambda: send(pub)
            _goes_on(pub, sub, [b"first", *([] if result is FAILED else sent)])

    return check


def _reserve(pub: Any) -> None:
    with pub.reserve(5, kind="of some length, for an allocation") as draft:
        draft[:] = b"fills"


def _stream(pub: Any) -> None:
    with pub.stream() as out:
        out.write(b"one, ")
        out.write(b"two")


def receives(receive: Callable[[Any], Any], data: Callable[[Any], list[bytes]]) -> Case:
    def check(contract: str) -> Check:
        sent = [b"a" * 20, b"b" * 30, b"c"]
        with rm.Publisher("t", contract=contract, capacity=4096) as pub, rm.Subscriber("t") as sub:
            for number, each in enumerate(sent):
                pub.send(each, kind=f"kind {number} is so long that no string holds it without memory")
            result = yield lambda: receive(sub)
            got = [] if result is FAILED else data(result)
            del result
            rest = _messages(sub)
            assert sorted([*got, *(each for _, each in rest)]) == sent, (got, rest)
            assert sub.lost == 0
            sub.recv_many(1)  # on work: what was received is done
            _goes_on(pub, sub, [])

    return check


_buffer = bytearray(500)


def _borrowed(leases: list[Any]) -> list[bytes]:
    got = []
    for lease in leases:
        with lease as message:
            got.append(bytes(message.data))
    return got


def _rows(batch: Any) -> list[bytes]:
    import pyarrow as pa

    return [bytes(data) for data in pa.record_batch(batch).column("data").to_pylist()]


def batch_goes_out(contract: str) -> Check:
    with rm.Publisher("t", contract=contract) as pub, rm.Subscriber("t") as sub:
        pub.send(b"x")
        batch = _native.recv_batch(sub, 10, 0, 1 << 20)
        yield batch.__arrow_c_array__
        assert _rows(batch) == [b"x"]


def opens_publisher(contract: str) -> Check:
    result = yield lambda: rm.Publisher("t", contract=contract, capacity=4096, sender="a sender with a long name")
    if result is not FAILED:
        result.close()
    with rm.Publisher("t", contract=contract, capacity=4096) as pub, rm.Subscriber("t") as sub:
        _goes_on(pub, sub, [])


def opens_subscriber(contract: str) -> Check:
    with rm.Publisher("t", contract=contract, capacity=4096) as pub:
        result = yield lambda: rm.Subscriber("t", ignore_kinds={"a kind that no publisher sends, with a long name"})
        if result is not FAILED:
            result.close()
        assert not rm.info("t").readers, rm.info("t")
        with rm.Subscriber("t") as sub:
            _goes_on(pub, sub, [])


def waits_for_topic(contract: str) -> Check:
    result = yield lambda: rm.Subscriber("t")
    sub = rm.Subscriber("t") if result is FAILED else result
    with sub, rm.Publisher("t", contract=contract, capacity=4096) as pub:
        _goes_on(pub, sub, [])


def closes(contract: str) -> Check:
    pub, sub = rm.Publisher("t", contract=contract), rm.Subscriber("t")
    pub.send(b"x")
    assert sub.recv(timeout=0) == b"x"

    def both() -> None:
        sub.close()
        pub.close()

    yield both
    both()
    rm.clean()  # a participant that had no memory to leave with is dead to the others


def times_out(contract: str) -> Check:
    with rm.Publisher("t", contract=contract, capacity=4096) as pub, rm.Subscriber("t") as sub:

        def wait() -> None:
            with suppress(rm.Timeout):
                sub.recv(timeout=WAIT_S)

        yield wait
        _goes_on(pub, sub, [])


def times_out_full(contract: str) -> Check:
    with rm.Publisher("t", contract=contract, capacity=4096) as pub, rm.Subscriber("t") as sub:
        sent = 0
        with suppress(rm.Full):
            while sent < 40:
                pub.send(b"%d" % sent * 50, timeout=0)
                sent += 1

        def wait() -> int:
            with suppress(rm.Full):
                pub.send(b"late" * 30, timeout=WAIT_S)
                return 1
            return 0

        yield wait
        got = sub.recv_many(100)
        assert sent == 40 or len(got) == sent, (sent, len(got), got[-2:])
        sub.recv_many(1)
        before = sub.lost
        pub.send(b"after", timeout=PATIENCE_S)
        assert sub.recv(timeout=0) == b"after"
        assert sub.lost == before


def waits_for_any(contract: str) -> Check:
    with rm.Publisher("t", contract=contract) as pub, rm.Subscriber("t") as sub, rm.Subscriber("absent") as other:
        result = yield lambda: rm.wait([sub, other], timeout=WAIT_S)
        assert result is FAILED or result == []
        pub.send(b"x")
        assert rm.wait([sub, other], timeout=PATIENCE_S) == [sub]
        assert sub.recv(timeout=0) == b"x"


def rings_descriptor(contract: str) -> Check:
    with rm.Publisher("t", contract=contract) as pub, rm.Subscriber("t") as sub:

        def watch() -> None:
            fd = sub.fileno()
            for data in (b"one", b"two"):
                select.select([fd], [], [], WAIT_S)  # meanwhile its thread begins to watch for deaths
                pub.send(data)
                ready, _, _ = select.select([fd], [], [], PATIENCE_S)
                assert ready, "no ring"
                assert sub.recv(timeout=0) == data

        yield watch
        while sub.try_recv() is not None:
            pass
        watch()


def receives_in_a_loop(contract: str) -> Check:
    with (
        rm.Publisher("t", contract=contract) as pub,
        rm.Subscriber("t") as sub,
        closing(asyncio.new_event_loop()) as loop,
    ):
        loop.set_exception_handler(lambda *_: None)  # it says what a callback raised, and goes on

        async def receive(data: bytes) -> bytes:
            asyncio.get_running_loop().call_later(WAIT_S, pub.send, data)
            got: bytes = await sub.arecv(timeout=PATIENCE_S)
            return got

        result = yield lambda: loop.run_until_complete(receive(b"one"))
        assert result in (FAILED, b"one"), result
        while sub.try_recv() is not None:
            pass
        loop.run_until_complete(asyncio.sleep(2 * WAIT_S))  # a sender of before
        while sub.try_recv() is not None:
            pass
        assert loop.run_until_complete(receive(b"two")) == b"two"


def _serve(server: Any) -> None:
    while not server.closed:
        try:
            for request in server:
                request.reply(request.data)
        except MemoryError:
            continue


def calls(act: Callable[[Any], Any]) -> Case:
    def check(_: str) -> Check:
        with rm.Server("s") as server, rm.Client("s") as client:
            thread = threading.Thread(target=_serve, args=[server])
            thread.start()
            try:
                assert client.call(b"before", timeout=PATIENCE_S) == b"before"
                result = yield lambda: act(client)
                assert result is FAILED or result == b"x", result
                for _number in range(3):
                    assert client.call(b"after", timeout=PATIENCE_S) == b"after"
                    assert client.submit(b"later", timeout=PATIENCE_S).result(PATIENCE_S) == b"later"
            finally:
                server.close()
                thread.join()

    return check


def _call(client: Any) -> Any:
    """A server that has no memory for the request drops it, and says so."""
    with suppress(rm.RequestFailed, rm.ServerGone):
        return client.call(b"x", timeout=PATIENCE_S)
    return FAILED


def _submit(client: Any) -> Any:
    with suppress(rm.RequestFailed, rm.ServerGone):
        return client.submit(b"x", timeout=PATIENCE_S).result(PATIENCE_S)
    return FAILED


def opens_client(_: str) -> Check:
    with rm.Server("s") as server:
        thread = threading.Thread(target=_serve, args=[server])
        thread.start()
        try:
            result = yield lambda: rm.Client("s")
            if result is not FAILED:
                result.close()
            with rm.Client("s") as client:
                assert client.call(b"after", timeout=PATIENCE_S) == b"after"
        finally:
            server.close()
            thread.join()


def sends_frame(_: str) -> Check:
    with rm.FramePublisher("t", size=5000, buffers=2) as pub, rm.FrameSubscriber("t") as sub:

        def send() -> None:
            with pub.frame(timeout=0) as frame:
                memoryview(frame.data)[:2] = b"ok"
                frame.meta = {"a": "text of some length"}

        result = yield send
        for _number in range(4):
            got = sub.try_recv()
            assert (got is None) == (result is FAILED), result
            if got is not None:
                with got:
                    assert bytes(got.data[:2]) == b"ok"
                del got
            send()
            result = None


def receives_frame(_: str) -> Check:
    with rm.FramePublisher("t", size=5000, buffers=2) as pub, rm.FrameSubscriber("t") as sub:

        def send() -> None:
            with pub.frame(timeout=0) as frame:
                frame.meta = {"a": "text of some length"}

        def receive() -> bytes:
            with sub.recv(timeout=0) as frame:
                return bytes(frame.data)

        send()
        result = yield receive
        if result is FAILED:
            with suppress(rm.Timeout):  # its block had begun
                receive()
        for _number in range(4):
            send()
            assert len(receive()) == 5000
        assert sub.lost == 0


def opens_frames(_: str) -> Check:
    result = yield lambda: rm.FramePublisher("t", size=5000, buffers=2)
    if result is not FAILED:
        result.close()
    with rm.FramePublisher("t", size=5000, buffers=2) as pub, rm.FrameSubscriber("t") as sub:
        with pub.frame(timeout=0):
            pass
        assert sub.recv(timeout=0) is not None


def inspects(look: Callable[[], Any]) -> Case:
    def check(contract: str) -> Check:
        with rm.Publisher("t", contract=contract) as pub, rm.Subscriber("t") as sub:
            pub.send(b"x", kind="a kind that has a long name")
            result = yield look
            assert result is FAILED or result
            _goes_on(pub, sub, [b"x"])

    return check


def removes(contract: str) -> Check:
    pub = rm.Publisher("t", contract=contract)
    yield lambda: rm.unlink("t", force=True)
    with suppress(rm.TopicNotFound):
        rm.unlink("t", force=True)
    pub.close()


def replays(contract: str) -> Check:
    rows = 3
    sizes = struct.pack("<4i", 0, 1, 2, 3)
    numbers, times = struct.pack("<3q", 0, 1, 2), struct.pack("<3q", 1, 1, 1)
    with rm.Publisher("t", contract=contract) as pub, rm.Subscriber("t") as sub:
        text = (0, bytes(16), b"")
        track = _native.Track(rows, (0, numbers), (0, times), (0, bytes(6)), text, text, text, (0, sizes, b"abc"))
        track.set_publisher(pub)
        result = yield lambda: _native.replay([track], 10**12, 0, 0, float("inf"), 100, False, 1.0)
        assert track.at == rows or result is FAILED
        _goes_on(pub, sub, [b"a", b"b", b"c"][: track.at])


def spools(_: str) -> Check:
    with tempfile.TemporaryFile() as file:
        spool = _recording.Spool()
        large = bytes(200_000)
        result = yield lambda: (spool.put(file.fileno(), [b"one", large]), spool.put(file.fileno(), [b"two"]))
        spool.wait()
        spool.put(file.fileno(), [b"after"])
        spool.wait()
        file.seek(0)
        whole = [b"one" + large + b"two", b"one" + large, b""]
        assert file.read().removesuffix(b"after") in (whole[:1] if result is not FAILED else whole)


def decodes(_: str) -> Check:
    plan = msgspec.msgpack.encode(
        ["r", False, False, "", [["i", False, False, "number", []], ["s", False, False, "a long name of a field", []]]]
    )
    message = msgspec.msgpack.encode({"number": 5, "a long name of a field": "text"})
    offsets = struct.pack("<2i", 0, len(message))
    result = yield lambda: _recording.decode_messages(plan, offsets, message, 0, 1)
    expected = _recording.decode_messages(plan, offsets, message, 0, 1)
    assert result is FAILED or result == expected
    assert expected[1] == []


def of_c(act: Callable[[Any, Any, list[Any]], Any]) -> Case:
    """By the C face, which returns a status, and a last sentence that may be empty where there is no memory."""

    def check(contract: str) -> Check:
        got: list[Any] = []
        with face.Publisher("t", contract=contract, capacity=4096) as pub, face.Subscriber("t") as sub:
            pub.send(b"first")

            def act_or_fail() -> None:
                try:
                    act(pub, sub, got)
                except AssertionError as error:
                    if str(error) not in ("", "out of memory"):
                        raise
                    raise MemoryError from None

            yield act_or_fail
            pub.send(b"after", timeout=PATIENCE_S)
            data = [each for each in got if isinstance(each, bytes)] + sub.recv_many(100)
            assert data == [b"first", b"after"], data
            for each in got:
                if isinstance(each, face.Handle):
                    each.close()

    return check


def _c_waits(_: Any, sub: Any, got: list[Any]) -> None:
    got.append(sub.recv(timeout=0))
    with suppress(rm.Timeout):
        sub.recv(timeout=WAIT_S)


ON_EACH: dict[str, Case] = {
    "send": sends(lambda pub: pub.send(b"x"), [b"x"]),
    "send with a kind": sends(lambda pub: pub.send(bytearray(b"x"), kind="k" * 40, timeout=1), [b"x"]),
    "send_many": sends(lambda pub: pub.send_many([b"x", bytearray(b"y")], kinds=["k", "k" * 40]), [b"x", b"y"]),
    "reserve": sends(_reserve, [b"fills"]),
    "stream": sends(_stream, [b"one, two"]),
    "recv": receives(lambda sub: sub.recv(timeout=0), lambda data: [data]),
    "try_recv": receives(lambda sub: sub.try_recv(), lambda data: [data]),
    "next": receives(lambda sub: next(sub), lambda data: [data]),
    "recv_message": receives(lambda sub: sub.recv_message(timeout=0), lambda message: [message.data]),
    "recv_many": receives(lambda sub: sub.recv_many(2), lambda many: many),
    "recv_messages": receives(lambda sub: sub.recv_messages(3), lambda many: [each.data for each in many]),
    "recv_into": receives(lambda sub: sub.recv_into(_buffer, timeout=0), lambda size: [bytes(_buffer[:size])]),
    "borrow": receives(lambda sub: [sub.borrow(timeout=0)], _borrowed),
    "borrow_many": receives(lambda sub: _native.borrow_many(sub, 3, 0), _borrowed),
    "recv_batch": receives(lambda sub: _native.recv_batch(sub, 10, 0, 1 << 20), _rows),
    "batch to Arrow": batch_goes_out,
    "open a publisher": opens_publisher,
    "open a subscriber": opens_subscriber,
    "open a subscriber before the topic": waits_for_topic,
    "close": closes,
    "wait for a message": times_out,
    "wait for room": times_out_full,
    "wait for any": waits_for_any,
    "descriptor": rings_descriptor,
    "asyncio": receives_in_a_loop,
    "info": inspects(lambda: rm.info("t")),
    "topics": inspects(lambda: rm.topics()),
    "peek": inspects(lambda: _native.peek(os.environ["RINGMAIN_DIR"], "t", 3, 1000)),
    "unlink": removes,
    "replay": replays,
    "C: open a subscriber": of_c(lambda pub, sub, got: got.append(face.Subscriber("u"))),
    "C: open a publisher": of_c(lambda pub, sub, got: got.append(face.Publisher("u", contract="bus"))),
    "C: receive": of_c(lambda pub, sub, got: got.append(sub.recv(timeout=0))),
    "C: wait for a message": of_c(_c_waits),
}
ONCE: dict[str, Case] = {
    "call": calls(_call),
    "submit": calls(_submit),
    "open a client": opens_client,
    "send a frame": sends_frame,
    "receive a frame": receives_frame,
    "open a frame publisher": opens_frames,
    "spool": spools,
    "decode": decodes,
}
