"""The topics of a service, and what the envelopes of its messages say."""

from __future__ import annotations

import functools
import re
import secrets
from typing import Any, Literal, NamedTuple

from ringmain import _names, backends
from ringmain._screens import split_kind
from ringmain.backends import _features

CLIENTS_PER_LANE = 96
"""Of the 128 slots of a topic. The others are for servers, observers, and clients that join at the same moment."""
FEATURE = "requests: Server and Client"

Outcome = Literal["", "failed", "gone"]
"""Of a reply: a result, the text of a failure, or: the server that had the request is gone."""
_CALL = re.compile(r"call(?: ([0-9.e+-]+)s)?( retry)?")
_REPLIES = re.compile(r"(.+)\.replies/[^/]+")
_LANE = re.compile(r"(.+)\.lane([0-9]+)")
_LONGEST_NAME = 40


class Terms(NamedTuple):
    """What a client asks for beside the result."""

    timeout_ns: int | None
    """From when the request was sent; None: no limit."""
    retry: bool
    """May the request run a second time, if its server dies?"""


class Answer(NamedTuple):
    """Which request a reply is for, and what kind of reply it is."""

    number: int
    outcome: Outcome


def check_service(name: str, backend: str | None) -> backends.Backend:
    """The backend of a service of this name, if it may have one."""
    _names.check_topic(name)
    chosen = backends.choose(backend)
    if _features.missing(chosen, FEATURE) is not None:
        _features.refuse(chosen, name, FEATURE)
    return chosen


def lane_topic(service: str, lane: int) -> str:
    return service if lane == 1 else f"{service}.lane{lane}"


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


@functools.lru_cache(maxsize=256)
def kind_of_request(timeout: float | None, retry: bool) -> str:
    limit = "" if timeout is None else f" {max(timeout, 0.0):.9g}s"
    return f"call{limit}{' retry' if retry else ''}"


@functools.lru_cache(maxsize=256)
def terms_of(kind: str) -> Terms:
    match = _CALL.fullmatch(split_kind(kind).name)
    if match is None:  # sent by a publisher that knows nothing of requests: no reply is awaited
        return Terms(None, False)
    return Terms(None if match[1] is None else int(float(match[1]) * 1e9), match[2] is not None)


def kind_of_reply(number: int, outcome: Outcome) -> str:
    return f"{number} {outcome}" if outcome else str(number)


def answer_of(kind: str) -> Answer | None:
    """None: not a reply of a server."""
    number, _, outcome = split_kind(kind).name.partition(" ")
    if not number.isdecimal():
        return None
    known: Any = outcome
    return Answer(int(number), known) if outcome in ("", "failed", "gone") else None
