"""Topics over ZeroMQ beyond what all backends share: addresses, keys, other processes, what goes wrong on a network.

How: real sockets on ipc and on the loopback interface, real child processes; losses are made with short queues.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
import zmq.auth

import ringmain as rm
from ringmain.backends.zmq import Address, ZmqPublisher, ZmqSubscriber
from tests.conftest import PATIENCE_S, Child

LOCAL = "tcp://127.0.0.1:*"


class Point(msgspec.Struct):
    x: int


class Other(msgspec.Struct):
    name: str


def keys(directory: Path, name: str) -> tuple[str, str]:
    """A public and a secret file."""
    public, secret = zmq.auth.create_certificates(directory, name)
    return str(public), str(secret)


def meet(pub: ZmqPublisher, sub: ZmqSubscriber, data: bytes) -> rm.Message:
    pub.wait_for_readers(1, timeout=PATIENCE_S)
    pub.send(data)
    return sub.recv_message(timeout=PATIENCE_S)


def test_between_processes(child: Callable[..., Child]) -> None:
    reader = child("""
        with rm.Subscriber("x", backend="zmq") as sub:
            say("ready")
            for _ in range(1000): data = sub.recv(timeout=30)
            say(data, sub.lost, rm.info("x").writers[0].name)
    """)
    assert reader.line() == "ready"
    with rm.Publisher("x", backend="zmq", contract="pipe", name="far away") as pub:
        for i in range(1000):
            pub.send(b"%d" % i, timeout=PATIENCE_S)
        assert reader.line() == "b'999' 0 far away"
    reader.finish()


def test_the_same_program_by_environment(child: Callable[..., Child]) -> None:
    program = """
        with rm.Subscriber("x") as sub, rm.Publisher("x") as pub:
            sub.try_recv()
            pub.wait_for_readers(1, timeout=30)
            pub.send(b"hello")
            say(type(pub).__name__, sub.recv(timeout=30))
    """
    assert child(program, env={"RINGMAIN_BACKEND": "zmq"}).finish() == ["ZmqPublisher b'hello'"]
    assert child(program).finish() == ["Publisher b'hello'"]


def test_tcp_and_a_table_of_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with rm.Publisher("there", backend="zmq", address=LOCAL) as there:
        table = tmp_path / "topics.toml"
        table.write_text(
            f'there = "{there.address.endpoint}"\n'
            '["some/jobs"]\nendpoint = "tcp://127.0.0.1:45211"\ncontract = "pipe"\nqueue = 10\n'
        )
        monkeypatch.setenv("RINGMAIN_ZMQ", str(table))
        with rm.Subscriber("there", backend="zmq") as sub:
            assert meet(there, sub, b"1").data == b"1"
        with rm.Subscriber("elsewhere", backend="zmq") as own:
            assert not own.attached  # not in the table: in the runtime directory
        table.write_text("there = 5")
        with pytest.raises(rm.AddressError, match=r"topics.toml: topic 'there' needs an endpoint"):
            rm.Subscriber("there", backend="zmq")
        table.write_text('[there]\nendpoint = "tcp://h:1"\ncolour = "blue"')
        with pytest.raises(ValueError, match=r"topics.toml: topic 'there' needs an endpoint"):
            rm.Subscriber("there", backend="zmq")
        monkeypatch.setenv("RINGMAIN_ZMQ", str(tmp_path / "missing"))
        with pytest.raises(rm.AddressError, match=r"RINGMAIN_ZMQ=.*/missing cannot be read.*: No such file"):
            rm.Subscriber("there", backend="zmq")


def test_a_pipe_on_tcp() -> None:
    with rm.Publisher("x", backend="zmq", contract="pipe", address=LOCAL) as pub:
        address = Address(pub.address.endpoint, contract="pipe")
        with rm.Subscriber("x", backend="zmq", address=address) as sub:
            assert meet(pub, sub, b"1").data == b"1"


@pytest.mark.parametrize("endpoint", ["tcp://*:5555", "tcp://0.0.0.0:5555", "tcp://192.0.2.1:5555", "tcp://[::]:5555"])
def test_without_keys_only_this_machine(endpoint: str) -> None:
    with pytest.raises(rm.NotAllowed, match="insecure=True"):
        rm.Publisher("x", backend="zmq", address=endpoint)


def test_unless_told_otherwise() -> None:
    with rm.Publisher("x", backend="zmq", address=Address("tcp://0.0.0.0:*", insecure=True)) as pub:
        port = pub.address.endpoint.rpartition(":")[2]
        with rm.Subscriber("x", backend="zmq", address=f"tcp://127.0.0.1:{port}") as sub:
            assert meet(pub, sub, b"1").data == b"1"


def test_with_keys_a_subscriber_needs_the_publishers_public_key(tmp_path: Path) -> None:
    public, secret = keys(tmp_path, "server")
    with rm.Publisher("x", backend="zmq", address=Address("tcp://*:*", keys=secret)) as pub:
        endpoint = pub.address.endpoint.replace("0.0.0.0", "127.0.0.1")
        with rm.Subscriber("x", backend="zmq", address=Address(endpoint, server_key=public)) as sub:
            assert meet(pub, sub, b"secret").data == b"secret"
        with rm.Subscriber("x", backend="zmq", address=endpoint) as stranger:
            pub.send(b"secret")
            with pytest.raises(rm.NotAllowed, match=r"topic 'x': the publisher at .* refuses .* needs server_key="):
                stranger.recv(timeout=PATIENCE_S)


def test_with_a_list_of_clients_no_other_can_subscribe(tmp_path: Path) -> None:
    server, clients, others = tmp_path / "server", tmp_path / "clients", tmp_path / "others"
    for directory in (server, clients, others):
        directory.mkdir()
    public, secret = keys(server, "server")
    _, friend = keys(clients, "friend")
    _, foe = keys(others, "foe")
    with rm.Publisher("x", backend="zmq", address=Address(LOCAL, keys=secret, clients=str(clients))) as pub:
        endpoint = pub.address.endpoint
        with (
            rm.Subscriber("x", backend="zmq", address=Address(endpoint, server_key=public, keys=friend)) as sub,
            rm.Subscriber("x", backend="zmq", address=Address(endpoint, server_key=public, keys=foe)) as refused,
        ):
            assert meet(pub, sub, b"1").data == b"1"
            for _ in range(2):  # ZeroMQ itself would not try a second time
                with pytest.raises(rm.NotAllowed, match="public key must be among the publisher's clients"):
                    refused.recv(timeout=PATIENCE_S)


def test_keys_for_a_publisher_without_keys_are_noticed(tmp_path: Path) -> None:
    public, _ = keys(tmp_path, "server")
    with rm.Publisher("x", backend="zmq", address=LOCAL) as pub:
        address = Address(pub.address.endpoint, server_key=public)
        with (
            rm.Subscriber("x", backend="zmq", address=address) as sub,
            pytest.raises(rm.NotAllowed, match="perhaps it has no keys"),
        ):
            sub.recv(timeout=PATIENCE_S)


def test_the_wrong_server_key_is_said(tmp_path: Path, until: Callable[..., None]) -> None:
    """The publisher does not answer at all then, and may also be about to start: a warning, and it goes on waiting."""
    _, secret = keys(tmp_path, "server")
    other, _ = keys(tmp_path, "other")
    with rm.Publisher("x", backend="zmq", address=Address(LOCAL, keys=secret)) as pub:
        address = Address(pub.address.endpoint, server_key=other)
        with rm.Subscriber("x", backend="zmq", address=address) as sub:
            with pytest.warns(RuntimeWarning, match=r"topic 'x': the publisher at .* ends every connection"):
                until(lambda: sub.try_recv() is None and sub._handshake.trouble)
            with pytest.raises(rm.Timeout, match="perhaps it has no keys, or server_key is not its public key"):
                sub.recv(timeout=0)


BAD_KEYS = [
    (rm.Publisher, {"keys": "{tmp}/none"}, "keys=.*/none cannot be read as a CURVE key: there is no such file"),
    (rm.Publisher, {"keys": "{public}"}, "server.key has only the public key: name the file that ends in _secret"),
    (rm.Publisher, {"keys": "{secret}", "clients": "{tmp}/none"}, "clients=.*/none .*there is no such directory"),
    (rm.Publisher, {"keys": "{secret}", "clients": "{tmp}/empty"}, "clients=.*/empty has no public key"),
    (rm.Publisher, {"clients": "{tmp}"}, "clients= needs keys="),
    (rm.Publisher, {"queue": "many"}, "queue is a number of messages"),
    (rm.Subscriber, {"server_key": "{tmp}/none"}, "server_key=.*/none is neither a file nor a key"),
    (rm.Subscriber, {"server_key": "{public}", "keys": "{tmp}/none"}, "keys=.*/none .*there is no such file"),
    (rm.Subscriber, {"keys": "{secret}"}, "needs server_key="),
]


@pytest.mark.parametrize(("end", "fields", "words"), BAD_KEYS, ids=lambda each: str(each)[:60])
def test_an_address_that_cannot_be_used_is_named(tmp_path: Path, end: Any, fields: dict[str, str], words: str) -> None:
    public, secret = keys(tmp_path, "server")
    (tmp_path / "empty").mkdir()
    filled = {name: value.format(tmp=tmp_path, public=public, secret=secret) for name, value in fields.items()}
    with pytest.raises(rm.AddressError, match=words):
        end("x", backend="zmq", address={"endpoint": "tcp://127.0.0.1:45311", **filled})


def test_a_slow_reader_loses_and_knows_how_much() -> None:
    # Loopback sockets take some of it, so far more is sent than all queues hold.
    with rm.Publisher("x", backend="zmq", address=Address(LOCAL, queue=2)) as pub:
        with rm.Subscriber("x", backend="zmq", address=Address(pub.address.endpoint, queue=2)) as sub:
            pub.wait_for_readers(1, timeout=PATIENCE_S)
            for _ in range(300):
                pub.send(b"x" * 200_000)
            received = 0
            while (message := sub.recv_message(timeout=PATIENCE_S)).data != b"end":
                received += 1
                pub.send(b"end")  # more than once: this one may be lost as well
            assert sub.lost > 0
            assert received + sub.lost == message.seq
            assert message.seq >= 300


def test_a_pipe_over_zmq_loses_nothing_and_waits() -> None:
    with rm.Publisher("x", backend="zmq", contract="pipe", address=Address(LOCAL, queue=1)) as pub:
        address = Address(pub.address.endpoint, contract="pipe", queue=1)
        with rm.Subscriber("x", backend="zmq", address=address) as sub:
            pub.wait_for_readers(1, timeout=PATIENCE_S)
            sent = 0
            with pytest.raises(rm.Full, match="its reader, whose queue is full"):
                while True:
                    pub.send(b"x" * 500_000, timeout=0.2)
                    sent += 1
            for i in range(sent):
                assert sub.recv_message(timeout=PATIENCE_S).seq == i
            assert sub.lost == 0


def test_a_subscriber_that_waited_for_a_topic_counts_what_came_before_it_connected() -> None:
    with rm.Subscriber("x", backend="zmq") as sub, rm.Publisher("x", backend="zmq") as pub:
        pub.send_many([b"0", b"1", b"2"])  # no subscriber is connected yet
        sub.try_recv()
        pub.wait_for_readers(1, timeout=PATIENCE_S)
        pub.send(b"3")
        message = sub.recv_message(timeout=PATIENCE_S)
        assert (message.data, message.lost, sub.lost) == (b"3", 3, 3)


def test_the_wrong_topic_at_an_address_is_noticed() -> None:
    with rm.Publisher("this", backend="zmq", address=LOCAL) as pub:
        with rm.Subscriber("that", backend="zmq", address=pub.address) as sub:
            pub.wait_for_readers(1, timeout=PATIENCE_S)
            pub.send(b"1")
            with pytest.raises(rm.TopicMismatch, match="is topic 'this', not 'that'"):
                sub.recv(timeout=PATIENCE_S)


def test_the_type_is_checked_on_tcp_too() -> None:
    with rm.Publisher("x", backend="zmq", address=LOCAL, type=Point) as pub:
        with rm.Subscriber("x", backend="zmq", address=pub.address, type=Other) as sub:
            pub.wait_for_readers(1, timeout=PATIENCE_S)
            pub.send(Point(1))
            with pytest.raises(rm.SchemaMismatch):
                sub.recv(timeout=PATIENCE_S)


def test_something_else_at_an_address_is_noticed() -> None:
    with zmq.Context.instance().socket(zmq.XPUB) as stranger:
        stranger.linger = 0
        port = stranger.bind_to_random_port("tcp://127.0.0.1")
        with rm.Subscriber("x", backend="zmq", address=f"tcp://127.0.0.1:{port}") as sub:
            assert stranger.poll(PATIENCE_S * 1000)
            for frames in ([b"weather 21"], [b"RMZ2", b""], [b"RMZ2" + bytes(28), b"", b""]):
                stranger.send_multipart(frames)
                with pytest.raises(rm.Corrupt, match="not a ringmain message"):
                    sub.recv(timeout=PATIENCE_S)


def test_an_address_that_is_taken_is_refused() -> None:
    with rm.Publisher("x", backend="zmq", address=LOCAL) as pub:
        with pytest.raises(rm.TopicBusy, match="the address is in use"):
            rm.Publisher("y", backend="zmq", address=pub.address)
    with pytest.raises(ValueError, match="tcp://host:port"):
        rm.Publisher("y", backend="zmq", address="http://example.org")
    with pytest.raises(rm.SystemFailure):
        rm.Publisher("y", backend="zmq", address=Address("tcp://192.0.2.1:5555", insecure=True))


def test_a_publisher_that_was_killed_is_succeeded(child: Callable[..., Child]) -> None:
    victim = child("""
        pub = rm.Publisher("x", backend="zmq", name="victim")
        pub.wait_for_readers(1, timeout=30)
        pub.send(b"last words")
        say("sent"); hear()
    """)
    with rm.Subscriber("x", backend="zmq") as sub:
        assert sub.recv(timeout=PATIENCE_S) == b"last words"
        assert victim.line() == "sent"
        with pytest.raises(rm.TopicBusy, match="victim"):
            rm.Publisher("x", backend="zmq")
        victim.kill()
        assert rm.topics() == []
        with rm.Publisher("x", backend="zmq") as heir:
            while sub.epoch != heir.epoch:
                sub.try_recv()
                heir.send(b"long live")
            message = sub.recv_message(timeout=PATIENCE_S)
            assert message.data == b"long live"
    rm.clean()


def test_what_the_dead_leave_is_swept(child: Callable[..., Child], runtime_dir: Path) -> None:
    victim = child('pub = rm.Publisher("a/b", backend="zmq"); say("here"); hear()')
    assert victim.line() == "here"
    assert rm.clean() == []
    victim.kill()
    assert rm.clean() == ["a/b"]
    assert list((runtime_dir / ".zmq").iterdir()) == []


def test_waiting_for_both_kinds_at_once() -> None:
    with rm.Publisher("s") as s, rm.Subscriber("s") as near, rm.Publisher("z", backend="zmq") as z:
        with rm.Subscriber("z", backend="zmq") as far:
            z.wait_for_readers(1, timeout=PATIENCE_S)
            assert rm.wait([near, far], timeout=0.01) == []
            z.send(b"1")
            assert rm.wait([near, far], timeout=PATIENCE_S) == [far]
            s.send(b"1")
            assert rm.wait([near], timeout=PATIENCE_S) == [near]
            assert sorted(found.topic for found in rm.wait([near, far])) == ["s", "z"]


def test_a_subscriber_can_be_passed_on() -> None:
    with rm.Publisher("x", backend="zmq") as pub, rm.Subscriber("x", backend="zmq", ignore_kinds={"k"}) as sub:
        with pickle.loads(pickle.dumps(sub)) as again:
            assert set(again.ignore_kinds) == {"k"}
            pub.wait_for_readers(2, timeout=PATIENCE_S)
            pub.send(b"both")
            assert sub.recv(timeout=PATIENCE_S) == again.recv(timeout=PATIENCE_S) == b"both"


def test_a_forked_child_makes_its_own(child: Callable[..., Child], until: Callable[..., None]) -> None:
    parent = child("""
        sub, pub = rm.Subscriber("x", backend="zmq"), rm.Publisher("y", backend="zmq")
        if os.fork() == 0:
            say("child", sub.recv(timeout=30))
            try: pub.send(b"1")
            except rm.Closed as error: say("make one here" in str(error))
            os._exit(0)
        os.wait()
        pub.close(); sub.close()
    """)
    with rm.Publisher("x", backend="zmq") as pub:
        pub.wait_for_readers(1, timeout=PATIENCE_S)
        until(lambda: pub.send(b"hello") is None or not parent._lines.empty())
        assert parent.line() == "child b'hello'"
        assert parent.line() == "True"
        parent.finish()


def test_the_descriptor_can_be_watched() -> None:
    async def main() -> None:
        with rm.Publisher("x", backend="zmq") as pub, rm.Subscriber("x", backend="zmq") as sub:
            pub.wait_for_readers(1, timeout=PATIENCE_S)
            while sub.try_recv() is not None:
                pass
            came = asyncio.Event()
            asyncio.get_running_loop().add_reader(sub.fileno(), came.set)
            pub.send(b"1")
            data = None
            async with asyncio.timeout(PATIENCE_S):
                while data is None:
                    await came.wait()
                    came.clear()
                    data = sub.try_recv()
            asyncio.get_running_loop().remove_reader(sub.fileno())
            assert data == b"1"

    asyncio.run(main())
