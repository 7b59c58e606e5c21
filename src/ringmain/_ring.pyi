"""The types of the native module. `_ring_lab` has the same names, and CRASH_POINTS: the labels of its crash points."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, TypedDict, TypeVar

from _typeshed import ReadableBuffer, WriteableBuffer

from ringmain._extension import Said
from ringmain._message import Message
from ringmain.frames._layout import FrameLayout
from ringmain.frames._views import FrameViews

CONTRACTS: list[dict[str, Any]]
LAYOUT: dict[str, int]
FRAMES_LAYOUT: dict[str, int]
DEFAULT_CAPACITY: int
SLOT_COUNT: int
MAX_SLOT_COUNT: int
KEPT_KINDS: int
MAX_KEPT_KINDS: int

class ParticipantRecord(TypedDict):
    slot: int
    role: Literal["writer", "reader", "observer"]
    pid: int  # in its own pid namespace
    uid: int
    pid_namespace: int
    started_ticks: int
    same_namespace: bool
    generation: int
    joined_ns: int
    position: int
    sequence: int
    messages: int
    bytes: int
    lost: int
    lag_messages: int  # of a reader: not of a worker, since what it has not taken is for others, too
    lag_bytes: int
    hold: int
    holding: bool
    waits_for: str | None  # writer: the name of the participant that blocks it
    blocked_ns: int
    alive: bool
    joining: bool  # a reader that has its slot, and does not yet know where it begins
    name: str
    taken_ns: int  # of a worker: since when it has its oldest message, by CLOCK_MONOTONIC; 0: it has none
    redelivered: int

class EndpointRecord(TypedDict):
    contract: str
    capacity_bytes: int
    epoch: int
    slot: int
    generation: int
    max_message_bytes: int  # of a publisher
    frames: bool  # are its messages descriptors of frames?

class WorkRecord(TypedDict):
    waiting: int  # messages that no worker has taken
    taken: dict[int, int]  # by slot: messages that its worker has taken and not finished

class KeptRecord(TypedDict):
    max_kinds: int
    kinds: int  # that have an entry
    not_kept: int  # messages that found no entry

class PeekRecord(TypedDict):
    seq: int
    time_ns: int
    sender: str
    kind: str
    size: int
    data: bytes | None  # None: larger than was asked for

class Inspection(TypedDict):
    contract: str
    capacity_bytes: int
    epoch: int
    next_sequence: int
    position: int
    frames: bool  # are its messages descriptors of frames?
    used_bytes: int
    persist: bool
    schema: bytes
    turn: int
    max_participants: int
    participants: list[ParticipantRecord]
    work: WorkRecord | None  # of a shared contract
    kept: KeptRecord | None  # with keep_last_per_kind

MessageState = Literal["free", "taken", "returned", "orphaned", "done"]
"""Of a message on a shared contract. Orphaned: its worker has died, and the message is not given back yet."""

class Publisher:
    def send(self, data: Any, kind: str = "", timeout: float | None = None) -> int:
        """Send a message; returns its sequence number.

        On the waiting contracts, waits until there is room: `Full` at the timeout, which names what blocks it.
        """

    def send_many(
        self,
        messages: Iterable[Any],
        kind: str = "",
        timeout: float | None = None,
        kinds: Iterable[str] | None = None,
    ) -> int:
        """Send messages with one wake-up; returns how many. If it times out before all are sent, `Full.sent` says
        how many were. `kind` is that of all of them; `kinds` has one for each instead."""

    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> int:
        """Wait until so many readers have joined; returns how many there are."""

    @property
    def all_read(self) -> bool:
        """Have all readers caught up?"""

    @property
    def closed(self) -> bool: ...
    @property
    def next_sequence(self) -> int:
        """The sequence number of the next message."""

    def _set_sender(self, sender: str, /) -> None: ...
    def _send_as(
        self, data: ReadableBuffer, seq: int, time_ns: int, kind: Said | str = "", timeout: float = -1, /
    ) -> int: ...
    def _open(
        self,
        *,
        directory: str,
        topic: str,
        contract: str | None,
        capacity: int | None,
        mode: int | None,
        persist: bool,
        takeover: bool,
        schema: bytes,
        name: str,
        sender: str,
        spin_ns: int,
        min_readers: int,
        replaces: tuple[int, int, int] | None,
        max_participants: int | None,
        keep_last_per_kind: int,
        frames: bool,
    ) -> None: ...
    def _close(self) -> None: ...
    def _arm(self, event: Event, /) -> int: ...
    def _describe(self) -> EndpointRecord: ...
    def _schema(self) -> bytes: ...
    def _set_schema(self, schema: bytes, /) -> None: ...
    def _set_encoder(self, encode: Callable[[Any], Any], accepts: tuple[type, ...] | None, /) -> None: ...

class Subscriber:
    def recv(self, timeout: float | None = None) -> Any:
        """The next message's data. `Timeout` if none comes in time, which names the writers. (`try_recv` returns None,
        and `recv_many` an empty list.)"""

    def try_recv(self) -> Any:
        """The next message's data, or None at once."""

    def recv_message(self, timeout: float | None = None) -> Message:
        """The next message with its envelope."""

    def try_recv_message(self) -> Message | None:
        """The next message, or None at once."""

    def recv_many(self, max_messages: int, timeout: float | None = 0) -> list[Any]:
        """The messages that are there, up to max_messages, all of one life of the topic. Waits, if at all, only for the
        first; if none comes in time the list is empty. (`recv` raises `Timeout` instead.) Ctrl-C while one is decoded
        takes none of them: the next call begins with the same message."""

    def recv_messages(self, max_messages: int, timeout: float | None = 0) -> list[Message]:
        """`recv_many` with the envelopes."""

    def recv_into(self, buffer: WriteableBuffer, timeout: float | None = None) -> int:
        """Copy the next message into a buffer; returns its size. If the buffer is too small, `ValueError`, and the
        message is still the next."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    @property
    def lost(self) -> int:
        """Messages lost since it was opened."""

    @property
    def closed(self) -> bool: ...
    @property
    def attached(self) -> bool:
        """Has the topic appeared?"""

    def _open(
        self,
        directory: str,
        topic: str,
        start: str,
        on_lap: str,
        conflate: bool,
        name: str,
        spin_ns: int,
        observe: str = "never",
        /,
    ) -> None: ...
    def _close(self) -> None: ...
    def fileno(self) -> int:
        """A descriptor that is readable while a message is there, for `selectors`, `poll` and event loops."""

    def _directory_count(self) -> int: ...
    def _raise_timeout(self, timeout: float | None, /) -> NoReturn: ...
    def _arm(self, event: Event, /) -> int: ...
    def _pass_on(self) -> None: ...
    def _set_max_deliveries(self, count: int, /) -> None: ...
    def _reject(self, task: Any, /) -> bool: ...
    def _give_back_all(self) -> None: ...
    def _screen(
        self,
        ignored_senders: Iterable[str],
        ignored_kinds: Iterable[str],
        only_senders: Iterable[str] | None,
        only_kinds: Iterable[str] | None,
        /,
    ) -> None: ...
    def _set_decoder(self, decode: Callable[[Any], Any] | None, /) -> None: ...
    def _describe(self) -> EndpointRecord | None: ...
    def _schema(self) -> bytes: ...

class ServerStatistics(TypedDict):
    replied: int
    failed: int
    gone: int
    expired: int
    in_flight: int
    queue_ns: list[int]  # of the first requests since the last call
    handler_ns: list[int]

class NativeServer:
    """The hot half of `ringmain.Server`."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def _take_requests(self, max_requests: int, timeout: float | None, /) -> list[Any]: ...
    def _set_up(
        self,
        subscriber: Subscriber | None,
        request_class: type,
        publishers: dict[str, Any],
        round_ns: int,
        decodes: bool,
        /,
    ) -> bool: ...
    def _unanswered(self) -> list[Any]: ...
    def _statistics(self) -> ServerStatistics: ...

