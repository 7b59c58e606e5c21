"""Every way to wait, by what is waited for: survivors.py measures how soon each goes on.

A way opens what it needs, and gives the call that has to wait. It is named after that call: a method of `Publisher` or
`Subscriber` by its name alone, another by its class too, and a function of the C face by its own. A public call with a
timeout that is no way here needs a reason in `ELSEWHERE`; tests/lab/test_survivors.py finds all such calls.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import face
from obstacles import BUFFERS, FRAME, MESSAGE, Case
from ways import WAYS

import ringmain as rm

Call = Callable[[], object]
Way = Callable[[Case], Call]

# ------------------------------------------------------------------------------------------------- to send


def fill(send: Callable[[bytes], object]) -> None:
    """Until only the hold is in the way of the next message."""
    for data in (bytes(500), MESSAGE):
        with suppress(rm.Full):
            for _ in range(1000):
                send(data)


def publishes(way: str) -> Way:
    def prepared(case: Case) -> Call:
        pub = rm.Publisher("t", spin=case.spin)
        if case.by == "hold":
            fill(lambda data: pub.send(data, timeout=0))
        return lambda: WAYS[way](pub, None)

    return prepared


def publishes_in_c(send: Callable[[face.Publisher], object]) -> Way:
    def prepared(case: Case) -> Call:
        pub = face.Publisher("t", spin=case.spin)
        if case.by == "hold":
            fill(lambda data: pub.send(data, timeout=0))
        return lambda: send(pub)

    return prepared


def _reserve_in_c(pub: face.Publisher) -> None:
    with pub.reserve(len(MESSAGE)) as buffer:
        buffer[:] = MESSAGE


def carries_to(case: Case) -> Call:
    pub = rm.Publisher("u")
    bridge = rm.Bridge(rm.Subscriber("u"), rm.Publisher("t", spin=case.spin), timeout=None)
    bridge.carry(timeout=0)
    if case.by == "hold":
        fill(lambda data: bridge.target.send(data, timeout=0))
    pub.send(MESSAGE)
    return lambda: (pub, bridge.carry())


def appends(case: Case) -> Call:
    queue = rm.SyncQueue("t", "we")
    if case.by == "hold":
        fill(lambda data: queue.append("", data))
    return lambda: queue.append("", MESSAGE, block=True)


def recording_of(topic: str, case: Case) -> str:
    """Of one message."""
    folder, capacity = f"{os.environ['RINGMAIN_DIR']}/recorded", 4096 if case.by == "hold" else None
    with (
        rm.Publisher(topic, contract=case.contract, capacity=capacity) as pub,  # type: ignore[arg-type]
        rm.Recorder(folder, [topic]),
    ):
        pub.send(MESSAGE)
    return folder


def replays(case: Case) -> Call:
    player = rm.Player(recording_of("u", case), rename={"u": "t"}, speed=float("inf"))
    player.open()
    if case.by == "hold":
        pub = rm.Publisher("t")
        fill(lambda data: pub.send(data, timeout=0))
        pub.close()
    return player.run


SENDING: dict[str, Way] = {
    **{name: publishes(name) for name in WAYS},
    "Bridge.carry": carries_to,
    "Player.run": replays,
    "ringmain_send": publishes_in_c(lambda pub: pub.send(MESSAGE)),
    "ringmain_reserve": publishes_in_c(_reserve_in_c),
}
OF_A_QUEUE: dict[str, Way] = {"SyncQueue.append": appends}
"""A queue is a topic of `reliable`."""

# ---------------------------------------------------------------------------------------------- to receive

Receiving = Callable[[Any], object]


def _fileno(sub: Any) -> object:
    while (data := sub.try_recv()) is None:
        select.select([sub.fileno()], [], [])
    return data


BY_ITSELF: dict[str, Receiving] = {
    "recv": lambda sub: sub.recv(),
    "recv_message": lambda sub: sub.recv_message(),
    "recv_messages": lambda sub: sub.recv_messages(8, timeout=None),
    "recv_many": lambda sub: sub.recv_many(8, timeout=None),
    "recv_into": lambda sub: sub.recv_into(bytearray(64)),
    "borrow": lambda sub: sub.borrow().release(),
    "iteration": lambda sub: next(iter(sub)),
    "wait": lambda sub: rm.wait([sub]),
    "arecv": lambda sub: asyncio.run(sub.arecv()),
    "arecv_message": lambda sub: asyncio.run(sub.arecv_message()),
    "async for": lambda sub: asyncio.run(anext(aiter(sub))),
    "fileno": _fileno,
}
"""As a `Subscriber` and a `FrameSubscriber` have them."""
BY_SUBSCRIBER: dict[str, Receiving] = {**BY_ITSELF, "recv_batch": lambda sub: sub.recv_batch(8, timeout=None)}
BY_HISTORY = {name: call for name, call in BY_SUBSCRIBER.items() if name not in ("recv_into", "fileno")}


def receives(call: Receiving, kind: Callable[..., Any] = rm.Subscriber) -> Way:
    def prepared(case: Case) -> Call:
        sub = kind("t", spin=case.spin)
        sub.try_recv()
        return lambda: call(sub)

    return prepared


def receives_since(call: Receiving) -> Way:
    def prepared(case: Case) -> Call:
        sub: Any = rm.Subscriber("t", since=10, recording=recording_of("t", case))
        while not sub.live:  # past the seam
            sub.try_recv()
            time.sleep(0.001)
        return lambda: call(sub)

    return prepared


def receives_in_c(call: Callable[[face.Subscriber], object]) -> Way:
    def prepared(case: Case) -> Call:
        sub = face.Subscriber("t", spin=case.spin)
        sub.try_recv()
        return lambda: call(sub)

    return prepared


def _borrow_in_c(sub: face.Subscriber) -> None:
    with sub.borrow():
        pass


def updates(_: Case) -> Call:
    latest = rm.Latest({"t": None, "none": None})
    latest.update(0)
    return latest.update


def carries_from(_: Case) -> Call:
    bridge = rm.Bridge(rm.Subscriber("t"), rm.Publisher("u"))
    bridge.carry(timeout=0)
    return bridge.carry


def records(_: Case) -> Call:
    recorder = rm.Recorder(f"{os.environ['RINGMAIN_DIR']}/recorded", ["t"]).start()

    def call() -> None:
        while not recorder.status().messages:
            time.sleep(0.001)

    return call


def pops(_: Case) -> Call:
    queue = rm.SyncQueue("t", "we")
    queue.pop()
    return lambda: queue.pop(block=True)


RECEIVING: dict[str, Way] = {
    **{name: receives(call) for name, call in BY_SUBSCRIBER.items()},
    "Latest.update": updates,
    "Bridge.carry": carries_from,
    "Recorder": records,
    "ringmain_receive": receives_in_c(lambda sub: sub.recv()),
    "ringmain_borrow": receives_in_c(_borrow_in_c),
    "ringmain_wait_any": receives_in_c(lambda sub: face.wait([sub])),
}
SINCE: dict[str, Way] = {f"since=, {name}": receives_since(call) for name, call in BY_HISTORY.items()}
FROM_A_QUEUE: dict[str, Way] = {"SyncQueue.pop": pops}


def receives_frames_in_c(_: Case) -> Call:
    return face.FrameSubscriber("t").recv


FRAMES: dict[str, Way] = {
    **{f"FrameSubscriber.{name}": receives(call, rm.FrameSubscriber) for name, call in BY_ITSELF.items()},
    "Latest.update": updates,
    "ringmain_frame_receive": receives_frames_in_c,
}

# ---------------------------------------------------------------------------- for buffers, and for readers


def until_held(send: Call) -> None:
    """A frame that is not held when the next one wants its buffer is lost, and none waits for it."""
    for number in range(BUFFERS):
        send()
        while sum(rm.frame_topic("t").held.values()) <= number:
            time.sleep(0.001)


def fills_buffers(call: Callable[[rm.FramePublisher], object]) -> Way:
    def prepared(case: Case) -> Call:
        pub = rm.FramePublisher("t", size=len(FRAME), buffers=BUFFERS, spin=case.spin)
        until_held(lambda: pub.send(FRAME))
        return lambda: call(pub)

    return prepared


def fills_buffers_in_c(_: Case) -> Call:
    pub = face.FramePublisher("t", size=len(FRAME), buffers=BUFFERS)
    until_held(pub.send)
    return pub.send


def _frame(pub: rm.FramePublisher) -> None:
    with pub.frame() as frame:
        frame.data[:] = FRAME


def of_publisher(call: Callable[[rm.Publisher], object], **options: Any) -> Way:
    def prepared(case: Case) -> Call:
        pub = rm.Publisher("t", contract=case.contract, spin=case.spin, **options)  # type: ignore[arg-type]
        return lambda: call(pub)

    return prepared


def waits_for_readers_in_c(case: Case) -> Call:
    pub = face.Publisher("t", contract=case.contract)
    return lambda: pub.wait_for_readers(1)


def waits_for_readers_of_frames(_: Case) -> Call:
    pub = rm.FramePublisher("t", size=len(FRAME))
    return pub.wait_for_readers


def waits_for_servers(_: Case) -> Call:
    client = rm.Client("t")
    return client.wait_for_servers


BUFFERS_FREE: dict[str, Way] = {
    "FramePublisher.send": fills_buffers(lambda pub: pub.send(FRAME)),
    "FramePublisher.frame": fills_buffers(_frame),
    "ringmain_frame_begin": fills_buffers_in_c,
}
READERS: dict[str, Way] = {
    "wait_for_readers": of_publisher(lambda pub: pub.wait_for_readers()),
    "send, min_readers=1": of_publisher(lambda pub: pub.send(MESSAGE), min_readers=1),
    "asend, min_readers=1": of_publisher(lambda pub: asyncio.run(pub.asend(MESSAGE)), min_readers=1),
    "FramePublisher.wait_for_readers": waits_for_readers_of_frames,
    "Client.wait_for_servers": waits_for_servers,
    "ringmain_wait_for_readers": waits_for_readers_in_c,
}

# ---------------------------------------------------------------------------------- requests and replies


def requests(call: Callable[[rm.Client[bytes, bytes]], object]) -> Way:
    """A reply, or the word that there will be none."""

    def prepared(case: Case) -> Call:
        client = rm.Client("t", spin=case.spin)
        if case.by == "request room":
            with suppress(rm.Busy, rm.Full):
                for _ in range(1000):
                    client.submit(bytes(500), room_timeout=0)

        def answered() -> None:
            with suppress(rm.ServerGone):
                call(client)

        return answered

    return prepared


def _reserve(client: rm.Client[bytes, bytes]) -> bytes:
    with client.reserve(len(MESSAGE)) as draft:
        draft.buffer[:] = MESSAGE
    return draft.result()


async def _acall(client: rm.Client[bytes, bytes]) -> bytes:
    return await client.acall(MESSAGE)


def serves_with(call: Callable[[rm.Server[bytes, bytes]], object]) -> Way:
    def prepared(case: Case) -> Call:
        server = rm.Server("t", spin=case.spin)
        server.take(timeout=0)

        def seen() -> None:
            with suppress(KeyboardInterrupt):
                call(server)

        return seen

    return prepared


def _has_seen(_: object) -> Any:
    raise KeyboardInterrupt  # no handler's mistake, and no request that fails


REQUESTING: dict[str, Way] = {
    "Client.call": requests(lambda client: client.call(MESSAGE)),
    "Client.acall": requests(lambda client: asyncio.run(_acall(client))),
    "Client.submit": requests(lambda client: client.submit(MESSAGE).result()),
    "Client.map": requests(lambda client: list(client.map([MESSAGE]))),
    "Client.reserve": requests(_reserve),
}
SERVING: dict[str, Way] = {
    "Server.take": serves_with(lambda server: server.take()),
    "Server.batches": serves_with(lambda server: next(server.batches())),
    "Server.serve": serves_with(lambda server: server.serve(_has_seen)),
    "Server.serve_batches": serves_with(lambda server: server.serve_batches(_has_seen)),
    "Server, iteration": serves_with(lambda server: next(iter(server))),
    "Server, async for": serves_with(lambda server: asyncio.run(anext(aiter(server)))),
}

# ------------------------------------------------------------------------------------- to be a participant

JOINING: dict[str, Way] = {
    "open a publisher": lambda case: lambda: rm.Publisher("t", contract=case.contract),  # type: ignore[arg-type]
    "open a subscriber, which receives": lambda _: lambda: rm.Subscriber("t").try_recv(),
}

WAITING: dict[str, dict[str, Way]] = {
    "turn": {**SENDING, **OF_A_QUEUE},
    "hold": {**SENDING, **OF_A_QUEUE},
    "roster": JOINING,
    "message": {**RECEIVING, **SINCE, **FROM_A_QUEUE},
    "buffers": BUFFERS_FREE,
    "frame": FRAMES,
    "server": REQUESTING,
    "reply": REQUESTING,
    "request": SERVING,
    "request turn": REQUESTING,
    "request room": REQUESTING,
    "reader": READERS,
}

ELSEWHERE = {
    "Bridge": "how long `Bridge.carry` waits for room",
    "bridge": "how long `Bridge.carry` waits for room",
    "MessageStream": "what `Publisher.stream` gives",
    "Recording.batches": "looks into files every so often: no process is in the way",
    "WindowStream": "looks into files every so often: no process is in the way",
}
"""Public calls with a timeout in which no survivor waits, and why."""
ELSEWHERE_ALL = {
    "ringmain.backends": "protocols, without code; `wait` is `ringmain.wait`",
    "ringmain.backends.fake": "within one process",
    "ringmain.backends.zmq": "no memory is shared, so nobody is in the way of another",
    "ringmain.compat.msgq": "its sockets and poller wait in `Subscriber.recv` and `ringmain.wait`, events for a test",
    "ringmain.compat.msgq.visionipc": "waits in `FrameSubscriber.recv`",
    "ringmain.testing": "within one process, or by files that a test writes",
}
"""Whole modules."""
