"""Requests and replies: `Server` and `Client` (docs/guide/requests.md). All on topics: nothing here is in shared memory
that a topic does not have.

A service has these topics:

- `NAME`, contract `work`: the requests. Its writers are the clients, its workers are the servers. A topic has 128
  slots, so the 97th client opens `NAME.lane2`, the 193rd `NAME.lane3`; a server takes from all lanes.
- `NAME.replies/CLIENT`, contract `reliable`, one for each client: the replies to it.
- `NAME.servers`, contract `bus`: once a second, what each server has done (`ServerReport`).

Names of requests: a request's number is its sequence number in its lane, so it is in no message. Its envelope has the
client (sender), and its terms (an extension): until when the client waits, and whether it may run again. A reply's
extension has the request's number, and says if there is no result. So the payloads are the service's own types,
and a recorder, `ringmain echo` and Spark read them as those of any topic.

One request, and what happens where a process dies:

1. The client sends. Dead before: nothing was sent. Dead after: the server computes, and drops the reply.
2. A server takes the request. It holds it until it is answered. If it dies, the message is given back (as any of
   `work`), so its next server sees `redelivered`, and answers `gone` instead of computing; with `retry` it computes.
3. The server sends the reply, and then finishes the message. Dead in between: the client has its reply, and the second
   answer, `gone` or computed once more, has a number that no call waits for.
4. The client waits for its reply. After every slice without one it looks at its message in the ring: one that was given
   back, or whose worker is dead, will not be computed, and the call raises `ServerGone`, also if no server is left.
"""

from __future__ import annotations

from ringmain._service._client import Client
from ringmain._service._draft import Draft
from ringmain._service._report import ServerReport
from ringmain._service._request import Request
from ringmain._service._server import Server
from ringmain._service._service_info import ServiceInfo, service, services

__all__ = ["Client", "Draft", "Request", "Server", "ServerReport", "ServiceInfo", "service", "services"]