class NativeRequest:
    """The hot half of `ringmain.Request`."""

    @property
    def data(self) -> Any: ...
    @property
    def number(self) -> int: ...
    @property
    def client(self) -> str: ...
    @property
    def sent_ns(self) -> int: ...
    @property
    def taken_ns(self) -> int: ...
    @property
    def redelivered(self) -> int: ...
    @property
    def answered(self) -> bool: ...
    @property
    def retry(self) -> bool: ...
    @property
    def deadline_ns(self) -> int | None: ...
    @property
    def _server(self) -> Any: ...
    @property
    def _lease(self) -> Any: ...
    def reply(self, value: Any, /) -> None: ...
    def _finish(self, outcome: int, gives_back: bool, /) -> None: ...
    def _abandon(self) -> None: ...
    def _payload(self) -> bytes: ...
    def _view(self) -> Any: ...
    def _bind(
        self,
        server: NativeServer,
        lease: Any,
        seq: int,
        sender: str,
        extension: bytes,
        sent_ns: int,
        redelivered: int,
        taken_ns: int,
        begun_ns: int,
        /,
    ) -> None: ...

class NativeClient:
    """The hot half of `ringmain.Client`."""

    def call(
        self,
        request: Any,
        timeout: float | None = None,
        retry: bool = False,
        *,
        room_timeout: float | None = None,
        if_idle: bool = False,
    ) -> Any: ...
    def _connect(self, end: Any, decode: Callable[[Any], Any] | None, /) -> None: ...

