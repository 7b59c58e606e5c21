"""The topics of a service."""

from __future__ import annotations

import re
import secrets

from ringmain import _names, backends
from ringmain.backends import _features

CLIENTS_PER_LANE = 96
"""Of the 128 slots of a topic. The others are for servers, observers, and clients that join at the same moment."""
FEATURE = "requests: Server and Client"

FOREVER_S = 9e9
"""Later than any clock can tell in nanoseconds."""
_REPLIES = re.compile(r"(.+)\.replies/[^/]+")
_LANE = re.compile(r"(.+)\.lane([0-9]+)")
_LONGEST_NAME = 40


def check_service(name: str, backend: str | None) -> backends.Backend:
    """The backend of a service of this name, if it may have one."""
    _names.check_topic(name)
    chosen = backends.choose(backend)
    if _features.missing(chosen, FEATURE) is not None:
        _features.refuse(chosen, name, FEATURE)
    return chosen


def lane_topic(service: str, lane: int) -> str:
    return service if lane == 1 else f"{service}.lane{lane}"


def lane_number(service: str, topic: str) -> int | None:
    """None: the topic is no lane of this service."""
    if topic == service:
        return 1
    match = _LANE.fullmatch(topic)
    return int(match[2]) if match and match[1] == service else None


def replies_topic(service: str, client: str) -> str:
    return f"{service}.replies/{client}"


def reports_topic(service: str) -> str:
    return f"{service}.servers"


def service_of(topic: str) -> str | None:
    """The service that a topic of this name may be part of, besides as its first lane."""
    for pattern in (_REPLIES, _LANE):
        if match := pattern.fullmatch(topic):
            return match[1]
    return topic.removesuffix(".servers") if topic.endswith(".servers") else None


def new_client(name: str | None) -> str:
    """A sender for a client: readable, a part of a topic's name, and unlike any other."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", _names.participant_name(name))[:_LONGEST_NAME]
    return f"{readable or 'client'}-{secrets.token_hex(6)}"
