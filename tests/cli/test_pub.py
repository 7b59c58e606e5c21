"""`pub`: text, JSON, hex, lines and files become messages; mistakes are found before anything is sent."""

from __future__ import annotations

import msgspec
import pytest

import ringmain as rm
from tests.cli.conftest import PATIENCE_S, Imu


def test_text(ringmain):
    with rm.Publisher("t", contract="bus"), rm.Subscriber("t") as sub:
        assert ringmain("pub", "t", "héllo", "--sender", "me", "--kind", "greeting").code == 0
        message = sub.recv_message(PATIENCE_S)
    assert (message.text, message.sender, message.kind) == ("héllo", "me", "greeting")


def test_json_for_typed_topics(ringmain):
    with rm.Publisher("t", contract="bus", type=Imu), rm.Subscriber("t", type=Imu) as sub:
        assert ringmain("pub", "t", '{"time": 1, "acceleration": [0, 0, 9.8]}').code == 0
        assert sub.recv(PATIENCE_S) == Imu(1.0, (0.0, 0.0, 9.8))


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "this is not JSON"), ('{"time": "late", "acceleration": [1,2,3]}', "not fit the type Imu")],
)
def test_what_does_not_fit_the_type_is_not_sent(ringmain, text, words):
    with rm.Publisher("t", contract="bus", type=Imu), rm.Subscriber("t") as sub:
        ended = ringmain("pub", "t", text)
        assert ended.code == 2
        assert words in ended.err
        assert sub.try_recv() is None


def test_a_new_typed_topic(ringmain):
    text = '{"time": 2, "acceleration": [1, 2, 3]}'
    ended = ringmain("pub", "t", "--type", "tests.cli.conftest:Imu", "--contract", "pipe", text)
    assert ended.code == 0, ended.err
    with rm.Subscriber("t", type=Imu) as sub:
        assert sub.recv(PATIENCE_S).time == 2
    assert ringmain("pub", "t", "--type", "no.such:Thing", "{}").code == 2


def test_hex_lines_and_files(ringmain, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\x00\x01")
    with rm.Publisher("t", contract="bus"), rm.Subscriber("t") as sub:
        ringmain("pub", "t", "--hex", "de ad")
        ringmain("pub", "t", "-", stdin="one\ntwo\n")
        ringmain("pub", "t", "--file", str(tmp_path / "a.bin"))
        assert [sub.recv(PATIENCE_S) for _ in range(4)] == [b"\xde\xad", b"one", b"two", b"\x00\x01"]
        assert ringmain("pub", "t", "--file", str(tmp_path / "gone")).code == 3


def test_count_and_rate(ringmain):
    with rm.Publisher("t", contract="bus"), rm.Subscriber("t") as sub:
        assert ringmain("pub", "t", "tick", "--rate", "500", "--count", "5").code == 0
        assert [sub.recv(PATIENCE_S) for _ in range(5)] == [b"tick"] * 5
        assert sub.try_recv() is None


def test_it_waits_for_a_reader(started):
    process = started("pub", "t", "hello")
    assert "waiting for a reader of 't'" in process.stderr.readline()
    with rm.Subscriber("t") as sub:
        assert sub.recv(PATIENCE_S) == b"hello"
        assert process.wait(PATIENCE_S) == 0


def test_echo_is_somebody_to_send_to(started, ringmain, until):
    echo = started("echo", "t", "--once", "--no-envelope")
    assert ringmain("pub", "t", "hello").code == 0
    assert "|hello|" in echo.stdout.read()


def test_a_pipe_keeps_what_is_sent(ringmain):
    assert ringmain("pub", "t", "kept", "--contract", "pipe").code == 0
    with rm.Subscriber("t") as sub:
        assert sub.recv(0) == b"kept"


def test_another_writer_is_named(ringmain):
    with rm.Publisher("t", sender="camera"):
        ended = ringmain("pub", "t", "x")
        assert ended.code == 1
        assert "camera" in ended.err


class Tick(msgspec.Struct, array_like=True):
    symbol: str
    price: float
    sizes: tuple[int, ...] = ()


@pytest.mark.parametrize(
    "text", ['["A", 1.5]', '{"symbol": "A", "price": 1.5}', '{"price": 1.5, "symbol": "A", "sizes": []}']
)
def test_a_record_that_is_sent_as_an_array_is_written_as_one_or_by_field(ringmain, text):
    with rm.Subscriber("ticks", type=Tick) as sub, rm.Publisher("ticks", type=Tick, contract="bus"):
        assert ringmain("pub", "ticks", text).code == 0
        assert sub.recv(timeout=0) == Tick("A", 1.5)
        ended = ringmain("pub", "ticks", '{"symbol": "A"}')
        assert (ended.code, "missing required field `price`" in ended.err) == (2, True)