class ClientEnd:
    """A client's calls in flight, and the turn to receive their replies."""

    in_flight: int
    slept: int
    def __init__(self, publisher: Publisher, replies: Subscriber) -> None: ...
    def new_call(
        self,
        timeout: float | None,
        retry: bool,
        done: Callable[[Call, BaseException | None], None] | None = None,
        waiter: Waiter | None = None,
        /,
    ) -> Call: ...
    def send(self, request: Any, call: Call, room_s: float | None, /) -> int: ...
    def commit(self, reservation: Reservation, call: Call, /) -> int: ...
    def wait(self, call: Call, /) -> None: ...
    def drop(self, call: Call, /) -> None: ...
    def request_state(self, number: int, /) -> MessageState: ...
    def withdraw(self, number: int, /) -> None: ...
    def new_waiter(self) -> Waiter: ...
    def wait_for_any(self, waiter: Waiter, /) -> list[Call]: ...
    def receive_now(self, waiter: Waiter, looks: bool, /) -> list[Call]: ...
    def arm(self, waiter: Waiter, event: Event, /) -> list[int]: ...
    def forget(self, waiter: Waiter, /) -> list[Call]: ...
    def close(self) -> None: ...

class Waiter:
    """Is told of the outcomes of calls that no thread waits for."""

class Call:
    """A request of a client, until its outcome is known."""

    number: int
    timeout: float | None
    deadline_ns: int | None
    retry: bool
    done: Callable[[Call, BaseException | None], None]
    answer: str
    payload: bytes | None
    sent: bool

S = TypeVar("S", bound=Subscriber | FrameSubscriber)

