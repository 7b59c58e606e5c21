"""Topics that are not in shared memory, as `ringmain.info` and `ringmain.topics` show them."""

from __future__ import annotations

import os
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from ringmain import _names
from ringmain._inspect import Participant, TopicInfo

if TYPE_CHECKING:
    from ringmain.backends._python import reference_ring
    from ringmain.backends.zmq import _registry
    from ringmain.testing import World
    from ringmain.typed import Schema

# ------------------------------------------------------------------------------------------------ the fake


def _world() -> World:
    from ringmain.backends.fake import _world as worlds  # most programs never need it

    return worlds.current()


def fake_topics() -> list[TopicInfo]:
    rings = _world().rings
    return [_describe(rings[name]) for name in sorted(rings)]


def fake_info(name: str) -> TopicInfo:
    return _describe(_world().find_ring(name))


def fake_unlink(name: str, force: bool) -> None:
    _world().unlink(name, force)


def fake_clean() -> list[str]:
    return sorted(_world().clean())


def _describe(ring: reference_ring.Ring) -> TopicInfo:
    people = [_participant(ring, seat) for seat in ring.seats]
    return TopicInfo(
        name=ring.topic,
        contract=ring.contract,
        capacity=ring.capacity,
        used=min(max(0, ring.commit - ring.tail), ring.capacity),
        next_sequence=ring.next_sequence,
        epoch=ring.epoch,
        persist=ring.persist,
        schema=_schema(ring.schema),
        writers=[person for person in people if person.role == "writer"],
        readers=[person for person in people if person.role != "writer"],
        backend="fake",
    )


def _participant(ring: reference_ring.Ring, seat: reference_ring.Seat) -> Participant:
    reader = seat.role != "writer"
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


def _places() -> ModuleType | None:
    """The module that knows the cards, if there can be any: most programs never use zmq."""
    if not os.path.isdir(os.path.join(_names.runtime_directory(), ".zmq")):
        return None
    from ringmain.backends.zmq import _registry

    return _registry


def zmq_topics() -> list[TopicInfo]:
    """Those whose publisher is on this machine and listens in the runtime directory."""
    places = _places()
    return [_from_card(card, places.reader_of(card.topic)) for card in places.living_cards()] if places else []


def zmq_info(name: str) -> TopicInfo | None:
    places = _places()
    card = places.living_card(name) if places else None
    return _from_card(card, places.reader_of(name)) if places and card else None


def zmq_clean() -> list[str]:
    """Take away what dead publishers left."""
    places = _places()
    gone: list[str] = places.sweep() if places else []
    return gone


def _from_card(card: _registry.Card, reader: _registry.Card | None) -> TopicInfo:
    return TopicInfo(
        name=card.topic,
        contract=card.contract,
        capacity=card.capacity,
        used=0,
        next_sequence=0,
        epoch=card.epoch,
        persist=False,
        schema=_schema(card.schema),
        writers=[_owner(card, "writer")],
        readers=[] if reader is None else [_owner(reader, "reader")],
        backend="zmq",
    )


def _owner(card: _registry.Card, role: Literal["writer", "reader"]) -> Participant:
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


def _schema(data: bytes) -> Schema | None:
    if not data:
        return None
    from ringmain import typed

    return typed.Schema.from_bytes(data)
