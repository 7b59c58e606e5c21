"""The Python face of commaai's msgq on ringmain: change the import, keep the program.

    from ringmain.compat import msgq              # was: import msgq

For modules that import it themselves: `sys.modules["msgq"] = ringmain.compat.msgq`.

What differs, and why: a ring is 4 MiB unless `segment_size` says otherwise, and takes messages of half of that; a queue
goes when its last participant leaves; only `address=b"127.0.0.1"` (for other machines there is `backend="zmq"` and
`rm.bridge`); a 16th reader evicts nobody (there are 128 places, and one more is an `IpcError`); Ctrl-C in `receive`
is a `KeyboardInterrupt`, not a `None`.
"""

from __future__ import annotations

from ringmain.compat.msgq.events import (
    Event,
    SocketEventHandle,
    delete_fake_prefix,
    fake_event_handle,
    get_fake_prefix,
    set_fake_prefix,
    toggle_fake_events,
    wait_for_one_event,
)
from ringmain.compat.msgq.sockets import (
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
