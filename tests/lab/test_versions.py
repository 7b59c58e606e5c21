"""Two builds of ringmain on one topic: of one layout they work together, of two the second is told both versions.

How: a process of each build does what a test tells it. `make test-versions` runs this with the wheels of older states
and of this one, each with each, in both orders; elsewhere this build is on both sides, which shows that the tests work.
"""

from __future__ import annotations

import ast
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import contracts

PATIENCE_S = 30
# Each line is a program, which prints what it leaves in `answer`, or the error that it ended with.
ACTOR = """
import ast, sys
import ringmain as rm
from ringmain import _native
names = {"rm": rm, "layout": _native.LAYOUT["version"]}
for line in sys.stdin:
    names["answer"] = None
    try: exec(ast.literal_eval(line), names)
    except Exception as error: names["answer"] = type(error).__name__, str(error)
    print(repr(names["answer"]), flush=True)
for one in [*names.values()]:
    if hasattr(one, "close"): one.close()
"""
OTHERS = os.environ.get("RINGMAIN_PYTHONS")  # NAME=PYTHON,NAME=PYTHON
BUILDS = dict(one.split("=", 1) for one in OTHERS.split(",")) if OTHERS else {"this": sys.executable}
PAIRS = list(itertools.permutations(BUILDS, 2)) or [("this", "this")]


class Actor:
    def __init__(self, build: str) -> None:
        self._process = subprocess.Popen(
            [BUILDS[build], "-c", ACTOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.layout: int = self("answer = layout")

    def __call__(self, program: str) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(repr(program) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"it ended with {self._process.wait()} at: {program}"
        return ast.literal_eval(answer)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        self._process.communicate(timeout=PATIENCE_S)


Pair = tuple[Actor, Actor]


@pytest.fixture(params=PAIRS, ids=" then ".join)
def pair(request: pytest.FixtureRequest, runtime_dir: Path) -> Iterator[Pair]:
    """The one that makes topics, and the one that comes second."""
    first, second = (Actor(build) for build in request.param)
    yield first, second
    second.end()
    first.end()


@pytest.fixture
def alike(pair: Pair) -> Pair:
    if pair[0].layout != pair[1].layout:
        pytest.skip(f"layouts {pair[0].layout} and {pair[1].layout}: the second is refused")
    return pair


def test_the_second_of_another_layout_is_told_both_versions_and_the_first_does_not_notice(pair: Pair) -> None:
    first, second = pair
    if first.layout == second.layout:
        pytest.skip(f"both have layout {first.layout}")
    assert first("pub = rm.Publisher('t', contract='reliable'); sub = rm.Subscriber('t')") is None
    for call in ("rm.Subscriber('t').try_recv()", "rm.Publisher('t', contract='reliable')", "rm.info('t')"):
        name, sentence = second(call)
        assert name == "Corrupt"
        assert f"its layout is version {first.layout}, this ringmain supports version {second.layout}" in sentence
    assert second("answer = [topic.name for topic in rm.topics()], rm.clean()") == ([], [])
    assert first("pub.send(b'goes on', timeout=30); answer = sub.recv(timeout=30)") == b"goes on"
    assert first("answer = [topic.name for topic in rm.topics()]") == ["t"]
    # Beside it, the second has topics of its own, and does not disturb.
    assert second("with rm.Publisher('own') as own: own.send(b'x')") is None
    assert first("answer = rm.clean()") == []


GOT = """
answer = []
while len(answer) < {1}:
    answer += [(m.seq, bytes(m.data), m.kind, m.lost) for m in {0}.recv_messages({1}, timeout=30)]"""


@pytest.mark.parametrize("contract", contracts.ALL)
def test_messages_go_both_ways(alike: Pair, contract: str) -> None:
    first, second = alike
    assert first(f"there = rm.Publisher('there', contract={contract!r}); back = rm.Subscriber('back')") is None
    assert second(f"there = rm.Subscriber('there'); back = rm.Publisher('back', contract={contract!r})") is None
    assert first("there.send_many([b'%d' % number for number in range(100)])") is None
    assert second(GOT.format("there", 100)) == [(number, b"%d" % number, "", 0) for number in range(100)]
    assert second("with back.reserve(4000) as room:\n room[:3] = b'abc'; room.truncate(3)") is None
    assert second("back.send(b'last', kind='a')") is None
    assert first("with back.borrow(timeout=30) as m: answer = bytes(m.data), m.seq") == (b"abc", 0)
    assert first(GOT.format("back", 1)) == [(1, b"last", "a", 0)]
    listed = "answer = sorted((t.name, t.contract, len(t.writers), len(t.readers)) for t in rm.topics())"
    assert first(listed) == second(listed) == [("back", contract, 1, 1), ("there", contract, 1, 1)]


@pytest.mark.parametrize("victim", [0, 1])
def test_the_other_goes_on_where_one_is_killed_in_the_middle_of_a_message(alike: Pair, victim: int) -> None:
    dies, goes_on = alike[victim], alike[1 - victim]
    for actor in alike:
        assert actor("pub = rm.Publisher('t', contract='reliable', capacity=4096); sub = rm.Subscriber('t')") is None
    assert dies("pub.send(b'whole'); writing = pub.reserve(100); writing.__enter__()") is None
    dies.kill()
    # More than fits: neither its turn nor its place as a reader stops anybody.
    rounds = "for _ in range(50):\n pub.send(bytes(400), timeout=30); answer = sub.recv(timeout=30)"
    assert goes_on(rounds) == bytes(400)
    assert goes_on("answer = len(rm.info('t').readers), sub.lost") == (1, 0)


def test_frames_and_requests_go_both_ways(alike: Pair) -> None:
    for serves, asks in (alike, alike[::-1]):
        assert serves("frames = rm.FramePublisher('f', (2, 3), 'u1'); server = rm.Server('s')") is None
        assert asks("seen = rm.FrameSubscriber('f'); client = rm.Client('s'); future = client.submit(b'2')") is None
        assert serves("for one in server.take(1, timeout=30): one.reply(bytes(one.data) * 2)") is None
        assert asks("answer = bytes(future.result(timeout=30))") == b"22"
        assert serves("with frames.frame() as out: out.array[:] = 7") is None
        assert asks("with seen.recv(timeout=30) as frame: answer = frame.array.tolist()") == [[7, 7, 7], [7, 7, 7]]
        assert asks("seen.close(); client.close()") is None
        assert serves("frames.close(); server.close()") is None


def test_recordings_are_read_by_the_other_or_refused_with_both_versions(pair: Pair, tmp_path: Path) -> None:
    for number, (records, reads) in enumerate((pair, pair[::-1])):
        where = str(tmp_path / str(number))
        recorder = f"with rm.Publisher('t') as pub, rm.Recorder({where!r}, ['t']): pub.send(b'kept')"
        assert records(recorder) is None
        found = reads(f"""
from ringmain.recording import Recording
answer = [bytes(m.data) for m in Recording({where!r}).messages()]""")
        assert found == [b"kept"] or "version" in found[1], found
