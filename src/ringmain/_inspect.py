"""Inspecting topics from outside, and removing them. Inspecting takes no slot in a topic and slows no participant."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ringmain import _names, backends
from ringmain._topic_info import Participant, TopicInfo
from ringmain.errors import TopicNotFound

__all__ = ["Participant", "TopicInfo", "clean", "info", "topics", "unlink"]

T = TypeVar("T")


def topics() -> list[TopicInfo]:
    """All topics, by name. One that cannot be read (garbage, another version) is left out; `info` says why."""
    found = [topic for backend in backends.visible() for topic in backend.topics()]
    return sorted(found, key=lambda topic: topic.name)


def info(name: str) -> TopicInfo:
    """What is known of a topic. Raises `TopicNotFound` if there is none."""
    return _where_it_is(name, lambda backend: backend.info(name))


def unlink(name: str, *, force: bool = False) -> None:
    """Remove a topic with all its messages. `TopicBusy` while it has participants, unless forced: then its publishers
    cannot send any more, and its subscribers wait for the next topic of that name."""
    _where_it_is(name, lambda backend: backend.unlink(name, force))


def clean() -> list[str]:
    """Remove the topics whose participants are all dead, and only those; returns their names. Topics that persist, and
    pipes with unread messages, stay."""
    return sorted(name for backend in backends.visible() for name in backend.clean())


def _where_it_is(name: str, ask: Callable[[backends.BackendProtocol], T]) -> T:
    """The answer of the first backend that has the topic."""
    _names.check_topic(name)
    missing: TopicNotFound | None = None
    for backend in backends.visible():
        try:
            return ask(backend)
        except TopicNotFound as error:
            missing = missing or error
    assert missing is not None
    try:
        raise missing
    finally:
        del (
            missing
        )  # it refers to this frame: the two would keep each other, and the callers' variables, until the next gc
