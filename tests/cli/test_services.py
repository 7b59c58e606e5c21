"""`ringmain call`, and what `list`, `info`, `top` and `doctor` say of a service."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

import ringmain as rm
from ringmain._cli.live import view
from ringmain._cli.live.model import Model
from ringmain._cli.live.source import Topics
from ringmain._cli.main import load


class Observation(msgspec.Struct):
    x: float


class Action(msgspec.Struct):
    y: float


@pytest.fixture
def infer() -> Iterator[rm.Server[Observation, Action]]:
    """A service that divides 10 by x, in a thread."""
    with rm.Server("infer", request=Observation, reply=Action, name="gpu0") as server:
        thread = threading.Thread(target=server.serve, args=(lambda request: Action(10 / request.x),))
        thread.start()
        yield server
        server.close()
        thread.join()


def test_call_prints_the_reply(ringmain, infer):
    ended = ringmain("call", "infer", '{"x": 4}')
    assert (ended.code, ended.out) == (0, "y: 2.5\n")
    assert json.loads(ringmain("call", "infer", '{"x": 5}', "--json", "--timeout", "60").out) == {"y": 2.0}


@pytest.mark.parametrize("line", [line for _, line in load("call").EXAMPLES])
def test_the_examples_of_call_run(line, infer):
    with rm.Server("echo") as server:
        thread = threading.Thread(target=server.serve, args=(bytes.upper,))
        thread.start()
        line = line.replace("ringmain", f"{sys.executable} -m ringmain", 1)
        ended = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout in ("y: 6.666666666666667\n", "HELLO\n", "6.666666666666667\n")
        server.close()
        thread.join()


def test_call_says_what_went_wrong_in_one_sentence(ringmain, infer):
    for request, code, words in (
        (("infer", '{"x": 0}'), 1, "ZeroDivisionError"),
        (("infer", '{"z": 0}'), 2, "does not fit the type Observation"),
        (("no.server", "{}"), 3, "there is no service 'no.server'"),
    ):
        ended = ringmain("call", *request)
        assert (ended.code, ended.out) == (code, "")
        assert words in ended.err
        assert len(ended.err.splitlines()) == 1


def test_call_times_out(ringmain):
    with rm.Server("slow") as server:
        ended = ringmain("call", "slow", "x", "--timeout", "0.05")
        assert ended.code == 4
        assert "none has taken it yet" in ended.err
        assert server.take(1, timeout=0) == []


def test_call_of_a_service_without_types(ringmain):
    with rm.Server("echo") as server:
        thread = threading.Thread(target=server.serve, args=(bytes.upper,))
        thread.start()
        assert ringmain("call", "echo", "abc").out == "ABC\n"
        assert ringmain("call", "echo", "616263", "--hex", "--json").out == '"ABC"\n'
        server.close()
        thread.join()


def used(infer: rm.Server[Observation, Action]) -> None:
    """Call it until its server has reported."""
    with rm.Client("infer", request=Observation, reply=Action) as client:
        while rm.service("infer").handler_p99_us == 0:
            client.call(Observation(1), timeout=60)


def test_list_and_info_show_services(ringmain, infer):
    used(infer)
    with rm.Client("infer", request=Observation, reply=Action) as client:
        client.call(Observation(1), timeout=60)
        out = ringmain("list").out
        assert [line.split()[0] for line in out.splitlines() if line] == ["TOPIC", "infer", "SERVICE", "infer"]
        assert out.splitlines()[-1].split()[1:5] == ["Observation", "Action", "1", "1"]
        assert "infer.servers" in ringmain("list", "--all").out
        assert ringmain("list", "--services", "--names").out == "infer\n"
        (told,) = json.loads(ringmain("list", "--services", "--json").out)
        assert (told["clients"], told["request"], told["servers"][0]["name"]) == (1, "Observation", "gpu0")
        info = ringmain("info", "infer").out
        assert "service infer: Observation -> Action" in info
        assert "handler   " in info
        assert json.loads(ringmain("info", "infer", "--json").out)["service"]["clients"] == 1
    assert ringmain("list", "--services", "other").err == "no services\n"


def test_doctor_says_how_a_service_is(ringmain, infer):
    used(infer)
    out = ringmain("doctor", "infer", "--interval", "0.01").out
    assert "1 servers, 0 clients, 0 requests wait, 0 in flight" in out
    assert "in the handler " in out


def test_top_shows_a_service_in_one_row(infer):
    used(infer)
    model = Model()
    model.look(Topics().look())
    (row,) = model.rows()
    assert row.info.name == "infer"
    assert "0 clients, 0 in flight, queue " in view.cells(row)[-1]
    assert "service infer: Observation -> Action" in view.details(row, time.time_ns())


SERVER = """
import msgspec
class Observation(msgspec.Struct): x: float
class Action(msgspec.Struct): y: float
with rm.Server("infer", request=Observation, reply=Action) as server:
    say("open"); hear()
"""


def test_a_service_without_servers_has_types(ringmain, child):
    server = child(SERVER)
    assert server.line() == "open"
    with rm.Client("infer", request=Observation, reply=Action):
        server.kill()
        (told,) = json.loads(ringmain("list", "--services", "--json").out)
        assert (told["servers"], told["request"], told["reply"]) == ([], "Observation", "Action")
        assert "service infer: Observation -> Action\n  servers   none" in ringmain("info", "infer").out
    rm.clean()


def test_a_service_of_a_similar_name_is_suggested(ringmain, infer):
    ended = ringmain("call", "infr", "{}")
    assert ended.code == 3
    assert "; did you mean 'infer'?" in ended.err
