"""Topics that are not in shared memory, as `ringmain.info` and `ringmain.topics` show them."""

from __future__ import annotations

import os
from typing import Literal

from ringmain.backends import model, zmq_place
from ringmain.backends.plain import parse_schema
from ringmain.inspect import Participant, TopicInfo
from ringmain.testing import world as worlds

# ------------------------------------------------------------------------------------------------ the fake


def fake_topics() -> list[TopicInfo]:
    rings = worlds.current().rings
    return [_describe(rings[name]) for name in sorted(rings)]


def fake_info(name: str) -> TopicInfo:
    return _describe(worlds.current().find_ring(name))


def fake_unlink(name: str, force: bool) -> None:
    worlds.current().unlink(name, force)


def fake_clean() -> list[str]:
    return sorted(worlds.current().clean())


def _describe(ring: model.Ring) -> TopicInfo:
    people = [_participant(ring, seat) for seat in ring.seats]
    return TopicInfo(
        name=ring.topic,
        contract=ring.contract,
        capacity=ring.capacity,
        used=min(max(0, ring.commit - ring.tail), ring.capacity),
        next_sequence=ring.next_sequence,
        epoch=ring.epoch,
        persist=ring.persist,
        schema=parse_schema(ring.schema),
        writers=[person for person in people if person.role == "writer"],
        readers=[person for person in people if person.role == "reader"],
        backend="fake",
    )


def _participant(ring: model.Ring, seat: model.Seat) -> Participant:
    reader = seat.role == "reader"
    return Participant(
        pid=os.getpid(),
        name=seat.name,
        role=seat.role,
        user=os.geteuid(),
        position=seat.position,
        lag_messages=max(0, ring.next_sequence - seat.sequence) if reader else 0,
        lag_bytes=max(0, ring.commit - seat.position) if reader else 0,
        messages=seat.messages,
        bytes=seat.bytes,
        lost=seat.lost,
        holding=seat.hold is not None,
        alive=True,
        waits_for=seat.waits_for,
        joined_ns=seat.joined_ns,
    )


# ------------------------------------------------------------------------------------------------------ zmq


def zmq_topics() -> list[TopicInfo]:
    """Those whose publisher is on this machine and listens in the runtime directory."""
    return [_from_card(card) for card in zmq_place.living_cards()]


def zmq_info(name: str) -> TopicInfo | None:
    card = zmq_place.living_card(name)
    return None if card is None else _from_card(card)


def zmq_clean() -> list[str]:
    return zmq_place.sweep()


def _from_card(card: zmq_place.Card) -> TopicInfo:
    reader = zmq_place.reader_of(card.topic)
    return TopicInfo(
        name=card.topic,
        contract=card.contract,
        capacity=card.capacity,
        used=0,
        next_sequence=0,
        epoch=card.epoch,
        persist=False,
        schema=parse_schema(card.schema),
        writers=[_owner(card, "writer")],
        readers=[] if reader is None else [_owner(reader, "reader")],
        backend="zmq",
    )


def _owner(card: zmq_place.Card, role: Literal["writer", "reader"]) -> Participant:
    """What a card tells: who it is. What it has moved is known to itself alone."""
    return Participant(
        pid=card.pid,
        name=card.name,
        role=role,
        user=card.uid,
        position=0,
        lag_messages=0,
        lag_bytes=0,
        messages=0,
        bytes=0,
        lost=0,
        holding=False,
        alive=True,
        waits_for=None,
        joined_ns=card.epoch,
    )
