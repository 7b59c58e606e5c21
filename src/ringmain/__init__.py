"""ringmain: a message bus in shared memory, whose recorded traffic flows on into Apache Spark.

    import ringmain as rm

    with rm.Publisher("imu") as pub, rm.Subscriber("imu") as sub:
        pub.send(b"hello")
        sub.recv(timeout=1.0)

Where the public names are defined: `Publisher` (_publisher.py), `Subscriber` and `wait` (_subscriber.py), `Message`
(_message.py), `SyncQueue` (_syncqueue.py), `Server`, `Client` and `services` (_service/), `Latest` and `Tick`
(_latest.py), `bridge` (_bridge.py), `topics`, `info`, `unlink` and `clean` (_inspect.py), `metrics` (_metrics.py),
frames (frames/), and the errors (errors.py). `Recorder`, `Recording`, `Player` and `replay` (recording/) need pyarrow,
and are imported when they are first used; so is `view` (view/).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ringmain._bridge import Bridge, bridge
from ringmain._inspect import Participant, TopicInfo, clean, info, topics, unlink
from ringmain._latest import Latest, Tick
from ringmain._message import Message
from ringmain._message_stream import MessageStream
from ringmain._metrics import metrics
from ringmain._native import Batch, Lease, Reservation
from ringmain._publisher import Publisher
from ringmain._service import Client, Draft, Request, Server, ServerReport, ServiceInfo, service, services
from ringmain._subscriber import Subscriber, wait
from ringmain._syncqueue import SyncQueue
from ringmain.errors import (
    AddressError,
    Busy,
    Closed,
    CodecNotFound,
    Corrupt,
    DecodeError,
    FrameTopicChanged,
    Full,
    InUse,
    InvalidArgument,
    Lapped,
    MessageTooLarge,
    NotAllowed,
    RequestFailed,
    RingmainError,
    RosterFull,
    SchemaError,
    SchemaMismatch,
    ServerGone,
    SystemFailure,
    TakenOver,
    Timeout,
    TopicBusy,
    TopicMismatch,
    TopicNotFound,
    Unsupported,
)
from ringmain.frames import (
    Frame,
    FrameCopy,
    FrameDraft,
    FrameLayout,
    FramePublisher,
    FrameSubscriber,
    FrameTopic,
    frame_topic,
    frame_topics,
    peek_frame,
)

if TYPE_CHECKING:
    from ringmain.recording import Player, Recorder, Recording, Trigger, replay, trigger
    from ringmain.view import module as view  # noqa: F401 -- `rm.view`

__version__ = "0.1.0"

__all__ = [
    "AddressError",
    "Batch",
    "Bridge",
    "Busy",
    "Client",
    "Closed",
    "CodecNotFound",
    "Corrupt",
    "DecodeError",
    "Draft",
    "Frame",
    "FrameCopy",
    "FrameDraft",
    "FrameLayout",
    "FramePublisher",
    "FrameSubscriber",
    "FrameTopic",
    "FrameTopicChanged",
    "Full",
    "InUse",
    "InvalidArgument",
    "Lapped",
    "Latest",
    "Lease",
    "Message",
    "MessageStream",
    "MessageTooLarge",
    "NotAllowed",
    "Participant",
    "Player",
    "Publisher",
    "Recorder",
    "Recording",
    "Request",
    "RequestFailed",
    "Reservation",
    "RingmainError",
    "RosterFull",
    "SchemaError",
    "SchemaMismatch",
    "Server",
    "ServerGone",
    "ServerReport",
    "ServiceInfo",
    "Subscriber",
    "SyncQueue",
    "SystemFailure",
    "TakenOver",
    "Tick",
    "Timeout",
    "TopicBusy",
    "TopicInfo",
    "TopicMismatch",
    "TopicNotFound",
    "Trigger",
    "Unsupported",
    "bridge",
    "clean",
    "frame_topic",
    "frame_topics",
    "info",
    "metrics",
    "peek_frame",
    "replay",
    "service",
    "services",
    "topics",
    "trigger",
    "unlink",
    "wait",
]

for _name in __all__:
    if isinstance(_public := globals().get(_name), type) and _public.__module__.startswith("ringmain._"):
        _public.__module__ = "ringmain"  # the path to import it from, as reprs and pickles name it
del _name, _public

_RECORDING = frozenset({"Player", "Recorder", "Recording", "Trigger", "replay", "trigger"})


def __getattr__(name: str) -> Any:
    if name == "view":
        return importlib.import_module("ringmain.view")
    if name not in _RECORDING:
        raise AttributeError(f"module 'ringmain' has no attribute {name!r}")
    try:
        recording = importlib.import_module("ringmain.recording")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("pyarrow", "isal"):
            raise
        raise ModuleNotFoundError(
            f"ringmain.{name} needs {package}: pip install 'ringmain[record]'", name=error.name
        ) from error
    value = globals()[name] = getattr(recording, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
