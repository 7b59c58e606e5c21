"""What a service costs in descriptors, and a server that has few of them."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import ringmain as rm
from tests.conftest import PATIENCE_S

SERVER_WITH_FEW = """
    import itertools
    import resource
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    with rm.Server("infer") as server:
        say("serves")
        for request in itertools.islice(server, 300):
            request.reply(request.data)
"""


def open_descriptors() -> int:
    return len(list(Path(f"/proc/{os.getpid()}/fd").iterdir()))


def test_clients_and_servers_cost_one_each_and_the_service_a_few() -> None:
    gc.collect()  # what other tests left open is not closed in the middle of this one
    before = open_descriptors()
    with rm.Server("infer"):
        with rm.Client("infer"):
            of_one = open_descriptors()
        clients = [rm.Client("infer") for _ in range(20)]
        assert open_descriptors() - of_one == 19
        for client in clients:
            client.close()
    assert of_one - before <= 8


def test_a_server_has_more_clients_than_descriptors(child) -> None:
    """All ways back stay open. Of their files it closes those that it opened first, and no reply needs them."""
    server = child(SERVER_WITH_FEW)
    assert server.line() == "serves"
    clients = [rm.Client("infer") for _ in range(150)]
    for _ in range(2):
        for number, client in enumerate(clients):
            assert client.call(b"%d" % number, timeout=PATIENCE_S) == b"%d" % number
    server.finish()
    for client in clients:
        client.close()
