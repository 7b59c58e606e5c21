"""The Python API of commaai's msgq on ringmain: change the import, keep the program.

    from ringmain.compat import msgq              # was: import msgq

It passes the tests of msgq-ipc 1.0. The guide lists what differs, and why: up to 127 readers, none of which is evicted;
Ctrl-C in `receive` is a `KeyboardInterrupt`; a message that is too large is an `IpcError`; a queue is removed when its
last participant leaves; and it works on one machine only (for several there are `backend="zmq"` and `rm.bridge`).
"""

from __future__ import annotations

from ringmain.compat.msgq._events import (
    Event,
    SocketEventHandle,
    delete_fake_prefix,
    fake_event_handle,
    get_fake_prefix,
    set_fake_prefix,
    toggle_fake_events,
    wait_for_one_event,
)
from ringmain.compat.msgq._sockets import (
    NO_TRAVERSAL_LIMIT,
    Context,
    IpcError,
    MultiplePublishersError,
    Poller,
    PubSocket,
    SubSocket,
    context,
    drain_sock_raw,
    pub_sock,
    sub_sock,
)

__all__ = [
    "NO_TRAVERSAL_LIMIT",
    "Context",
    "Event",
    "IpcError",
    "MultiplePublishersError",
    "Poller",
    "PubSocket",
    "SocketEventHandle",
    "SubSocket",
    "context",
    "delete_fake_prefix",
    "drain_sock_raw",
    "fake_event_handle",
    "get_fake_prefix",
    "pub_sock",
    "set_fake_prefix",
    "sub_sock",
    "toggle_fake_events",
    "wait_for_one_event",
]
