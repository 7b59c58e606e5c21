"""What a backend does not support is refused with the sentence of the table, and the choice of a backend is checked."""

from __future__ import annotations

from typing import Any

import pytest

import ringmain as rm
from ringmain.backends import _features


@pytest.mark.parametrize(
    ("options", "feature"),
    [
        ({"contract": "bus"}, "contract bus"),
        ({"contract": "reliable"}, "contract reliable"),
        ({"persist": True}, "persist"),
        ({"takeover": True}, "takeover"),
    ],
)
def test_zmq_refuses_with_a_reason(options: dict[str, Any], feature: str) -> None:
    with pytest.raises(rm.Unsupported) as caught:
        rm.Publisher("t", backend="zmq", **options)
    assert str(_features.missing("zmq", feature)) in str(caught.value)


def test_zmq_cannot_say_whether_all_was_read() -> None:
    with rm.Publisher("t", backend="zmq") as pub, pytest.raises(rm.Unsupported, match="out of the publisher's sight"):
        _ = pub.all_read


def test_zmq_topics_are_shown() -> None:
    with rm.Publisher("a/b", backend="zmq", contract="pipe", name="w") as pub, rm.Publisher("s"):
        info = rm.info("a/b")
        assert (info.backend, info.contract, info.epoch, info.writers[0].name) == ("zmq", "pipe", pub.epoch, "w")
        assert [(topic.name, topic.backend) for topic in rm.topics()] == [("a/b", "zmq"), ("s", "shm")]
    assert rm.topics() == []


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGMAIN_BACKEND", "zmq")
    with rm.Publisher("t") as pub:
        assert type(pub).__name__ == "ZmqPublisher"
    with rm.Publisher("t", backend="shm") as pub:
        assert type(pub) is rm.Publisher
    monkeypatch.setenv("RINGMAIN_BACKEND", "carrier-pigeon")
    with pytest.raises(ValueError, match="RINGMAIN_BACKEND is one of shm, zmq, fake, not 'carrier-pigeon'"):
        rm.Publisher("t")
    with pytest.raises(ValueError, match="backend= is one of"):
        rm.Publisher("t", backend="nothing")  # type: ignore[arg-type]


def test_a_subclass_stays_native(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(rm.Publisher):
        pass

    with Mine("t") as pub:
        assert isinstance(pub, Mine)
        assert isinstance(pub, rm.Publisher)
    with pytest.raises(TypeError, match="extends the shared-memory publisher"):
        Mine("t", backend="fake")
    with rm.Publisher("t", backend="zmq") as pub:
        assert not isinstance(pub, Mine)


def test_address_is_for_zmq() -> None:
    for backend in ("shm", "fake"):
        with pytest.raises(ValueError, match="for the zmq backend"):
            rm.Publisher("t", backend=backend, address="tcp://127.0.0.1:1")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="for the zmq backend"):
            rm.Subscriber("t", backend=backend, address="tcp://127.0.0.1:1")  # type: ignore[arg-type]


def test_the_table_has_a_row_for_every_feature() -> None:
    table = _features.as_markdown()
    assert all(f"| {feature.name} |" in table for feature in _features.FEATURES)
    assert all(str(_features.missing("zmq", name)) in table for name in ("contract bus", "takeover"))
