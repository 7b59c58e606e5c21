"""What each backend can do, in one table. The docs print it, the conformance tests select by it, errors quote it.

Owns this invariant: a backend either behaves as the shared-memory ring, or this table says how it differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from ringmain.backends import BACKENDS, Backend
from ringmain.errors import Unsupported


@dataclass(frozen=True)
class Feature:
    """One row: for each backend the reason why it lacks the feature, or None if it has it."""

    name: str
    shm: str | None = None
    zmq: str | None = None
    fake: str | None = None


_NO_TURNS = "several writers need turns under one lock, and ZeroMQ has none between machines"
_NO_HISTORY = "ZeroMQ keeps nothing for a subscriber that comes later"
_NO_OTHER_PROCESS = "a fake world exists in one process alone; `Lockstep` is for several"

_HANDED_OUT = "a PUSH socket hands messages out, and what a worker that dies had is gone"

FEATURES = (
    Feature("contract broadcast"),
    Feature("contract pipe"),
    Feature("contract bus", zmq=_NO_TURNS + "; use broadcast, one topic a writer"),
    Feature("contract reliable", zmq=_NO_TURNS + "; use pipe, one topic a reader"),
    Feature("contract work"),
    Feature(
        "several writers of a work topic",
        zmq="its one publisher binds the address; carry each writer's topic to it with a bridge",
    ),
    Feature("a worker gives messages back", zmq=_HANDED_OUT + "; use shm on each machine"),
    Feature(
        "unfinished work stays in the topic",
        zmq=_HANDED_OUT + ". While no worker is there, sends wait",
    ),
    Feature(
        "ready workers share the work",
        zmq="each worker has a queue that is filled in turn; `Address.queue=1` keeps them short",
    ),
    Feature(
        "workers that take only some messages",
        zmq="a worker cannot leave a message to others; use a topic for each kind",
    ),
    Feature(
        "requests: Server and Client",
        zmq="when its server dies, a request must go to another one or be given up, and a PUSH socket does not tell; "
        "use shm",
    ),
    Feature("send, send_many, kinds and senders"),
    Feature("recv, recv_many, recv_messages, recv_into, recv_batch, iteration"),
    Feature("reserve, stream, borrow"),
    Feature("zero copy", zmq="the bytes must travel: one copy", fake="one copy, to notice views that outlive a block"),
    Feature("screening, conflate, wait, asyncio"),
    Feature("losses are counted"),
    Feature("what fits is counted in bytes", zmq="its queues count messages: `Address.queue`, on each side"),
    Feature("start='oldest' and 'newest' find earlier messages", zmq=_NO_HISTORY),
    Feature("keep_last_per_kind", zmq=_NO_HISTORY),
    Feature("a pipe's next reader goes on", zmq="what the last reader's queue held is gone with it"),
    Feature("observers of pipe and work", zmq="a message that one peer of a PUSH socket gets, no other does"),
    Feature("a second publisher is refused", zmq="only on ipc; on tcp the address is taken, and binding fails"),
    Feature("takeover", zmq="an address can only be bound anew when its owner is gone; close the old publisher"),
    Feature("persist", zmq=_NO_HISTORY),
    Feature("min_readers", zmq="a connection is no proof of a reader; call wait_for_readers after opening"),
    Feature(
        "a reader takes part before its topic exists", zmq="a publisher knows its readers once they have connected"
    ),
    Feature(
        "all_read", zmq="what was sent is out of the publisher's sight; let readers answer on a topic of their own"
    ),
    Feature("typed topics"),
    Feature("topics and info", zmq="only publishers on ipc, of this machine; readers are not listed"),
    Feature("between processes", fake=_NO_OTHER_PROCESS),
    Feature(
        "between machines",
        shm="shared memory is one machine's; `ringmain.bridge` carries topics to zmq and back",
        fake=_NO_OTHER_PROCESS,
    ),
    Feature(
        "virtual time, faults on demand",
        shm="real memory, real time; `Lockstep` and `Sequencer` force an order",
        zmq="real sockets, real time",
    ),
)


def column(backend: Backend) -> dict[str, str | None]:
    """For each feature the reason why the backend lacks it, or None."""
    return {feature.name: getattr(feature, backend) for feature in FEATURES}


def missing(backend: Backend, feature: str) -> str | None:
    """Why the backend lacks the feature; None if it has it."""
    return column(backend)[feature]


def refuse(backend: Backend, topic: str, feature: str) -> NoReturn:
    raise Unsupported(
        f"the backend {backend} has no {feature!r} (topic '{topic}'): {missing(backend, feature)}", topic=topic
    )


def as_markdown() -> str:
    """The table, as the docs print it."""
    lines = ["| | " + " | ".join(BACKENDS) + " |", "|---|" + "---|" * len(BACKENDS)]
    notes: list[str] = []
    for feature in FEATURES:
        cells = []
        for backend in BACKENDS:
            why = missing(backend, feature.name)
            if why is not None and why not in notes:
                notes.append(why)
            cells.append("yes" if why is None else f"no [{notes.index(why) + 1}]")
        lines.append(f"| {feature.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\n" + "\n".join(f"{n}. {note}" for n, note in enumerate(notes, 1)) + "\n"
