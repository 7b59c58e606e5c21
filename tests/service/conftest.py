"""A client whose server, a thread of the same process, answers with what it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ringmain as rm

InThread = Callable[..., Callable[[], Any]]


def echo(server: rm.Server[bytes, bytes]) -> None:
    """`hold` is answered when `free` comes."""
    held = []
    for request in server:
        if request.data == b"hold":
            held.append(request)
            continue
        if request.data == b"free":
            for each in held:
                each.reply(b"freed")
            held.clear()
        request.reply(request.data)


@pytest.fixture
def client(in_thread: InThread) -> Iterator[rm.Client[bytes, bytes]]:
    with rm.Server("infer") as server:
        done = in_thread(echo, server)
        with rm.Client("infer") as client:
            yield client
        server.close()
        done()
