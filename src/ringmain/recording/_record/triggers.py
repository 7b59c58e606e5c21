"""`Trigger`: what makes a recorder keep an incident, and how a batch of messages is asked for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pyarrow as pa
import pyarrow.compute as pc

from ringmain import typed
from ringmain.errors import RingmainError
from ringmain.recording._filters import check_patterns
from ringmain.recording._format import RING_SCHEMA
from ringmain.recording._record.predicate import Predicate

BEFORE_S, AFTER_S = 30.0, 10.0
_KINDS = ("when", "kind", "loss", "silence", "death")


@dataclass(frozen=True, slots=True)
class Trigger:
    """Keeps what was recorded `before_s` before it fires and `after_s` after it. Exactly one of:

    when: "robot/imu: ax > 9": a message of the topic, or of topics by a pattern, for which the expression over its
        fields is true; the language is that of `ringmain echo --filter`, without slices.
    kind: "robot/state: emergency": a message of this kind.
    loss: "robot/*": the recorder, or a reader of the topic, has lost messages.
    silence: "robot/imu: 2": a topic that was alive has had no message for so many seconds.
    death: "robot/*": a writer or reader of the topic has died.

    name: of its incidents; by default what it says.   cooldown_s: it does not fire again for so long, by default as
    long as `after_s`, and at least a second.
    """

    when: str = ""
    kind: str = ""
    loss: str = ""
    silence: str = ""
    death: str = ""
    name: str = ""
    before_s: float = BEFORE_S
    after_s: float = AFTER_S
    cooldown_s: float | None = None

    def __post_init__(self) -> None:
        given = [what for what in _KINDS if getattr(self, what)]
        if len(given) != 1:
            raise ValueError(f"a trigger has exactly one of {', '.join(_KINDS)}; this one has {len(given)}")
        for what in ("before_s", "after_s", "cooldown_s"):
            value = getattr(self, what)
            if value is not None and not 0 <= value <= 1e6:
                raise ValueError(f"{what} is a number of seconds from 0 to a million, not {value!r}")
        check_patterns(given[0], self.topic)
        if given[0] in ("when", "kind", "silence") and not self.rest:
            raise ValueError(f"{given[0]} is written 'TOPIC: ...', not {self.text!r}")
        if self.silence and not self.silent_s > 0:
            raise ValueError(f"silence is written 'TOPIC: SECONDS', not {self.silence!r}")
        if self.when:
            Predicate(self.rest)

    @property
    def what(self) -> str:
        """Which of them it is."""
        return next(what for what in _KINDS if getattr(self, what))

    @property
    def text(self) -> str:
        found: str = getattr(self, self.what)
        return found

    @property
    def topic(self) -> str:
        """The topic's name or pattern."""
        return self.text.partition(":")[0].strip() if self.what not in ("loss", "death") else self.text

    @property
    def rest(self) -> str:
        return self.text.partition(":")[2].strip()

    @property
    def silent_s(self) -> float:
        try:
            return float(self.rest.removesuffix("s"))
        except ValueError:
            return 0.0

    @property
    def title(self) -> str:
        return self.name or f"{self.what} {self.text}"

    @property
    def pause_ns(self) -> int:
        """How long it does not fire again."""
        return round((max(1.0, self.after_s) if self.cooldown_s is None else self.cooldown_s) * 1e9)

    def watches(self, topic: str) -> bool:
        return fnmatchcase(topic, self.topic)


class Watched:
    """A trigger on one topic's batches: when it fires, in publish times."""

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger
        self._predicate = Predicate(trigger.rest) if trigger.when else None
        self._schemas: dict[bytes, typed.Schema] = {}
        self.problem = ""
        """Why the expression could not be applied to the last batch it was asked of."""

    def first_in(self, ring: pa.RecordBatch, schema: bytes, from_ns: int) -> int | None:
        """The publish time of the first message that it fires for, of those from `from_ns` on."""
        times = ring.column("time_ns")
        hits = self._hits(ring, schema)
        if hits is None:
            return None
        if from_ns:
            hits = pc.and_(hits, pc.greater_equal(times, from_ns))
        at = pc.index(hits, True).as_py()
        return None if at < 0 else int(times[at].as_py())

    def _hits(self, ring: pa.RecordBatch, schema: bytes) -> pa.BooleanArray | None:
        if self.trigger.kind:
            return pc.equal(ring.column("kind"), self.trigger.rest)
        if self.trigger.loss:
            return pc.greater(ring.column("lost"), pa.scalar(0, pa.uint64()))
        if self._predicate is None:
            return None
        try:
            hits = self._predicate.of(self._columns(ring, schema), len(ring))
            self.problem = ""
            return hits
        except (RingmainError, ValueError, TypeError, AttributeError, pa.ArrowException) as error:
            self.problem = f"{self.trigger.title}: {' '.join(str(error).split())}"
            return None

    def _columns(self, ring: pa.RecordBatch, schema: bytes) -> Mapping[str, pa.Array]:
        envelope = {"message": pa.StructArray.from_arrays(ring.columns[:-1], fields=list(RING_SCHEMA)[:-1])}
        if not schema:
            return envelope
        known = self._schemas.get(schema)
        if known is None:
            known = self._schemas[schema] = typed.Schema.from_bytes(schema)
        values, _ = typed.decode_column(ring.column("data"), known)
        fields = zip(values.type, values.flatten(), strict=True)
        return {**envelope, **{field.name: column for field, column in fields}}
