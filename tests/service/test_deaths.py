"""Clients and servers are killed at every stage of a request. The others get their replies, or an error at once.

The calls have long timeouts: one that waited for it would raise `Timeout`, and fail its test.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import ringmain as rm
from ringmain._service import _replies
from tests.conftest import PATIENCE_S, Child

LONG_S = 100.0
StartChild = Callable[..., Child]
InThread = Callable[..., Callable[[], Any]]
Until = Callable[[Callable[[], object]], None]

# Says what it takes. What it then does, the request says: it is killed in `hang`, or kills itself.
SERVER = """
import signal
def die(): os.kill(os.getpid(), signal.SIGKILL)
with rm.Server("infer", name=sys.argv[1]) as server:
    say("ready")
    for request in server:
        data = request.data
        say(data.decode())
        if data == b"hang":
            hear()
        elif data == b"die before the reply":
            die()
        elif data == b"die after the reply":
            server._replies.send(request.client, request.number, b"replied")
            die()
        elif data == b"die after done":
            request.reply(b"replied")
            die()
        elif data == b"die while writing":
            with request.reserve(100): die()
        else:
            request.reply(sys.argv[1].encode() + b" did " + data)
"""


@pytest.fixture(autouse=True)
def clean_up(runtime_dir: Path) -> Iterator[None]:
    """The topics of processes that were all killed stay until a process cleans up; unanswered requests stay longer."""
    yield
    rm.clean()
    with suppress(rm.TopicNotFound):
        rm.unlink("infer")


def start_server(child: StartChild, name: str) -> Child:
    server = child(SERVER, name)
    assert server.line() == "ready"
    return server


@pytest.mark.parametrize("another", [False, True], ids=["alone", "with another server"])
@pytest.mark.parametrize("request_", ["die before the reply", "die while writing"])
def test_a_server_that_dies_with_a_request(child: StartChild, request_: str, another: bool) -> None:
    with rm.Client("infer") as client:
        victim = start_server(child, "victim")
        future = client.submit(request_.encode(), timeout=LONG_S)
        assert victim.line() == request_
        if another:
            other = start_server(child, "other")
        with pytest.raises(rm.ServerGone, match="the server that had the request died"):
            future.result(LONG_S)
        if another:  # it was not run a second time
            assert client.call(b"work", timeout=LONG_S) == b"other did work"
            assert other.line() == "work"


@pytest.mark.parametrize("request_", ["die after the reply", "die after done"])
def test_a_server_that_dies_after_its_reply(child: StartChild, request_: str) -> None:
    with rm.Client("infer") as client:
        victim = start_server(child, "victim")
        assert client.call(request_.encode(), timeout=LONG_S) == b"replied"
        assert victim.process.wait(PATIENCE_S) == -signal.SIGKILL
        other = start_server(child, "other")
        assert client.call(b"work", timeout=LONG_S) == b"other did work"
        assert other.line() == "work"


def test_kill_while_it_computes_in_a_call(child: StartChild, in_thread: InThread) -> None:
    with rm.Client("infer") as client:
        victim = start_server(child, "victim")
        called = in_thread(lambda: client.call(b"hang", timeout=LONG_S))
        assert victim.line() == "hang"
        victim.kill()
        with pytest.raises(rm.ServerGone):
            called()


def test_with_retry_another_server_runs_it(child: StartChild) -> None:
    with rm.Client("infer") as client:
        victim = start_server(child, "victim")
        future = client.submit(b"hang", timeout=LONG_S, retry=True)
        assert victim.line() == "hang"
        victim.kill()
        with rm.Server("infer") as server:
            request = next(server)
            assert (request.data, request.redelivered) == (b"hang", 1)
            request.reply(b"done")
            assert future.result(LONG_S) == b"done"


def test_a_request_that_kills_every_server_is_given_up(child: StartChild, until: Until) -> None:
    with rm.Client("infer") as client:
        future = client.submit(b"die before the reply", timeout=LONG_S, retry=True)
        for name in "abc":
            assert start_server(child, name).process.wait(PATIENCE_S) == -signal.SIGKILL
        start_server(child, "d")
        with pytest.raises(rm.ServerGone):
            future.result(LONG_S)
        assert client.call(b"work", timeout=LONG_S) == b"d did work"


def test_an_idle_server_dies_and_the_next_one_serves(child: StartChild) -> None:
    with rm.Client("infer") as client:
        start_server(child, "a").kill()
        future = client.submit(b"work", timeout=LONG_S)
        start_server(child, "b")
        assert future.result(LONG_S) == b"b did work"


def test_several_servers_share_the_requests(child: StartChild) -> None:
    with rm.Client("infer") as client:
        servers = [start_server(child, name) for name in "abc"]
        assert client.wait_for_servers(3, timeout=PATIENCE_S) == 3
        hung = [client.submit(b"hang", timeout=LONG_S, retry=True) for _ in range(2)]
        done = {client.call(b"work %d" % i, timeout=LONG_S)[:1] for i in range(20)}
        assert len(done) == 1  # the one that has no other request
        for server in servers:
            server.tell()
        assert [each.exception(0) for each in hung if each.done()] == []


# ------------------------------------------------------------------------------------------------ clients

CLIENT = """
with rm.Client("infer", name="victim") as client:
    if sys.argv[1] == "before it sends": say("ready"); hear()
    client.submit(sys.argv[1].encode())
    if sys.argv[1] == "before the reply": say("ready"); hear()
    say(client.call(b"second"))
    say("ready"); hear()
