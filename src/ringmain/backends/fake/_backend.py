"""The `fake` backend as one object: the topics of the world that is open."""

from __future__ import annotations

import os
from typing import Any

from ringmain import _names
from ringmain._topic_info import Participant, TopicInfo, parse_schema
from ringmain.backends import BackendProtocol, _features
from ringmain.backends._python.reference_ring import Ring, Slot
from ringmain.backends.fake import _world as worlds
from ringmain.backends.fake._publisher import FakePublisher
from ringmain.backends.fake._subscriber import FakeSubscriber, wait


class FakeBackend(BackendProtocol):
    features = _features.column("fake")

    def open_publisher(self, topic: str, **options: Any) -> FakePublisher:
        return FakePublisher(topic, **options)

    def open_subscriber(self, topic: str, **options: Any) -> FakeSubscriber:
        return FakeSubscriber(topic, **options)

    def topics(self) -> list[TopicInfo]:
        return [_describe(ring) for ring in worlds.current().rings.values()]

    def info(self, name: str) -> TopicInfo:
        return _describe(worlds.current().find_ring(name))

    def unlink(self, name: str, force: bool) -> None:
        worlds.current().unlink(name, force)

    def clean(self) -> list[str]:
        return worlds.current().clean()

    def wait(self, subscribers: list[Any], timeout: float | None) -> list[Any]:
        return wait(subscribers, timeout)


def _describe(ring: Ring) -> TopicInfo:
    participants = [_participant(ring, slot) for slot in ring.slots]
    return TopicInfo(
        name=ring.topic,
        contract=ring.contract,
        capacity=ring.capacity,
        used=min(max(0, ring.commit - ring.used_from()), ring.capacity),
        next_sequence=ring.next_sequence,
        epoch=ring.epoch,
        persist=ring.persist,
        schema=parse_schema(ring.schema),
        writers=[p for p in participants if p.role == "writer"],
        readers=[p for p in participants if p.role != "writer"],
        backend="fake",
        waiting=len(list(ring.free())) if ring.traits.shared else None,
        kept_kinds=len(ring.kept) if ring.kept_kinds else None,
        max_kept_kinds=ring.kept_kinds,
        not_kept=ring.not_kept,
        max_participants=ring.slot_count,
    )


def _participant(ring: Ring, slot: Slot) -> Participant:
    reader = slot.role != "writer" and (not ring.traits.shared or slot.role == "observer")
    return Participant(
        pid=os.getpid(),
        pid_namespace=_names.pid_namespace(),
        name=slot.name,
        role=slot.role,
        user=os.geteuid(),
        position=slot.position,
        lag_messages=max(0, ring.next_sequence - slot.sequence) if reader else 0,
        lag_bytes=max(0, ring.commit - slot.position) if reader else 0,
        messages=slot.messages,
        bytes=slot.bytes,
        lost=slot.lost,
        holding=slot.hold is not None,
        waits_for=slot.waits_for,
        joined_ns=slot.joined_ns,
        taken=slot.taken,
        redelivered=slot.redelivered,
    )


BACKEND = FakeBackend()
