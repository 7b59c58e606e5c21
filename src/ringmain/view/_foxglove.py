"""Topics for viewers that speak Foxglove's WebSocket protocol (Foxglove, Lichtblick): a channel for each.

Invariant: a topic that no viewer subscribes to costs nothing: it has no observer, and none of its frames is copied. One
that is subscribed to is forwarded whole: every message that an observer receives, in its order; frames conflated.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import foxglove
from foxglove.websocket import Capability, ServerListener, StatusLevel, WebSocketServer

from ringmain import _inspect, _names, _native
from ringmain._publisher import Publisher
from ringmain._subscriber import Subscriber
from ringmain.errors import RingmainError
from ringmain.frames import frame_topic, peek_frame
from ringmain.recording._filters import matches_any
from ringmain.recording._json_form import IMAGE_ENCODINGS
from ringmain.typed import Schema
from ringmain.view._counts import Counts
from ringmain.view._forms import RAW, Form, form_of
from ringmain.view._foxglove_services import Convert, FoxgloveServices
from ringmain.view._live import NAME
from ringmain.view._pictures import of_frame
from ringmain.view._rerun_server import ViewerFailed, check_free
from ringmain.view._session import repeat
from ringmain.view._shown import Image, Pixels

_LOOK_S, PERIOD_S = 0.5, 0.01
_MOST_AT_ONCE = 1000
_MOST_PEEKED = 1 << 24
_BACKLOG = 1 << 16
"""Messages that wait for a slow viewer, before the server drops the oldest."""


@dataclass
class _Topic:
    epoch: int
    form: Form
    channel: foxglove.Channel
    frames: bool
    sub: Subscriber | None = None
    frame_seq: int | None = None


def start(
    address: str, port: int, context: foxglove.Context, listener: Listener, **options: Any
) -> tuple[WebSocketServer, str]:
    """(a server of the channels of a context, its address)."""
    if port:
        check_free(address, port)
    try:
        server = foxglove.start_server(
            name="ringmain", host=address, port=port, context=context, server_listener=listener,
            supported_encodings=["json"], message_backlog_size=_BACKLOG, **options,
        )  # fmt: skip
    except RuntimeError as error:
        raise ViewerFailed(f"Foxglove's server cannot listen on port {port} of {address}: {error}") from None
    return server, f"ws://{f'[{address}]' if ':' in address else address}:{server.port}"


class FoxgloveServer:
    """Serves the topics that match. `hz`: frames a second.   allow_publish: names or patterns of topics that viewers
    may publish to; allow_call: of services that they may call. `encode` makes payloads of what they send, JSON, and
    `decode` JSON of replies."""

    def __init__(
        self,
        patterns: Sequence[str],
        address: str,
        port: int,
        *,
        hz: float,
        allow_publish: Sequence[str] = (),
        allow_call: Sequence[str] = (),
        encode: Convert = lambda schema, data: data,
        decode: Convert = lambda schema, data: data,
    ) -> None:
        self._patterns, self._hz = list(patterns) or ["*"], hz
        self._allowed, self._encode = list(allow_publish), encode
        self._topics: dict[str, _Topic] = {}
        self._publishers: dict[str, Publisher] = {}
        self._services = FoxgloveServices(allow_call, encode, decode)
        self._context = foxglove.Context()
        self._listener = Listener()
        self._look_s = self._frames_s = 0.0
        self.counts: dict[str, Counts] = {}
        allowed = [(Capability.ClientPublish, allow_publish), (Capability.Services, allow_call)]
        self._server, self.url = start(
            address, port, self._context, self._listener, capabilities=[what for what, names in allowed if names]
        )

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set."""
        repeat(self.turn, PERIOD_S, stop)

    def turn(self) -> None:
        """Announces what is new, and forwards what has come."""
        now_s = time.monotonic()
        if now_s >= self._look_s:
            self._look_s = now_s + _LOOK_S
            self._look()
            self._services.look(self._server)
        frames = now_s >= self._frames_s
        if frames:
            self._frames_s = max(self._frames_s + 1 / self._hz, now_s)
        wanted = self._listener.wanted()
        for name, topic in self._topics.items():
            if topic.channel.id() not in wanted:
                self._let_go(topic)
            elif not topic.frames:
                self._forward(name, topic)
            elif frames:
                self._forward_frame(name, topic)
        for name, data in self._listener.published():
            self._publish(name, data)

    def close(self) -> None:
        self._server.stop()
        self._services.close()
        for topic in self._topics.values():
            self._let_go(topic)
        for publisher in self._publishers.values():
            publisher.close()

    # ------------------------------------------------------------------------------------------------ channels

    def _look(self) -> None:
        there = [name for name in _native.topics(_names.runtime_directory()) if matches_any(name, self._patterns)]
        for name in self._topics.keys() - set(there):
            self._remove(name)
        for name in there:
            try:
                info = _inspect.info(name)
            except (RingmainError, ValueError):
                continue
            known = self._topics.get(name)
            if known is not None and known.epoch != info.epoch:
                self._remove(name)
            if name not in self._topics:
                self._announce(name, info.epoch, info.schema)
            elif not info.persist and all(each.name == NAME for each in (*info.writers, *info.readers)):
                self._let_go(self._topics[name])

    def _announce(self, name: str, epoch: int, schema: Schema | None) -> None:
        try:
            frames = frame_topic(name).layout.format in IMAGE_ENCODINGS
        except (RingmainError, ValueError):
            frames = False
        form = RAW if frames else form_of(schema, _newest(name) if schema is None else None)
        channel = foxglove.Channel(name, schema=form.schema, message_encoding=form.encoding, context=self._context)
        self._topics[name] = _Topic(epoch, form, channel, frames)
        self.counts.setdefault(name, Counts())

    def _remove(self, name: str) -> None:
        topic = self._topics.pop(name)
        self._let_go(topic)
        topic.channel.close()

    def _let_go(self, topic: _Topic) -> None:
        if topic.sub is not None:
            topic.sub.close()
            topic.sub = None

    # ------------------------------------------------------------------------------------------------ messages

    def _forward(self, name: str, topic: _Topic) -> None:
        try:
            if topic.sub is None:
                topic.sub = Subscriber(name, name=NAME, observe="always", backend="shm")
            received = topic.sub.recv_messages(_MOST_AT_ONCE, timeout=0)
        except RingmainError as error:
            self._say(f"{name} cannot be observed: {error}", StatusLevel.Error, name)
            return
        counts = self.counts[name]
        for message in received:
            counts.messages += 1
            counts.lost += message.lost
            if message.lost:
                self._say(f"{name}: this view lost {message.lost:,} messages", StatusLevel.Warning, name)
            try:
                topic.channel.log(topic.form.encode(message.data, message.time_ns), log_time=message.time_ns)
            except (ValueError, TypeError) as error:
                self._say(f"{name}: message {message.seq} does not decode: {error}", StatusLevel.Error, name)

    def _forward_frame(self, name: str, topic: _Topic) -> None:
        with suppress(RingmainError, ValueError):
            frame = peek_frame(name)
            if frame is None or frame.seq == topic.frame_seq:
                return
            counts = self.counts[name]
            passed = frame.seq - topic.frame_seq if topic.frame_seq is not None and frame.seq > topic.frame_seq else 1
            topic.frame_seq = frame.seq
            counts.messages += passed
            counts.pictures += 1
            counts.pictures_left_out += passed - 1
            thing = of_frame((), frame.time_ns, frame)
            if isinstance(thing, Image) and isinstance(thing.picture, Pixels):
                topic.channel.log(topic.form.encode(thing.picture, frame.time_ns), log_time=frame.time_ns)

    def _publish(self, name: str, data: bytes) -> None:
        """What a viewer sent."""
        if not matches_any(name, self._allowed):
            self._say(f"publishing to {name} is not allowed: --allow-publish", StatusLevel.Error, f"publish {name}")
            return
        try:
            publisher = self._publishers.get(name)
            schema = _inspect.info(name).schema
            if publisher is None:
                publisher = self._publishers[name] = Publisher(name, name=NAME, backend="shm")
            publisher.send(self._encode(schema, data), timeout=0)
        except Exception as error:  # whatever is wrong with what a viewer sent, the others go on
            self._say(f"not published to {name}: {error}", StatusLevel.Error, f"publish {name}")

    def _say(self, text: str, level: StatusLevel, topic: str) -> None:
        self._server.publish_status(text, level, topic)


