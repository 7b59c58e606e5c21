"""What a service asks of its topics."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ringmain import _inspect, backends
from ringmain._service._topics import lane_number
from ringmain.errors import RingmainError

if TYPE_CHECKING:
    from ringmain._inspect import TopicInfo


def has_readers(publisher: Any) -> bool:
    """Does a living reader take part?"""
    try:
        publisher.wait_for_readers(1, timeout=0)
    except RingmainError:
        return False
    return True


def lanes_of(service: str) -> list[TopicInfo]:
    """The topics that its clients send to, the first lane first. Lanes in between may be missing: the clients of each
    come and go."""
    # By name first: of thousands of topics, most are of replies.
    names = backends.requests(backends.choose()).topic_names()
    numbers = {lane: name for name in names if (lane := lane_number(service, name)) is not None}
    found: list[TopicInfo] = []
    for lane in sorted(numbers):
        with suppress(RingmainError, ValueError):  # removed meanwhile, or not a topic that can be read
            found.append(_inspect.info(numbers[lane]))
    return [topic for topic in found if topic.contract == "work"]


def remove_if_left(topic: str, backend: backends.BackendProtocol) -> None:
    """Requests of clients that are all gone are for no process: if none takes part any more, remove the topic.

    The caller keeps its backend from when it was opened: at the end of the interpreter, none can be imported.
    """
    with suppress(RingmainError, OSError):
        there = backend.info(topic)
        if not any(each.alive for each in (*there.writers, *there.readers)):
            backend.unlink(topic, force=False)
