"""What interrupts a server's wait, or the encoding of a reply, reaches the program: Ctrl-C, and what its own signal
handlers raise. None of it looks like the end of a server that was closed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import pytest

import ringmain as rm
from ringmain import typed
from ringmain.typed._codec import SimpleCodec
from tests.conftest import PATIENCE_S, Child

WAYS = {
    "for": "for request in server: request.reply(request.data)",
    "batches": "for batch in server.batches(8): [request.reply(request.data) for request in batch]",
    "serve": "server.serve(lambda data: data)",
    "take": "while True: [request.reply(request.data) for request in server.take()]",
}

SERVER = """
import signal
class Stop(Exception): pass
def stop(*_): raise Stop
signal.signal(signal.SIGTERM, stop)
with rm.Server("infer") as server:
    say("ready")
    try:
        LOOP
        say("ended quietly")
    except BaseException as error:
        say("raised", type(error).__name__)
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "Stop")])
def test_a_servers_loop_raises_what_interrupts_it(
    child: Callable[..., Child], way: str, number: signal.Signals, raised: str
) -> None:
    server = child(SERVER.replace("LOOP", WAYS[way]))
    assert server.line() == "ready"
    with rm.Client("infer") as client:
        for _ in range(
            2
        ):  # the second reply takes the short way: when it is here, the server waits for the next request
            assert client.call(b"x", timeout=PATIENCE_S) == b"x"
    server.process.send_signal(number)
    assert server.line() == f"raised {raised}"
    server.finish()


@pytest.mark.parametrize("way", WAYS)
def test_what_a_signal_handler_finds_closed_is_not_the_server(child: Callable[..., Child], way: str) -> None:
    handler = (
        "other = rm.Publisher('other'); other.close(); signal.signal(signal.SIGTERM, lambda *_: other.send(b''))\n"
    )
    server = child(SERVER.replace("with rm.Server", handler + "with rm.Server").replace("LOOP", WAYS[way]))
    assert server.line() == "ready"
    with rm.Client("infer") as client:
        for _ in range(2):
            assert client.call(b"x", timeout=PATIENCE_S) == b"x"
    server.process.send_signal(signal.SIGTERM)
    assert server.line() == "raised Closed"
    server.finish()


@pytest.mark.parametrize("way", WAYS)
def test_a_servers_loop_ends_quietly_when_the_server_is_closed(child: Callable[..., Child], way: str) -> None:
    closer = "import threading; threading.Thread(target=lambda: hear() or server.close()).start(); "
    server = child(SERVER.replace("LOOP", closer + "say('loops')\n        " + WAYS[way]))
    assert [server.line(), server.line()] == ["ready", "loops"]
    with rm.Client("infer") as client:
        assert client.call(b"x", timeout=PATIENCE_S) == b"x"
    server.tell()
    assert server.line() == ("raised Closed" if way == "take" else "ended quietly")
    server.finish()


class Picture:
    pass


def test_ctrl_c_while_a_reply_is_encoded() -> None:
    encoded: list[Picture] = []

    def encode(picture: Picture) -> bytes:
        encoded.append(picture)
        if len(encoded) == 2:
            signal.raise_signal(signal.SIGINT)
        return b"picture"

    schema = typed.codec_for(bytes).schema
    typed.register_codec(Picture, lambda type_: SimpleCodec(schema, encode, bytes, (Picture,)))
    with rm.Server("infer", reply=Picture) as server, rm.Client("infer", reply=Picture) as client:
        first, second = client.submit(b"1", timeout=PATIENCE_S), client.submit(b"2", timeout=PATIENCE_S)
        next(server).reply(Picture())
        assert first.result(PATIENCE_S) == b"picture"  # the next reply takes the short way
        request = next(server)
        with pytest.raises(KeyboardInterrupt):
            request.reply(Picture())
        assert not request.answered
        request.reply(Picture())
        assert second.result(PATIENCE_S) == b"picture"


def test_ctrl_c_while_a_dropped_request_is_failed() -> None:
    """A destructor cannot raise: what interrupts it is raised by the code after it."""
    with rm.Server("infer") as server, rm.Client("infer") as client:
        future = client.submit(b"", timeout=PATIENCE_S)
        tell = server._dropped

        def interrupted(*args: object) -> None:
            tell(*args)  # type: ignore[arg-type]
            signal.raise_signal(signal.SIGINT)

        server._dropped = interrupted  # type: ignore[method-assign,assignment]
        with pytest.raises(KeyboardInterrupt):
            for request in server:
                del request
                future.result(PATIENCE_S)
        with pytest.raises(rm.RequestFailed):
            future.result(PATIENCE_S)


def test_ctrl_c_while_a_client_closes_leaves_the_service_all_the_same() -> None:
    """It waits for a callback of a future, which does not end."""
    main, go_on = threading.get_ident(), threading.Event()
    with rm.Server("infer") as server:
        client = rm.Client("infer")

        def stays(_: object) -> None:
            while not client.closed:
                time.sleep(0.001)
            signal.pthread_kill(main, signal.SIGINT)
            go_on.wait(PATIENCE_S)

        client.submit(b"", timeout=PATIENCE_S).add_done_callback(stays)
        next(server).reply(b"")
        with pytest.raises(KeyboardInterrupt):
            client.close()
        assert rm.info("infer").writers == []
        go_on.set()
