"""The `shm` backend as one object: topics in the runtime directory, inspected and removed by the native module."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ringmain import _names, _native
from ringmain._publisher import Publisher
from ringmain._subscriber import Subscriber
from ringmain._topic_info import Participant, TopicInfo, parse_schema
from ringmain.backends import BackendProtocol, _features
from ringmain.errors import RingmainError, TopicNotFound

if TYPE_CHECKING:
    from ringmain._ring import ParticipantRecord


class ShmBackend(BackendProtocol):
    features = _features.column("shm")

    def open_publisher(self, topic: str, **options: Any) -> Publisher:
        return Publisher(topic, **options, backend="shm")

    def open_subscriber(self, topic: str, **options: Any) -> Subscriber:
        return Subscriber(topic, **options, backend="shm")

    def topics(self) -> list[TopicInfo]:
        found = []
        for name in _native.topics(_names.runtime_directory()):
            with suppress(RingmainError, ValueError):  # not a topic that this version can read
                found.append(self.info(name))
        return found

    def info(self, name: str) -> TopicInfo:
        seen = _native.inspect(_names.runtime_directory(), name)
        work, kept = seen["work"], seen["kept"]
        taken = work["taken"] if work else {}
        listed = [each for each in seen["participants"] if not (each["joining"] and each["alive"])]
        participants = [_participant(each, taken) for each in listed]
        return TopicInfo(
            name=name,
            contract=seen["contract"],
            capacity=seen["capacity_bytes"],
            used=seen["used_bytes"],
            next_sequence=seen["next_sequence"],
            epoch=seen["epoch"],
            persist=seen["persist"],
            schema=parse_schema(seen["schema"]),
            writers=[p for p in participants if p.role == "writer"],
            readers=[p for p in participants if p.role != "writer"],
            waiting=work["waiting"] if work else None,
            kept_kinds=kept["kinds"] if kept else None,
            max_kept_kinds=kept["max_kinds"] if kept else 0,
            not_kept=kept["not_kept"] if kept else 0,
            max_participants=seen["max_participants"],
        )

    def unlink(self, name: str, force: bool) -> None:
        directory = _names.runtime_directory()
        there = _native.unlink(directory, name, force)
        # A frame topic's buffers are removed with it; those that a reader still holds stay until it releases them.
        there |= _native.unlink_pool(directory, name, force)
        if not there:
            raise TopicNotFound(f"there is no topic '{name}' in {directory}", topic=name)

    def clean(self) -> list[str]:
        directory = _names.runtime_directory()
        gone = []
        for name in _native.topics(directory):
            with suppress(RingmainError, ValueError):  # not a topic, or not one that this process may change
                if _native.unlink_if_dead(directory, name):
                    gone.append(name)
        _native.clean_waiting(directory)
        for name in _native.pools(directory):  # after the topics: a frame topic's buffers stay as long as the topic
            with suppress(RingmainError):
                if _native.unlink_pool(directory, name, False) and name not in gone:
                    gone.append(name)
        return gone

    def wait(self, subscribers: list[Any], timeout: float | None) -> list[Any]:
        if all(subscriber._waits_natively for subscriber in subscribers):
            return _native.wait(subscribers, timeout)
        from ringmain.backends.shm import _lockstep_client  # loaded already: it made the class of one of them

        return _lockstep_client.wait(subscribers, timeout)


def _participant(record: ParticipantRecord, taken: dict[int, int]) -> Participant:
    return Participant(
        pid=record["pid"],
        name=record["name"],
        role=record["role"],
        user=record["uid"],
        position=record["position"],
        lag_messages=record["lag_messages"],
        lag_bytes=record["lag_bytes"],
        messages=record["messages"],
        bytes=record["bytes"],
        lost=record["lost"],
        holding=record["holding"],
        alive=record["alive"],
        waits_for=record["waits_for"],
        joined_ns=record["joined_ns"],
        pid_namespace=record["pid_namespace"],
        same_namespace=record["same_namespace"],
        started_ticks=record["started_ticks"],
        taken=taken.get(record["slot"], 0),
        taken_ns=record["taken_ns"],
        redelivered=record["redelivered"],
    )


BACKEND = ShmBackend()