class Reservation:
    """A message being written in place. Sent when its block ends, dropped on an exception."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def truncate(self, size: int, /) -> None:
        """Send only the first `size` bytes."""

    def commit(self) -> int:
        """Send it now; returns its sequence number."""

    def discard(self) -> None:
        """Do not send it."""

    def _append(self, data: ReadableBuffer, timeout: float | None = None, /) -> int: ...

class Lease:
    """A message read in place."""

    @property
    def data(self) -> Any:
        """The message as a read-only memoryview, or decoded on a typed topic."""

    @property
    def seq(self) -> int: ...
    @property
    def time_ns(self) -> int: ...
    @property
    def sender(self) -> str: ...
    @property
    def redelivered(self) -> int:
        """On `work`: how often another worker had it before and gave it back."""

    def _reject(self) -> None: ...
    @property
    def kind(self) -> str: ...
    @property
    def extension(self) -> bytes:
        """What ringmain's own parts say of it."""

    @property
    def trace(self) -> str:
        """The `traceparent` of the span in which it was sent; empty if there was none."""

    @property
    def lost(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def release(self) -> None:
        """Give the message back. On `broadcast`, raises `Lapped` if the writer has overwritten it."""

class HeapBuffer:
    """Memory of this process that can tell whether it is in use, for the backends written in Python."""

    def _own(self, source: bytes | int, token: object = None, /) -> None:
        """Show these bytes, or make so many that can be written. The token exists as long as the memory is in use."""

    def _let_go(self, view: memoryview | None, /) -> None:
        """Drop the memory as soon as nothing shows it; release the view, if there is one."""

    def viewed(self) -> bool:
        """Does a view, an array or a tensor of it exist?"""

    def __buffer__(self, flags: int, /) -> memoryview: ...

class Batch:
    """Messages as Arrow columns: seq, time_ns, sender, kind, lost, extension, data."""

    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def lost(self) -> int:
        """How many messages were lost before those in it."""

    @property
    def epoch(self) -> int:
        """The epoch of the topic's life that the messages are from: a batch never mixes two. 0 if there are none."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...
    def __arrow_c_schema__(self) -> object: ...

class Event:
    """A descriptor for an event loop, and the tokens of the bells that rang."""

    def fileno(self) -> int: ...
    def take(self) -> list[int]: ...
    def forget(self, token: int, /) -> None: ...

class PoolInspection(TypedDict):
    buffers: int
    buffer_bytes: int
    epoch: int
    frames: int
    dropped: int
    last_ns: int
    interval_ns: int
    huge_pages: bool
    alive: bool
    schema: bytes
    holders: list[tuple[str, str, int]]  # name, pid in words, buffers held

_Numbers = tuple[int, ReadableBuffer]
_Texts = tuple[int, ReadableBuffer, ReadableBuffer | None]

class Track:
    """Consecutive rows of one topic of a recording, and how far they are published again. Of each column: the row in
    its buffers that is the first, and the buffers as Arrow lays them out."""

    def __new__(
        cls,
        rows: int,
        seq: _Numbers,
        publish_time: _Numbers,
        publish_ns: _Numbers,
        sender: _Texts,
        kind: _Texts,
        extension: _Texts,
        payload: _Texts,
        /,
    ) -> Self: ...
    @property
    def at(self) -> int:
        """Rows that are published, or skipped."""

    @property
    def time_ns(self) -> int | None:
        """The recorded publish time of the next row; None after the last."""

    def set_publisher(self, publisher: Publisher, /) -> None:
        """Who publishes the rows; without one, `replay` stops at them."""

    def skip(self) -> None:
        """Go on after the next row."""

class FrameDraft(FrameViews):
    """A frame being filled. Sent when its block is left, dropped on an exception.

    Set what you know better: `id` (counted from 0), `start_ns` (when the block began), `end_ns` (when it ended),
    `valid` (True), and `meta`, a small dict. Of a frame of bytes also `size`, if fewer are used. An array that outlives
    the block turns read-only, and its buffer is not used again before it is gone.
    """

    id: int
    start_ns: int
    end_ns: int
    valid: bool
    meta: dict[str, Any]
    size: int
    @property
    def seq(self) -> int | None:
        """Its sequence number, once it is sent."""

    @property
    def data(self) -> memoryview:
        """The buffer, writable."""

    @property
    def layout(self) -> FrameLayout: ...
    @property
    def dropped(self) -> bool:
        """No buffer was free: it will not be sent. The block runs on memory of its own."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def commit(self) -> int | None:
        """Send it now; returns its sequence number, or None if it was dropped."""

    def discard(self) -> None:
        """Do not send it."""

    def _fill(self, data: ReadableBuffer, /) -> None: ...
    def _remember(self, array: Any, /) -> Any: ...

class FramePublisher:
    def frame(self, timeout: float | None = None) -> FrameDraft:
        """The next free buffer: `with pub.frame() as f: f.array[:] = ...`. Sent when the block is left, dropped on an
        exception. If readers hold all buffers, waits: `Full` when the time is up, naming them; or, with
        `when_full="drop"`, gives memory that will not be sent."""

    @property
    def dropped(self) -> int:
        """Frames dropped because no buffer was free."""

    @property
    def closed(self) -> bool: ...
    def _open(
        self,
        publisher: Publisher,
        layout: FrameLayout,
        buffers: int,
        buffer_bytes: int,
        fixed: bool,
        mode: int,
        huge_pages: bool,
        drops: bool,
        schema: bytes,
        name: str,
        /,
    ) -> None: ...
    def _check_no_drafts(self) -> None: ...
    def _leave(self) -> None: ...
    def _memory(self) -> tuple[int, int] | None: ...

class Frame(FrameViews):
    """A frame where it lies, read-only. Its buffer is not reused until the block is left, or `release` was called, and
    the last array made from it is gone. After the block, `array` and `data` raise."""

    @property
    def id(self) -> int: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def valid(self) -> bool: ...
    @property
    def meta(self) -> dict[str, Any]: ...
    @property
    def size(self) -> int:
        """Bytes that are used."""

    @property
    def buffer(self) -> int:
        """Which buffer of the pool it is in."""

    @property
    def seq(self) -> int: ...
    @property
    def time_ns(self) -> int: ...
    @property
    def sender(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def lost(self) -> int:
        """Frames lost just before it."""

    @property
    def data(self) -> memoryview: ...
    @property
    def layout(self) -> FrameLayout: ...
    @property
    def held(self) -> bool:
        """Is its buffer kept from being reused?"""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def release(self) -> None:
        """Give the buffer back, as soon as no view of it is left."""

class FrameSubscriber:
    def recv(self, timeout: float | None = None) -> Frame:
        """The next frame: `with sub.recv(timeout=1.0) as f: use(f.array)`. `Timeout` when none came in time."""

    def try_recv(self) -> Frame | None:
        """The next frame, or None at once."""

    def __iter__(self) -> Iterator[Frame]: ...
    def __next__(self) -> Frame: ...
    def _open(self, subscriber: Subscriber, /) -> None: ...
    def _attached(self) -> None: ...
    def _leave_pool(self) -> None: ...
    def _memory(self) -> tuple[int, int] | None: ...

def set_meta_codec(encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], /) -> None: ...
def inspect_pool(directory: str, stream: str, /) -> PoolInspection: ...
def glance(directory: str, stream: str, epoch: int, buffer: int, number: int, size: int, /) -> bytearray | None: ...
def pools(directory: str, /) -> list[str]: ...
def unlink_pool(directory: str, stream: str, force: bool, /) -> bool: ...
def leave_pools() -> None: ...
def nothing() -> None: ...
def reserve(publisher: Publisher, size: int, kind: str, timeout: float | None, /) -> Reservation: ...
def borrow(subscriber: Subscriber, timeout: float | None = None, /) -> Lease: ...
def borrow_many(subscriber: Subscriber, max_messages: int, timeout: float | None, /) -> list[Lease]: ...
def recv_batch(subscriber: Subscriber, max_messages: int, timeout: float | None, max_bytes: int, /) -> Batch: ...
def replay(
    tracks: list[Track],
    before_ns: int,
    first_ns: int,
    base_ns: int,
    speed: float,
    most: int,
    original: bool,
    timeout_s: float,
    /,
) -> tuple[Literal["ended", "before", "early", "yours", "invalid", "slice"], int, int, int, int, int, int, int]:
    """Publish the rows of tracks that are due, by their times: (why it stopped, which track that is about, messages,
    bytes, recorded time of the last, when the next is due, how late the last was, how late any was; -1: no message was
    due). A row of time `first_ns` is due when the monotonic clock says `base_ns`. It stops when a track has ended, at
    `before_ns`, when nothing is due for a while, at a row without a publisher or that no topic can have, after `most`
    messages or a slice of time. Raises `Full` if readers blocked it for `timeout_s` and nothing was published."""

def wait(subscribers: Sequence[S], timeout: float | None = None, directory_seen: int = -1, /) -> list[S]: ...
def inspect(directory: str, topic: str, /) -> Inspection: ...
def inspect_all(directory: str, /) -> dict[str, Inspection | None]: ...
def peek(directory: str, topic: str, count: int, max_bytes: int, /) -> list[PeekRecord]: ...
def topics(directory: str, /) -> list[str]: ...
def unlink(directory: str, topic: str, force: bool, /) -> bool: ...
def unlink_if_dead(directory: str, topic: str, /) -> bool: ...
def clean_waiting(directory: str, /) -> None: ...
