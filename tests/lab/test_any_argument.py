"""Whatever is given as a name, a size, a timeout or a word: the native ring and the plain model answer alike, and an
error is one that a user can catch.

How: Hypothesis makes up arguments, most of them near the edges of what is allowed; each call is made on the ring in
shared memory and on the fake one, and what comes back is compared: the value, or the kind of error. Orders of
operations are in tests/ring/test_reference.py, which does the same with whole programs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, example, given, settings

import ringmain as rm
from ringmain.backends.fake import _world as worlds
from ringmain.testing import World

EXAMPLES = int(os.environ.get("RINGMAIN_EXAMPLES", "100"))
quickly = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
# A topic as the documentation says it: parts of letters, digits, "-", "_" and ".", none "." or "..", 200 characters.
TOPIC = re.compile(r"(?!.{201})(?!\.{1,2}(/|\Z))[A-Za-z0-9_.-]+(/(?!\.{1,2}(/|\Z))[A-Za-z0-9_.-]+)*\Z", re.DOTALL)
ERRORS = (rm.RingmainError, ValueError, TypeError, OverflowError, BufferError)

names = st.one_of(
    st.text(max_size=20),
    st.text("ab/.-_+ \0ä", max_size=12),
    st.integers(195, 205).map(lambda n: "x" * n),
    st.sampled_from(["a/b", "a/../b", "...", "a//b"]),
)
numbers = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-5, 5000),
    st.sampled_from([2**k + d for k in (12, 31, 32, 63, 64) for d in (-1, 0, 1)]),
)
anything = st.one_of(st.none(), st.booleans(), numbers, st.floats(), st.text(max_size=5), st.binary(max_size=5))
seconds = st.one_of(
    st.sampled_from([0, 0.0, -0.0, -1, -1e-9, float("nan"), float("-inf"), "1", b"0", [], 0.001]), st.none()
)
words = st.one_of(
    st.text(max_size=10), st.integers(250, 260).map(lambda n: "k" * n), st.text("ä\0€", max_size=130), anything
)


def answer(do: Callable[[str], Any], backend: str) -> Any:
    try:
        return do(backend)
    except ERRORS as error:
        known = (rm.RingmainError, ValueError, TypeError, OverflowError, BufferError)
        return next(type(error) if kind is rm.RingmainError else kind for kind in known if isinstance(error, kind))


def alike(do: Callable[[str], Any]) -> Any:
    """Does it on both; they must answer the same."""
    world = World()
    worlds.push(world)
    try:
        real, fake = answer(do, "shm"), answer(do, "fake")
    finally:
        worlds.pop(world)
    assert real == fake, f"shm answered {real!r}, the model {fake!r}"
    return real


@given(name=st.one_of(names, anything))
@example(name="a\n")
@quickly
def test_names(name: Any) -> None:
    def do(backend: str) -> str:
        with rm.Publisher(name, capacity=4096, backend=backend) as pub:
            return pub.topic

    found = alike(do)
    if isinstance(name, str):
        assert found == (name if TOPIC.match(name) else rm.InvalidArgument)
    else:
        assert found is TypeError


@given(
    capacity=st.one_of(
        st.integers(-10, 1 << 22), st.sampled_from(["4KiB", "1 MiB", "0", "", "x", "-4KiB", "1e3"]), anything
    )
)
@quickly
def test_capacities(capacity: Any) -> None:
    if isinstance(capacity, (int, float)) and capacity > 1 << 22:
        capacity = -capacity  # that much memory is for test_load.py

    def do(backend: str) -> tuple[int, int]:
        with rm.Publisher("t", capacity=capacity, backend=backend) as pub:
            return pub.capacity, pub.max_message_bytes

    found = alike(do)
    if isinstance(found, tuple) and isinstance(capacity, int):
        assert found[0] >= capacity
        assert found[0] & (found[0] - 1) == 0


@given(timeout=seconds, data=st.one_of(st.binary(max_size=5000), anything), kind=words, sender=words)
@example(timeout=0, data=b"", kind=None, sender=None)
@quickly
def test_sending_and_receiving(timeout: Any, data: Any, kind: Any, sender: Any) -> None:
    def do(backend: str) -> list[Any]:
        options: dict[str, Any] = {"backend": backend}
        if sender is not None:
            options["sender"] = sender
        with (
            rm.Publisher("t", contract="reliable", capacity=4096, **options) as pub,
            rm.Subscriber("t", backend=backend) as sub,
        ):
            sent = answer(lambda _: pub.send(data, kind, timeout=timeout), backend)
            message = sub.try_recv_message()
            if message is None:
                return [sent]
            # None waits without a limit, and no more messages come.
            empty = answer(lambda _: sub.recv(timeout=0 if timeout is None else timeout), backend)
            return [sent, message.data, message.kind, message.sender, message.seq, empty]

    found = alike(do)
    if isinstance(found, list) and len(found) > 1:
        assert found[1] == bytes(data)


@given(most=st.one_of(numbers, anything), room=st.one_of(st.integers(-3, 5000), anything))
@example(most=0, room=-1)
@example(most=0, room=2**70)
@example(most=2**70, room=0)
@quickly
def test_counts_and_reservations(most: Any, room: Any) -> None:
    def do(backend: str) -> list[Any]:
        with (
            rm.Publisher("t", contract="reliable", capacity=4096, backend=backend) as pub,
            rm.Subscriber("t", backend=backend) as sub,
        ):

            def reserve(_: str) -> int:
                with pub.reserve(room, timeout=0) as buffer:
                    buffer[:] = bytes(len(buffer))
                    return len(buffer)

            return [answer(reserve, backend), answer(lambda _: sub.recv_many(most), backend)]

    alike(do)