class Listener(ServerListener):
    """Called in threads of the server: it notes, and the loop does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: dict[int, int] = {}
        self._client_channels: dict[tuple[int, int], str] = {}
        self._published: list[tuple[str, bytes]] = []

    def wanted(self) -> set[int]:
        """The channels that some viewer subscribes to."""
        with self._lock:
            return {channel for channel, viewers in self._wanted.items() if viewers}

    def published(self) -> list[tuple[str, bytes]]:
        """What viewers sent since the last call: topic and data."""
        with self._lock:
            taken, self._published = self._published, []
            return taken

    def on_subscribe(self, client: Any, channel: Any) -> None:
        with self._lock:
            self._wanted[channel.id] = self._wanted.get(channel.id, 0) + 1

    def on_unsubscribe(self, client: Any, channel: Any) -> None:
        with self._lock:
            self._wanted[channel.id] = max(0, self._wanted.get(channel.id, 0) - 1)

    def on_client_advertise(self, client: Any, channel: Any) -> None:
        with self._lock:
            self._client_channels[client.id, channel.id] = channel.topic

    def on_client_unadvertise(self, client: Any, client_channel_id: int) -> None:
        with self._lock:
            self._client_channels.pop((client.id, client_channel_id), None)

    def on_message_data(self, client: Any, client_channel_id: int, data: bytes) -> None:
        with self._lock:
            topic = self._client_channels.get((client.id, client_channel_id))
            if topic is not None and len(self._published) < _MOST_AT_ONCE:
                self._published.append((topic, bytes(data)))


def _newest(topic: str) -> bytes | None:
    """A message that is there, without joining."""
    with suppress(RingmainError, ValueError):
        for message in reversed(_native.peek(_names.runtime_directory(), topic, 1, _MOST_PEEKED)):
            data: bytes | None = message["data"]
            return data
    return None
