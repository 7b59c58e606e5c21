"""The flight recorder: asks the triggers, opens incidents, and closes them when their windows are recorded.

It runs in the recorder's thread, on the batches that are recorded anyway: no publisher notices. The invariants owned
here: an incident's manifest is written while no retention runs, so what it pins is still there; retention by age
leaves what the next window may want, however far the recorder is behind the rings; a request is done once, also by the
recorder after one that died; and an incident is closed only when every topic has been recorded to the end of its
window.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from ringmain import _crash, _names, _native
from ringmain.errors import RecordingError, RingmainError
from ringmain.recording._format import RING_SCHEMA
from ringmain.recording._record.tap import FrameTap, Tap
from ringmain.recording._record.triggers import AFTER_S, BEFORE_S, Trigger, Watched
from ringmain.recording._record.writer import RecordingWriter
from ringmain.recording._upkeep import incidents
from ringmain.recording._upkeep.incidents import Incident
from ringmain.recording._upkeep.what_is_left import WhatIsLeft

_EVERY_S = 0.05  # requests, silences and ends of windows are looked for so often
_ROSTERS_S = 0.1  # deaths, and losses of readers
_RETENTION_S = 1.0  # what retention leaves for windows that may begin moves on so often
_SETTLE_NS = 300_000_000  # a message may have its time a moment before it can be read


class Flight:
    """The triggers of one recorder and its incidents."""

    def __init__(
        self,
        writer: RecordingWriter,
        triggers: Sequence[Trigger],
        *,
        recorder: str,
        before_s: float = BEFORE_S,
        after_s: float = AFTER_S,
        sync: bool,
    ) -> None:
        self._writer, self._triggers, self._recorder, self._sync = writer, triggers, recorder, sync
        self._before_s, self._after_s = before_s, after_s
        self._longest_before_ns = round(max([before_s, *(trigger.before_s for trigger in triggers)]) * 1e9)
        self._watched: dict[str, list[Watched]] = {}
        self._resting: dict[Trigger, tuple[int, float]] = {}  # when it last fired, and on our clock until when it rests
        self._recorded_to_ns: dict[str, int] = {}  # by topic: the newest publish time
        self._heard_s: dict[str, float] = {}  # by topic that is alive: when, on our clock, its last batch came
        self._dead: set[tuple[str, int, int]] = set()
        self._lost: dict[tuple[str, int, int], int] = {}
        self._left = WhatIsLeft(writer.store)
        self._look_s = self._rosters_s = self._retention_s = 0.0
        directory = writer.store.directory
        assert directory is not None
        self._directory: Path = directory
        known = incidents.incidents_in(writer.store)
        self.open = [incident for incident in known if incident.is_open]
        self.count = len(known)
        self.done_ids = {incident.id for incident in known}
        for incident in known:
            for trigger in triggers:
                if trigger.title == incident.name:
                    self._rest(trigger, incident.trigger_ns)

    @property
    def problems(self) -> list[str]:
        """Expressions that could not be applied to the last messages that they were asked of."""
        return sorted({each.problem for several in self._watched.values() for each in several if each.problem})

    # ------------------------------------------------------------------------------------- triggers

    def see(self, topic: str, ring: pa.RecordBatch, schema: bytes, in_place: Sequence[memoryview] = ()) -> None:
        """These messages are being recorded. With `in_place`, the payloads are these, and not the batch's own."""
        newest_ns = ring.column("time_ns")[len(ring) - 1].as_py()
        self._recorded_to_ns[topic] = max(newest_ns, self._recorded_to_ns.get(topic, 0))
        self._heard_s[topic] = time.monotonic()
        watched = self._watched.get(topic)
        if watched is None:
            watching = [t for t in self._triggers if t.what in ("when", "kind", "loss") and t.watches(topic)]
            watched = self._watched[topic] = [Watched(trigger) for trigger in watching]
        if in_place and any(each.trigger.when for each in watched):
            payloads = pa.array([bytes(data) for data in in_place], pa.binary())
            ring = ring.set_column(len(ring.columns) - 1, RING_SCHEMA.field("data"), payloads)
        for each in watched:
            trigger = each.trigger
            while (at_ns := each.first_in(ring, schema, self._rests_until_ns(trigger, newest_ns))) is not None:
                self._fire(trigger, f"{trigger.what} {trigger.text} on {topic}", at_ns)
                if trigger.pause_ns == 0:
                    break  # once a batch

    def _fire(self, trigger: Trigger, why: str, at_ns: int) -> None:
        if at_ns >= self._rests_until_ns(trigger, at_ns):
            self._rest(trigger, at_ns)
            self._begin(incidents.incident_id(at_ns, trigger.title), trigger.title, why, at_ns,
                        trigger.before_s, trigger.after_s)  # fmt: skip

    def _rest(self, trigger: Trigger, at_ns: int) -> None:
        self._resting[trigger] = at_ns, time.monotonic() + trigger.pause_ns / 1e9

    def _rests_until_ns(self, trigger: Trigger, newest_ns: int) -> int:
        """Before this it does not fire. Where times up to `newest_ns` are before the one that it fired at, the wall
        clock was set back: then it rests as long as on our clock."""
        fired_ns, over_s = self._resting.get(trigger, (0, 0.0))
        if fired_ns == 0 or (newest_ns < fired_ns and time.monotonic() >= over_s):
            return 0
        return fired_ns + trigger.pause_ns

    def tick(self, taps: Callable[[], Iterable[Tap | FrameTap]]) -> None:
        """Do what is due, some twenty times a second."""
        now_s = time.monotonic()
        if now_s < self._look_s:
            return
        self._look_s = now_s + _EVERY_S
        self._writer.keep_latched({tap.topic for tap in taps() if tap.attached})
        self._do_requests()
        for trigger in self._triggers:
            if trigger.silence:
                self._look_for_silence(trigger, now_s)
        if now_s >= self._rosters_s and any(trigger.death or trigger.loss for trigger in self._triggers):
            self._rosters_s = now_s + _ROSTERS_S
            for tap in taps():
                self._look_at_roster(tap.topic)
        if self.open:
            self._close_those_over(taps)
        if now_s >= self._retention_s:
            self._retention_s = now_s + _RETENTION_S
            self._writer.leave_from_ns = self._may_begin_ns(taps()) - self._longest_before_ns

    def _do_requests(self) -> None:
        for asked in incidents.requests_in(self._directory):
            if asked.id not in self.done_ids:
                self._begin(asked.id, asked.name, asked.why, asked.time_ns, self._before_s, self._after_s)
            incidents.done(self._directory, asked)

    def _may_begin_ns(self, taps: Iterable[Tap | FrameTap]) -> int:
        """No trigger fires from now on for a moment before this: its messages are recorded, and have been seen."""
        oldest_ns = time.time_ns() - _SETTLE_NS
        behind = (self._recorded_to_ns.get(tap.topic, 0) for tap in taps if tap.lag()[0])
        return min([oldest_ns, *behind])

    def _look_for_silence(self, trigger: Trigger, now_s: float) -> None:
        for topic, heard_s in list(self._heard_s.items()):
            if trigger.watches(topic) and now_s - heard_s >= trigger.silent_s:
                del self._heard_s[topic]  # until its next message
                self._fire(trigger, f"{topic} has been silent for {trigger.silent_s:g} s", time.time_ns())

    def _look_at_roster(self, topic: str) -> None:
        wanted = [t for t in self._triggers if (t.death or t.loss) and t.watches(topic)]
        try:
            there = _native.inspect(_names.runtime_directory(), topic)["participants"] if wanted else []
        except RingmainError:
            return
        for each in there:
            if each["pid"] == os.getpid() and each["name"] == self._recorder:
                continue
            one = (topic, each["slot"], each["joined_ns"])
            died = not each["alive"] and one not in self._dead
            lost = each["lost"] - self._lost.get(one, 0)
            self._lost[one] = each["lost"]
            if died:
                self._dead.add(one)
            for trigger in wanted:
                if trigger.death and died:
                    self._fire(trigger, f"{each['role']} {each['name']!r} of {topic} died", time.time_ns())
                if trigger.loss and lost > 0 and each["role"] != "writer":
                    self._fire(trigger, f"{each['name']!r} lost {lost} messages of {topic}", time.time_ns())

    # ------------------------------------------------------------------------------------- incidents

    def _begin(self, id: str, name: str, why: str, at_ns: int, before_s: float, after_s: float) -> None:
        while id in self.done_ids:  # two triggers of one name in one microsecond
            id += "-again"
        start_ns, end_ns = at_ns - round(before_s * 1e9), at_ns + max(1, round(after_s * 1e9))
        self._writer.carry_latched()
        with self._writer.no_retention():
            first, whole_from_ns = self._left.since(start_ns)
            first = min(first, self._writer.position.segment)
            incident = Incident("", id, name, why, at_ns, start_ns, end_ns, first, whole_from_ns=whole_from_ns)
            _crash.point("incident: asked for, not written")  # a request is there until its incident is
            self._write(incident)
        self.open.append(incident)
        self.done_ids.add(id)
        self.count += 1
        _crash.point("incident: written, its window not over")  # the next recorder goes on with it

    def _close_those_over(self, taps: Callable[[], Iterable[Tap | FrameTap]]) -> None:
        now_ns = time.time_ns()
        over = [incident for incident in self.open if now_ns >= incident.end_ns + _SETTLE_NS]
        if not over:
            return
        current = list(taps())
        self.close(
            incident
            for incident in over
            if all(self._recorded_to_ns.get(tap.topic, 0) >= incident.end_ns or tap.lag()[0] == 0 for tap in current)
        )

    def close(self, over: Iterable[Incident] | None = None) -> None:
        """Note where these incidents end; by default all that are open, or asked for, since recording ends."""
        if over is None:
            self._do_requests()
        ending = list(self.open if over is None else over)
        if not ending:
            return
        here = self._writer.position
        empty = here.row == 0 and any(incident.first_segment == here.segment for incident in ending)
        if empty or self._writer.store.only_incidents:
            self._writer.rotate()  # its last segment can be uploaded now; or has no row, and what is latched
        else:
            self._writer.flush()
        _crash.point("incident: window over, not closed")  # the next recorder closes it
        end = self._writer.position
        for incident in ending:
            self._write(msgspec.structs.replace(incident, end_segment=end.segment, end_row=end.row))
            self.open.remove(incident)

    def _write(self, incident: Incident) -> None:
        try:
            incidents.write_incident(self._directory, incident, sync=self._sync)
            self._writer.incidents_changed()
        except OSError as error:
            raise RecordingError(
                error.errno or 0, f"could not write the incident {incident.id} to {self._directory}: {error.strerror}"
            ) from error
