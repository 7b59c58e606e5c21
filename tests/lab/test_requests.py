"""Servers and clients die at every step of a request at which one can die, and the others go on.

How: real processes are killed (SIGKILL) at each crash point of a request (`serve:` and `call:`), the first time and
later: the first reply to a client joins its topic, the later ones do not. Which server has a request is
certain, because the next one is started when the victim is dead. Each test prints how long the survivor waited.
"""

from __future__ import annotations

import importlib
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import ringmain as rm
from ringmain.testing import die_at
from tests.conftest import PATIENCE_S, Child

POINTS = importlib.import_module("ringmain._ring_lab").CRASH_POINTS
TAKEN, ANSWERED = SERVER_POINTS = [label for label in POINTS if label.startswith("serve:")]
CLIENT_POINTS = [label for label in POINTS if label.startswith("call:")]
PAGE = Path(__file__).parents[2] / "docs" / "internals" / "killed.md"
LONG_S = 100.0
"""Of a call: one that waited for it would raise `Timeout`, and fail its test."""
GONE = "service 'infer': the server that had the request died, or left without an answer"

StartChild = Callable[..., Child]
InThread = Callable[..., Callable[[], Any]]
Until = Callable[[Callable[[], object]], None]

SERVER = """
with rm.Server("infer", name=sys.argv[1]) as server:
    say("ready")
    for request in server:
        data = request.data
        say(data.decode())
        if data == b"fail": request.fail("told to")
        else: request.reply(sys.argv[1].encode() + b" did " + data)
"""
CLIENT = """
with rm.Client("infer", name="victim") as client:
    while True: client.call(b"abc")
"""


@pytest.fixture(autouse=True)
def clean_up(runtime_dir: Path) -> Iterator[None]:
    yield
    rm.clean()  # the servers were killed
    with suppress(rm.TopicNotFound):
        rm.unlink("infer")


def start_server(child: StartChild, name: str, **options: Any) -> Child:
    server = child(SERVER, name, **options)
    assert server.line() == "ready"
    return server


def wait_until_dead(victim: Child) -> float:
    """When it was dead."""
    assert victim.process.wait(PATIENCE_S) == -signal.SIGKILL
    return time.monotonic()


def outcome(called: Callable[[], bytes]) -> bytes | str:
    try:
        return called()
    except rm.ServerGone as gone:
        return str(gone)


@pytest.mark.parametrize("retry", [False, True], ids=["at most once", "retry"])
@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("label", SERVER_POINTS)
def test_a_server_dies_and_the_client_has_its_outcome(
    child: StartChild, in_thread: InThread, label: str, nth: int, retry: bool
) -> None:
    with rm.Client("infer") as client, rm.Client("infer") as bystander:
        victim = start_server(child, "victim", env=die_at(label, nth))
        for _ in range(nth - 1):
            assert client.call(b"first", timeout=LONG_S) == b"victim did first"
        called = in_thread(lambda: client.call(b"last", timeout=LONG_S, retry=retry))
        died = wait_until_dead(victim)
        survivor = None
        if retry:
            survivor = start_server(child, "survivor")
            died = time.monotonic()
        expected = b"victim did last" if label == ANSWERED else b"survivor did last" if retry else GONE
        assert outcome(called) == expected
        print(f"{label}, {'retry' if retry else 'at most once'}: {1e3 * (time.monotonic() - died):.0f} ms")
        survivor = survivor or start_server(child, "survivor")
        for each in (client, bystander, client):
            assert each.call(b"next", timeout=LONG_S) == b"survivor did next"
        ran = [survivor.line() for _ in range(3 + retry)]
        assert ran == ["last"] * retry + ["next"] * 3  # without `retry` never a second time


@pytest.mark.parametrize("retry", [False, True], ids=["at most once", "retry"])
@pytest.mark.parametrize("label", SERVER_POINTS)
def test_one_of_two_servers_dies(child: StartChild, label: str, retry: bool) -> None:
    with rm.Client("infer") as client:
        survivor = start_server(child, "survivor")
        victim = start_server(child, "victim", env=die_at(label, 3))
        outcomes = []
        while victim.process.poll() is None:
            outcomes.append(outcome(lambda: client.call(b"work", timeout=LONG_S, retry=retry)))
        assert outcomes.count(GONE) == (label == TAKEN and not retry)
        assert client.call(b"work", timeout=LONG_S) == b"survivor did work"
        assert survivor.process.poll() is None


@pytest.mark.parametrize("request_", [b"work", b"fail"])
def test_a_server_that_answers_for_a_dead_one_dies_too(child: StartChild, in_thread: InThread, request_: bytes) -> None:
    """The second one tells the client that the first is gone, and dies before the request is done. The third tells it
    again, and the client must not take that for the reply to its next request."""
    with rm.Client("infer") as client:
        first = start_server(child, "first", env=die_at(TAKEN))
        called = in_thread(lambda: client.call(request_, timeout=LONG_S))
        wait_until_dead(first)
        second = start_server(child, "second", env=die_at(ANSWERED))
        wait_until_dead(second)
        assert outcome(called) == GONE
        third = start_server(child, "third")
        assert client.call(b"next", timeout=LONG_S) == b"third did next"
        assert third.line() == "next"


@pytest.mark.parametrize("nth", [1, 2])
def test_a_server_dies_as_it_fails_a_request(child: StartChild, in_thread: InThread, nth: int) -> None:
    with rm.Client("infer") as client:
        victim = start_server(child, "victim", env=die_at(ANSWERED, nth))
        for _ in range(nth):
            with pytest.raises(rm.RequestFailed, match="told to"):
                client.call(b"fail", timeout=LONG_S)
        wait_until_dead(victim)
        start_server(child, "survivor")
        assert client.call(b"next", timeout=LONG_S) == b"survivor did next"


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("label", CLIENT_POINTS)
def test_a_client_that_dies_costs_the_server_nothing(
    child: StartChild, in_thread: InThread, until: Until, label: str, nth: int
) -> None:
    with rm.Server("infer") as server, rm.Client("infer") as client:
        served = in_thread(server.serve, bytes.upper)
        victim = child(CLIENT, env=die_at(label, nth))
        died = wait_until_dead(victim)
        assert client.call(b"def", timeout=LONG_S) == b"DEF"
        print(f"{label}: {1e3 * (time.monotonic() - died):.1f} ms")
        until(lambda: rm.info("infer").waiting == 0 and rm.info("infer").readers[0].taken == 0)
        server._rounds = -1  # all of the upkeep is due
        until(lambda: not any("victim" in topic.name for topic in rm.topics()))
        assert server._replies.unsent == 0
        assert client.call(b"def", timeout=LONG_S) == b"DEF"
        server.close()
        served()


def test_every_point_of_a_request_is_in_the_table() -> None:
    section = PAGE.read_text().split("\n## Requests\n", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^\| `([a-z]+: [^`]+)` \|", section, re.MULTILINE) == [*SERVER_POINTS, *CLIENT_POINTS]
