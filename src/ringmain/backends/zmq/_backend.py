"""The `zmq` backend as one object. It shows the topics whose publisher runs on this machine and listens on `ipc://`.

Owns this invariant: inspecting and cleaning does not load ZeroMQ, and does not even load the registry in a runtime
directory where no topic was ever on zmq. Every program cleans once, and most never use zmq.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ringmain import _names
from ringmain._topic_info import Participant, Role, TopicInfo, parse_schema
from ringmain.backends import BackendProtocol, _features
from ringmain.errors import TopicNotFound

if TYPE_CHECKING:
    from ringmain.backends.zmq._registry import Advertisement


class ZmqBackend(BackendProtocol):
    features = _features.column("zmq")

    def open_publisher(self, topic: str, **options: Any) -> Any:
        from ringmain.backends.zmq._publisher import ZmqPublisher

        return ZmqPublisher(topic, **options)

    def open_subscriber(self, topic: str, **options: Any) -> Any:
        from ringmain.backends.zmq._subscriber import ZmqSubscriber

        return ZmqSubscriber(topic, **options)

    def topics(self) -> list[TopicInfo]:
        if not _was_used():
            return []
        from ringmain.backends.zmq import _registry

        return [_describe(advertisement) for advertisement in _registry.living_publishers()]

    def info(self, name: str) -> TopicInfo:
        if _was_used():
            from ringmain.backends.zmq import _registry

            if (publisher := _registry.living_publisher(name)) is not None:
                return _describe(publisher)
        raise TopicNotFound(f"no publisher on this machine has topic '{name}' on ipc://", topic=name)

    def unlink(self, name: str, force: bool) -> None:
        raise TopicNotFound(
            f"topic '{name}' has no file to remove: on zmq a topic exists while its publisher is open", topic=name
        )

    def clean(self) -> list[str]:
        if not _was_used():
            return []
        from ringmain.backends.zmq import _registry

        return _registry.remove_dead()

    def wait(self, subscribers: list[Any], timeout: float | None) -> list[Any]:
        from ringmain.backends.zmq._subscriber import wait

        return wait(subscribers, timeout)


def _was_used() -> bool:
    return os.path.isdir(os.path.join(_names.runtime_directory(), ".zmq"))


def _describe(writer: Advertisement) -> TopicInfo:
    from ringmain.backends.zmq import _registry

    reader = _registry.living_reader(writer.topic)
    return TopicInfo(
        name=writer.topic,
        contract=writer.contract,
        capacity=writer.capacity,
        used=0,
        next_sequence=0,
        epoch=writer.epoch,
        persist=False,
        schema=parse_schema(writer.schema),
        writers=[_participant(writer, "writer")],
        readers=[] if reader is None else [_participant(reader, "reader")],
        backend="zmq",
    )


def _participant(advertisement: Advertisement, role: Role) -> Participant:
    """An advertisement says who it is. Only the process itself knows what it has sent or received."""
    who = advertisement
    ours = who.pid_namespace != 0 and who.pid_namespace == _names.pid_namespace()
    return Participant(
        who.pid, who.name, role, who.uid, joined_ns=who.epoch, pid_namespace=who.pid_namespace, same_namespace=ours
    )


BACKEND = ZmqBackend()
