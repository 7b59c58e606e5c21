"""Services of ringmain as services of Foxglove's protocol: a viewer's request is a request to the service.

Invariant: a service that no viewer calls costs nothing: it has no client of ours, and after a while without calls none
again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import foxglove
from foxglove.websocket import MessageSchema, Service, ServiceRequest, ServiceSchema, WebSocketServer

from ringmain import _inspect
from ringmain._service import Client, services
from ringmain.errors import RingmainError
from ringmain.recording._filters import matches_any
from ringmain.typed import Schema
from ringmain.view._forms import form_of
from ringmain.view._live import NAME

CALL_S = 10.0  # the longest that a viewer waits for a reply
_IDLE_S = 10.0
_REPLY_BYTES = 16 << 20
Convert = Callable[[Schema | None, bytes], bytes]


@dataclass
class _Called:
    """A service that a viewer has called."""

    client: Client[bytes, bytes]
    under_way: int = 0
    used_s: float = 0.0


class FoxgloveServices:
    """The services that match. `encode` makes a request's payload of JSON, `decode` JSON of a reply's."""

    def __init__(self, patterns: Sequence[str], encode: Convert, decode: Convert) -> None:
        self._patterns, self._encode, self._decode = list(patterns), encode, decode
        self._announced: dict[str, Schema | None] = {}
        self._called: dict[str, _Called] = {}
        self._lock = threading.Lock()

    def look(self, server: WebSocketServer) -> None:
        """Announces those that are there now, and leaves those that are not called any more."""
        there: dict[str, Schema | None] = {}
        for one in services() if self._patterns else ():
            if one.servers and matches_any(one.name, self._patterns):
                there[one.name] = _request_schema(one.name)
        gone = [name for name, schema in self._announced.items() if name not in there or there[name] != schema]
        if gone:
            server.remove_services(gone)
        new = [name for name in there if name not in self._announced or name in gone]
        if new:
            server.add_services([self._service(name, there[name]) for name in new])
        self._announced = there
        with self._lock:
            idle_s = time.monotonic() - _IDLE_S
            idle = [name for name, one in self._called.items() if not one.under_way and one.used_s < idle_s]
            left = [self._called.pop(name) for name in idle]
        for called in left:
            called.client.close()

    def close(self) -> None:
        with self._lock:
            left, self._called = list(self._called.values()), {}
        for one in left:
            one.client.close()

    def _service(self, name: str, schema: Schema | None) -> Service:
        form = form_of(schema, None)
        described = form.schema if form.encoding == "json" else foxglove.Schema(name="", encoding="", data=b"")
        wanted = MessageSchema(encoding="json", schema=described)
        kind = schema.type_name if schema is not None else "bytes"
        return Service(name, schema=ServiceSchema(kind, request=wanted, response=None), handler=self._call)

    def _call(self, request: ServiceRequest) -> bytes:
        """In a thread of the server. What it raises is what the viewer is told."""
        name = request.service_name
        payload = self._encode(self._announced.get(name), bytes(request.payload))
        with self._lock:
            one = self._called.get(name)
            if one is None:
                one = self._called[name] = _Called(Client(name, name=NAME, backend="shm", reply_capacity=_REPLY_BYTES))
            one.under_way += 1
        try:
            reply = one.client.call(payload, CALL_S)
            return self._decode(one.client.reply_schema, reply)
        finally:
            with self._lock:
                one.under_way -= 1
                one.used_s = time.monotonic()


def _request_schema(service: str) -> Schema | None:
    try:
        return _inspect.info(service).schema
    except (RingmainError, ValueError):
        return None
