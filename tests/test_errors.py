"""Errors carry what their texts say as fields, and keep them when they are pickled.

How: each error is raised by the real thing; then one of every class goes through pickle and copy.
"""

from __future__ import annotations

import ast
import asyncio
import copy
import errno
import inspect
import itertools
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ringmain as rm
from ringmain import errors

CLASSES = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception)]


def made(cls: type[Exception]) -> Any:
    if cls is rm.SchemaMismatch:
        return rm.SchemaMismatch("Imu", "Gps", ["no field 'lat'"], topic="imu")
    if cls is rm.DecodeError:
        return rm.DecodeError("imu", 7, "truncated")
    if issubclass(cls, rm.Timeout):
        return cls("no message", topic="imu", timeout=2.0, reason="r", participants=[("writer", "w", 12)], lost=3)
    return cls("what happened", topic="imu", service="infer")


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("copied", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy], ids=["pickle", "copy"])
def test_an_error_keeps_its_fields_and_text(cls: type[Exception], copied: Any) -> None:
    error = made(cls)
    if isinstance(error, OSError):
        error.errno = errno.EBUSY
    again = copied(error)
    assert type(again) is cls
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert getattr(again, "errno", None) == getattr(error, "errno", None)


def test_an_error_of_the_system_keeps_its_file() -> None:
    error = errors.RecordingError(errno.ENOSPC, "No space left on device", "/data/0.rec")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.errno, again.filename) == (str(error), errno.ENOSPC, "/data/0.rec")


def test_a_timeout_names_its_topic_and_its_writers(runtime_dir) -> None:
    with rm.Publisher("imu", name="sensor"), rm.Subscriber("imu") as sub:
        with pytest.raises(rm.Timeout) as caught:
            sub.recv(timeout=0.01)
        error = caught.value
        assert (error.topic, error.timeout, error.lost) == ("imu", 0.01, 0)
        assert error.participants == (("writer", "sensor", os.getpid()),)
        assert str(error) == f"no message on topic 'imu' within 0.01 s: {error.reason}"
    with rm.Subscriber("none") as sub, pytest.raises(rm.Timeout) as caught:
        sub.recv(timeout=0)
    assert (caught.value.topic, caught.value.participants) == ("none", ())


def test_full_names_the_reader_and_the_text_follows_the_fields(runtime_dir) -> None:
    with rm.Publisher("t", contract="reliable", capacity=4096) as pub, rm.Subscriber("t", name="slow"):
        with pytest.raises(rm.Full) as caught:
            pub.send_many([b"x" * 100] * 1000, timeout=0)
        error = caught.value
        assert (error.topic, error.timeout) == ("t", 0)
        assert error.participants == (("reader", "slow", os.getpid()),)
        assert error.sent > 0
        error.timeout = 2.5
        assert "had no room within 2.5 s: waiting for reader 'slow'" in str(error)

        with pytest.raises(rm.Full, match=r"within 0\.02 s: waiting for reader 'slow'") as caught:
            asyncio.run(pub.asend(b"x" * 3000, timeout=0.02))
        assert caught.value.timeout == 0.02


def test_few_readers_and_large_messages(runtime_dir) -> None:
    with rm.Publisher("t", contract="bus", capacity=4096) as pub:
        with pytest.raises(rm.Timeout, match="topic 't' had 0 of 2 readers within 0 s") as few:
            pub.wait_for_readers(2, timeout=0)
        assert (few.value.topic, few.value.timeout) == ("t", 0)
        with pytest.raises(rm.MessageTooLarge) as large:
            pub.send(bytes(5000))
        error = large.value
        assert (error.topic, error.size_bytes) == ("t", 5000)
        assert error.needed_capacity is not None
        assert error.limit_bytes is not None
        assert error.limit_bytes < 5000 < error.needed_capacity
    with pytest.raises(rm.Closed) as closed:
        pub.send(b"")
    assert closed.value.topic == "t"


def test_what_the_system_or_the_roster_refuses_names_the_topic(runtime_dir) -> None:
    with pytest.raises(rm.TopicNotFound) as missing:
        rm.info("none")
    with rm.Publisher("p", contract="pipe"), pytest.raises(rm.TopicBusy) as busy:
        rm.Publisher("p", contract="pipe")
    assert (missing.value.topic, busy.value.topic) == ("none", "p")
    assert (missing.value.errno, busy.value.errno) == (errno.ENOENT, errno.EBUSY)


def test_a_request_names_its_service(runtime_dir) -> None:
    with rm.Client("infer") as client:
        with pytest.raises(rm.Timeout, match=r"no reply of service 'infer' within 0\.01 s: ") as late:
            client.call(b"x", timeout=0.01)
        with pytest.raises(rm.Busy, match="service 'infer' is busy: it has no server") as busy:
            client.call(b"x", if_idle=True)
        assert (late.value.service, late.value.timeout, busy.value.service) == ("infer", 0.01, "infer")


def test_a_name_that_breaks_the_rule_is_an_invalid_argument() -> None:
    for wrong in (lambda: rm.Publisher("a//b"), lambda: rm.Publisher("a", capacity="much")):
        with pytest.raises(rm.InvalidArgument):
            wrong()


def named_in(text: ast.expr) -> Iterator[str]:
    """Which of the fields `topic` and `service` an f-string gives a value of: "topic '{...}'"."""
    for node in ast.walk(text):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for before, value in itertools.pairwise(parts):
            if isinstance(before, ast.Constant) and isinstance(value, ast.FormattedValue):
                said = str(before.value).rstrip(" '")
                yield from (field for field in ("topic", "service") if said.endswith(field))


def test_an_error_that_names_a_topic_or_service_has_it_as_a_field() -> None:
    """In the sources: what the text of a raised error names is a field, too. The two that are left out take it as an
    argument of their own."""
    raised = {cls.__name__ for cls in CLASSES} - {"SchemaMismatch", "DecodeError"}
    missing = []
    for path in sorted(Path(rm.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in raised and node.args:
                unsaid = set(named_in(node.args[0])) - {keyword.arg for keyword in node.keywords}
                missing += [f"{path.name}:{node.lineno}: {field}=" for field in sorted(unsaid)]
    assert not missing
