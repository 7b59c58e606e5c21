"""The table of backends: each is one object with the same face, and none is loaded before it is used."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from ringmain import backends
from ringmain.backends import _features
from tests.conftest import Child

FACE = ["open_publisher", "open_subscriber", "topics", "info", "unlink", "clean", "wait"]


@pytest.mark.parametrize("name", backends.BACKENDS)
def test_every_backend_has_the_same_face(name: backends.Backend) -> None:
    backend = backends.get(name)
    for method in FACE:
        own, wanted = getattr(type(backend), method), getattr(backends.BackendProtocol, method)
        assert own is not wanted, f"{name} does not define {method}"
        assert list(inspect.signature(own).parameters) == list(inspect.signature(wanted).parameters)
    assert backend.features == {row.name: _features.missing(name, row.name) for row in _features.FEATURES}


def test_the_table_of_features_has_a_column_for_each() -> None:
    assert _features.as_markdown().splitlines()[0] == "| | " + " | ".join(backends.TABLE) + " |"


def test_other_backends_are_loaded_when_they_are_used(child: Callable[..., Child]) -> None:
    """A program on shared memory publishes, receives, inspects and cleans without them."""
    program = """
        with rm.Publisher("x") as pub, rm.Subscriber("x") as sub:
            pub.send(b"1"); sub.recv(timeout=10); rm.wait([sub], 0); rm.topics(); rm.info("x"); rm.clean()
        unwanted = ("zmq", "asyncio", "pyarrow", "ringmain.testing", "ringmain.backends.fake")
        print([name for name in unwanted if name in sys.modules])
    """
    assert child(program).finish() == ["[]"]