"""


def topics() -> list[str]:
    return [topic.name for topic in rm.topics()]


@pytest.mark.parametrize("stage", ["before it sends", "before the reply", "after a reply"])
def test_a_client_that_dies_costs_the_server_nothing(
    child: StartChild, in_thread: InThread, until: Until, stage: str
) -> None:
    with rm.Server("infer") as server:
        victim = child(CLIENT, stage)
        request = None
        if stage == "after a reply":
            for _ in range(2):
                next(server).reply(b"reply")
        assert victim.line().startswith("ready" if stage != "after a reply" else "b'reply'")
        if stage == "before the reply":
            request = next(server)
        victim.kill()
        if request is not None:
            request.reply(b"for a client that died")
        with rm.Client("infer") as client:
            served = in_thread(server.serve, bytes.upper)
            assert client.call(b"abc", timeout=LONG_S) == b"ABC"
            server._rounds = -1  # all of the upkeep is due
            until(lambda: not any("victim" in name for name in topics()))
            server.close()
            served()


def test_a_client_that_is_killed_while_it_writes(child: StartChild, in_thread: InThread) -> None:
    writer = child("""
        with rm.Client("infer") as client:
            with client.reserve(100): say("ready"); hear()
    """)
    assert writer.line() == "ready"
    writer.kill()
    with rm.Server("infer") as server, rm.Client("infer") as client:
        served = in_thread(server.serve, bytes.upper)
        assert client.call(b"abc", timeout=LONG_S) == b"ABC"
        server.close()
        served()


def test_all_are_killed_and_new_ones_go_on(child: StartChild, runtime_dir: Path) -> None:
    with rm.Client("infer") as client:
        client.submit(b"left behind", timeout=0.001)
        victim = start_server(child, "victim")
        client.submit(b"hang")
        assert victim.line() in ("hang", "left behind")
        victim.kill()
        with rm.Server("infer") as server:
            future = client.submit(b"abc", timeout=LONG_S)
            request = next(server)
            assert request.data == b"abc"
            request.reply(b"ABC")
            assert future.result(LONG_S) == b"ABC"


# --------------------------------------------------------------------------------------------------- fork


def in_fork(work: Callable[[], bytes]) -> bytes:
    """What the function returns in a forked child."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, work())
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        text = said.read()
    os.waitpid(pid, 0)
    return text


@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_a_client_inherited_by_fork_is_another_client(child: StartChild) -> None:
    start_server(child, "a")
    with rm.Client("infer") as client:
        assert client.call(b"1", timeout=LONG_S) == b"a did 1"

        def in_child() -> bytes:
            before = client.id
            reply = client.call(b"2", timeout=LONG_S)
            assert client.id != before
            client.close()
            return reply

        assert in_fork(in_child) == b"a did 2"
        assert client.call(b"3", timeout=LONG_S) == b"a did 3"


@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_a_server_inherited_by_fork_is_another_server() -> None:
    with rm.Server("infer") as server, rm.Client("infer") as client:
        client._send(b"parent's")
        kept = next(server)
        call = client._send(b"child's", LONG_S)

        def in_child() -> bytes:
            request = next(server)
            data = request.data
            request.reply(b"from the child")
            server.close()
            return data

        assert in_fork(in_child) == b"child's"
        assert client._outcome(call) == b"from the child"
        assert not kept.answered
        kept.reply(b"")


# ------------------------------------------------------------------------------------------------- many

MANY = """
from contextlib import ExitStack
with ExitStack() as stack:
    clients = [stack.enter_context(rm.Client("infer", capacity="256KiB")) for _ in range(int(sys.argv[1]))]
    say("ready")
    hear()
    say(all(client.call(b"%d" % i, timeout=300) == b"%d" % i for i, client in enumerate(clients)))
    hear()
"""


@pytest.mark.descriptors(8192)
def test_a_thousand_clients_of_one_server(child: StartChild, in_thread: InThread) -> None:
    with rm.Server("infer") as server:
        served = in_thread(server.serve, bytes.upper)
        children = [child(MANY, 250) for _ in range(4)]
        for each in children:
            assert each.line(LONG_S) == "ready"
        there = rm.service("infer")
        assert there.clients == 1000
        for each in children:
            each.tell()
        for each in children:
            assert each.line(LONG_S) == "True"
        for each in children:
            each.tell()
        for each in children:
            each.finish(LONG_S)
        server.close()
        served()


def test_more_clients_than_a_server_keeps_open(monkeypatch: pytest.MonkeyPatch, in_thread: InThread) -> None:
    with rm.Server("infer") as server:
        monkeypatch.setattr(_replies, "_MOST_OPEN", 4)
        served = in_thread(server.serve, bytes.upper)
        clients = [rm.Client("infer") for _ in range(10)]
        for turn in range(3):
            for client in clients:
                assert client.call(b"a%d" % turn, timeout=LONG_S) == b"A%d" % turn
        assert len(server._replies.publishers) == 4
        for client in clients:
            client.close()
        server.close()
        served()
