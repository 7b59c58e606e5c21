"""What a service costs in descriptors, and a server that has few of them."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import ringmain as rm
from ringmain._endpoint import DESCRIPTORS_PER_ENDPOINT
from tests.conftest import PATIENCE_S

SERVER_WITH_FEW = """
    import itertools
    import resource
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    with rm.Server("infer") as server:
        say("serves")
        for request in itertools.islice(server, 120):
            request.reply(request.data)
"""


def open_descriptors() -> int:
    return len(list(Path(f"/proc/{os.getpid()}/fd").iterdir()))


def test_an_endpoint_has_as_many_as_it_says() -> None:
    gc.collect()  # what other tests left open is not closed in the middle of this one
    with rm.Publisher("x"):  # what the process has once, whatever is open
        pass
    before = open_descriptors()
    publishers = [rm.Publisher(f"t{number}") for number in range(10)]
    subscribers = [rm.Subscriber(f"t{number}") for number in range(10)]
    assert open_descriptors() - before == 20 * DESCRIPTORS_PER_ENDPOINT
    for endpoint in (*publishers, *subscribers):
        endpoint.close()


def test_a_server_has_more_clients_than_descriptors(child) -> None:
    """It closes the ways back that it opened first, and opens one again when it is needed."""
    server = child(SERVER_WITH_FEW)
    assert server.line() == "serves"
    clients = [rm.Client("infer") for _ in range(60)]
    for _ in range(2):
        for number, client in enumerate(clients):
            assert client.call(b"%d" % number, timeout=PATIENCE_S) == b"%d" % number
    server.finish()
    for client in clients:
        client.close()
