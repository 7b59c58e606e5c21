"""`Recorder`: records live topics until it is stopped.

    topics ── taps: one wait for all ──► recv_batch ──► continuity ──► RecordingWriter ──► directory

One thread takes messages and handles every error, since it can stop recording. The invariant owned here: however
recording ends, the taps are closed before any segment is sealed, so that no publisher waits for a recorder that has
stopped; then the messages that were taken are flushed and sealed, if the disk allows.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self, TypedDict, Unpack

from ringmain import _inspect, _names, _native
from ringmain._subscriber import Start
from ringmain.errors import RingmainError, TopicMismatch
from ringmain.recording._filters import check_patterns
from ringmain.recording._meta import Uploads
from ringmain.recording._record.continuity import Continuity, last_recorded, lost_in
from ringmain.recording._record.flight import Flight
from ringmain.recording._record.live_readers import LiveReaders
from ringmain.recording._record.status import Meter, RecorderStatus, State, free_bytes, topic_statuses
from ringmain.recording._record.tap import FrameTap, Tap
from ringmain.recording._record.tap_set import Taps
from ringmain.recording._record.triggers import AFTER_S, BEFORE_S, Trigger
from ringmain.recording._record.writer import Fsync, RecordingWriter

_MOST_MESSAGES = 24576  # at a time from one topic, then the next topic is drained
_MOST_BYTES = 8 << 20  # likewise; small enough to be written while still in the cache
_SHORTEST_SEGMENT_S = 1.0
_LONGEST_WAIT_S = 0.1  # stop() is noticed after this long at most
_PAUSE_S = 0.001  # before nearly empty rings are drained again: fewer, larger batches, and fewer wake-ups


class WriterOptions(TypedDict, total=False):
    """Options of a Recorder that are its RecordingWriter's."""

    recorder: str | None
    flush_interval_s: float
    fsync: Fsync
    segment_bytes: int
    segment_age_s: float
    keep_bytes: int | None
    keep_age_s: float | None
    keep_force: bool
    sealed_uri: str
    upload: Uploads | None
    storage_options: Mapping[str, str]


class Recorder:
    """Records topics to a directory, new or continued: `Recorder("drive", ["imu", "camera/*"]).run()`, or in the
    background during a block: `with Recorder("drive", "*"): ...`.

    topics: names or patterns (`*`, `?`, `[abc]`); topics that appear later are recorded from their first message.
    exclude: names or patterns to leave out.
    frames: also record frame topics: the pixels are the payload, and `RecordedMessage.value` has the array.
    observe: never make a writer wait, not even on `reliable`; messages can then be lost there, and are counted. On a
        `pipe` or `work` topic it always only observes: what it took, no other reader would get.
    readers: also record, every second, what each reader of these topics received and lost: as messages of the topic
        `ringmain/readers`. They count for no limit.
    start: where to begin with topics that are already there: with the "next", the "oldest" or the "newest" message.
    resume: go on after the last recorded message of topics that an earlier recorder on this directory recorded and
        that still exist: messages that the ring still has are recorded, the others are counted as lost.
    duration_s, messages, max_bytes: stop after this time, after exactly so many messages, or after so many bytes.
    name: its name in the rosters of the topics.
    triggers: when to keep an incident: what came before and what comes after, also when `keep_age_s` and `keep_bytes`
        delete what is older; see docs/guide/flight-recorder.md.
    before_s, after_s: the same for incidents that are asked for with `ringmain.trigger` or the command line; 30 s, or
        as much as is kept, and 10 s.
    The rest are options of the writer: recorder, flush_interval_s, fsync, segment_bytes, segment_age_s, keep_bytes,
        keep_age_s, keep_force, sealed_uri, upload, storage_options; see docs/guide/recording.md.
    """

    def __init__(
        self,
        path: str | Path,
        topics: str | Sequence[str] = "*",
        *,
        exclude: str | Sequence[str] = (),
        frames: bool = True,
        observe: bool = False,
        readers: bool = False,
        start: Start = "next",
        resume: bool = True,
        duration_s: float | None = None,
        messages: int | None = None,
        max_bytes: int | None = None,
        name: str = "recorder",
        triggers: Sequence[Trigger] = (),
        before_s: float | None = None,
        after_s: float = AFTER_S,
        **writer: Unpack[WriterOptions],
    ) -> None:
        self.path = Path(path)
        self._patterns = check_patterns("topics", topics)
        self._exclude = check_patterns("exclude", exclude)
        if not self._patterns:
            raise ValueError("no topics to record: give names or patterns, such as 'camera/*'")
        for what, limit in (("duration_s", duration_s), ("messages", messages), ("max_bytes", max_bytes)):
            if limit is not None and limit <= 0:
                raise ValueError(f"{what} must be positive, not {limit!r}; leave it out to record until stopped")
        self._frames, self._observe, self._start, self._resume, self._name = frames, observe, start, resume, name
        self._duration_s, self._max_messages, self._max_bytes = duration_s, messages, max_bytes
        keep_age_s = writer.get("keep_age_s")
        if before_s is None:
            before_s = BEFORE_S if keep_age_s is None else min(BEFORE_S, keep_age_s)
        longest_s = max([before_s, *(trigger.before_s for trigger in triggers)])
        if keep_age_s is not None and keep_age_s < longest_s:
            raise ValueError(
                f"an incident has the {longest_s:g} s before its trigger, but only {keep_age_s:g} s are kept "
                "(keep_age_s, --keep): keep as much at least, or ask for less (before_s, --before)"
            )
        if triggers and "segment_age_s" not in writer:  # whole segments are deleted, and pinned
            writer["segment_age_s"] = min(max(_SHORTEST_SEGMENT_S, (keep_age_s or 10 * longest_s) / 10), 3600.0)
        self._triggers, self._before_s, self._after_s = tuple(triggers), before_s, after_s
        self._flight: Flight | None = None
        self._writer_options = writer
        self._with_readers = readers
        self._readers: LiveReaders | None = None
        self._writer: RecordingWriter | None = None
        self._taps: Taps | None = None
        self._meters: dict[str, Meter] = {}
        self._total = Meter()
        self._state: State = "ready"
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._started_s = self._ended_s = time.monotonic()

    # ------------------------------------------------------------------------------------- running

    def run(self) -> RecorderStatus:
        """Record until `stop()`, Ctrl-C or a limit; returns the final status. Raises `RecordingError` when the
        recording cannot be written any more: all that was flushed is in it."""
        self._open()
        try:
            with contextlib.suppress(KeyboardInterrupt), _interrupts_as(self.stop):
                self._record()
        except BaseException as error:
            self._state, self._error = "failed", error
            self._finish()
            raise
        return self._finish()

    def start(self) -> Self:
        """Record in a thread. The topics that exist have been joined when this returns."""
        self._open()
        self._thread = threading.Thread(target=self._record_in_thread, name="ringmain-recorder", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ask it to stop; safe from any thread and from a signal handler. Messages published before are still
        recorded."""
        self._stop.set()

    def close(self) -> RecorderStatus:
        """Stop, seal, and raise the error that ended recording, if any. Safe to call twice."""
        self.stop()
        thread, self._thread = self._thread, None
        if thread is not None:
            while thread.is_alive():
                thread.join(0.2)
            if self._error is not None:
                raise self._error
        elif self._state == "recording":
            return self._finish()
        return self.status()

    def __enter__(self) -> Self:
        return self if self._state == "recording" else self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(RingmainError):  # the first error is raised
                self.close()

    def _open(self) -> None:
        if self._state != "ready":
            raise ValueError(f"this recorder is {self._state}; make a new one to record again")
        begun_before = {(topic.name, topic.epoch) for topic in _inspect.topics()}
        # Until the flight recorder has seen what an earlier one left in the rings, nothing is too old.
        self._writer = RecordingWriter(self.path, leave_from_ns=0, **self._writer_options)
        try:
            self._continuity = Continuity(begun_before)
            known = self._known_topics() if self._resume else set()
            self._taps = Taps(
                self._patterns,
                self._exclude,
                start=lambda topic: "oldest" if topic in known else self._start,
                observe=self._observe,
                frames=self._frames,
                name=self._name,
                before_closing=self._writer.settle,
            )
            self._join_new()
            if self._with_readers:
                self._readers = LiveReaders(self._writer, self._name)
            self._flight = Flight(
                self._writer,
                self._triggers,
                recorder=self._name,
                before_s=self._before_s,
                after_s=self._after_s,
                sync=self._writer_options.get("fsync") != "never",
            )
            self._writer.flush()
        except BaseException:
            if self._taps is not None:
                self._taps.close()
            self._writer.close()
            raise
        self._state, self._started_s = "recording", time.monotonic()

    def _known_topics(self) -> set[str]:
        """Topics that an earlier recorder on this directory recorded, and that are still in the same life."""
        assert self._writer is not None
        declared, alive = self._writer.declared, set()
        for topic in {topic for topic, _ in declared}:
            with contextlib.suppress(RingmainError):
                alive.add((topic, _native.inspect(_names.runtime_directory(), topic)["epoch"]))
        known = alive & declared.keys()
        last = last_recorded(self._writer.store, known)
        for topic, epoch in known:
            seq = last.get((topic, epoch))
            self._continuity.know(topic, epoch, declared[topic, epoch].first_seq if seq is None else seq + 1)
        return {topic for topic, _ in known}

    def _join_new(self) -> None:
        """Declare what new taps have joined, and take what its topics had kept before."""
        assert self._taps is not None
        assert self._writer is not None
        for tap in self._taps.take_new():
            self._declare(tap)
            if isinstance(tap, Tap) and (kept := tap.take_kept()) is not None:
                self._writer.latch(tap.topic, *kept)

    def _declare(self, tap: Tap | FrameTap) -> None:
        """Declare the lives that a tap has joined before any message of them is taken: the next recorder then knows
        where recording began, and counts what is missing."""
        assert self._writer is not None
        for life in tap.lives.values():
            first_seq = self._continuity.first_seq(tap.topic, life.epoch, life.first_seq)
            self._writer.declare(
                tap.topic,
                epoch=life.epoch,
                contract=life.contract,
                schema=life.schema,
                first_seq=first_seq,
                properties=life.properties,
            )

    def _record_in_thread(self) -> None:
        try:
            try:
                self._record()
            except BaseException as error:
                self._state, self._error = "failed", error
            self._finish()
        except BaseException as error:
            self._error = self._error or error

    def _record(self) -> None:
        assert self._writer is not None
        assert self._taps is not None
        try:
            while not self._stop.is_set() and not self._is_full():
                due_s = min(_LONGEST_WAIT_S, self._writer.tick(), self._left_s())
                if self._readers is not None:
                    self._readers.tick(tap.topic for tap in self._taps.current())
                if self._flight is not None:
                    self._flight.tick(self._taps.current)
                ready = self._taps.wait(0 if self._writer.busy else due_s)
                self._join_new()
                if not ready:
                    self._writer.settle()  # no message stays borrowed during a sleep
                    continue
                fullest = 0.0
                for tap in ready:
                    fullest = max(fullest, self._drain(tap))
                if fullest < 1 / 8:
                    self._writer.settle()
                    time.sleep(_PAUSE_S)
            self._drain_rest()
            if self._readers is not None:
                self._readers.take(tap.topic for tap in self._taps.current())
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                self._drain_rest()
            raise
        finally:
            try:
                self._writer.settle()  # releases borrowed messages
            finally:
                self._taps.close()

    def _finish(self) -> RecorderStatus:
        """Close the writer, which seals; after an error of its own it only unlocks the directory."""
        assert self._writer is not None
        failed = self._state == "failed"
        try:
            if not failed:
                if self._flight is not None:
                    self._flight.close()
                self._state = "sealing"
            self._writer.close()
        except BaseException:
            self._state = "failed"
            raise
        finally:
            self._ended_s = time.monotonic()
            if self._taps is not None:
                self._taps.close()
        if not failed:
            self._state = "stopped"
        return self.status()

    # ------------------------------------------------------------------------------------- draining

    def _drain(self, tap: Tap | FrameTap) -> float:
        """Record the messages that are there, up to a limit; returns how full the ring was."""
        assert self._writer is not None
        assert self._taps is not None
        most = _MOST_MESSAGES
        if self._max_messages is not None:
            most = min(most, self._max_messages - self._total.messages)
        try:
            taken = tap.take(most, _MOST_BYTES)
        except TopicMismatch:  # created again, as a frame topic or no longer as one
            self._taps.change_kind(tap)
            return 0.0
        except RingmainError as error:
            self._taps.set_aside(tap.topic, error)
            return 0.0
        if taken is None:
            return 0.0
        ring = self._continuity.correct(tap.topic, taken.epoch, taken.ring, joined=tap.begun != taken.epoch)
        if len(ring):
            tap.begun = taken.epoch
            tap.refresh()
            self._declare(tap)
            try:
                borrowed = [lease.data for lease in taken.in_place]
                if self._flight is not None:
                    life = tap.lives.get(taken.epoch)
                    self._flight.see(tap.topic, ring, life.schema if life is not None else b"", borrowed)
                self._writer.append(tap.topic, taken.epoch, ring, in_place=borrowed, written=taken.release)
            except BaseException:
                taken.release()
                raise
            self._count(tap.topic, len(ring), taken.bytes, taken.lost if ring is taken.ring else lost_in(ring))
        else:
            taken.release()
        if len(taken.ring) >= most or taken.bytes >= _MOST_BYTES // 2:
            return 1.0  # there are probably more
        return (taken.bytes + 32 * len(taken.ring)) / max(tap.capacity, 1)

    def _count(self, topic: str, messages: int, size: int, lost: int) -> None:
        meter = self._meters.get(topic)
        if meter is None:
            meter = self._meters[topic] = Meter()
        meter.add(messages, size, lost)
        self._total.add(messages, size, lost)

    def _drain_rest(self) -> None:
        """Record the messages published before the stop, and no later ones: a publisher may never pause."""
        assert self._taps is not None
        for tap in self._taps.current():
            left, _ = tap.lag()
            while left > 0 and not self._is_full():
                before = self._total.messages
                self._drain(tap)
                taken = self._total.messages - before
                left = left - taken if taken else 0

    def _is_full(self) -> bool:
        return (
            (self._max_messages is not None and self._total.messages >= self._max_messages)
            or (self._max_bytes is not None and self._writer is not None and self._writer.bytes >= self._max_bytes)
            or self._left_s() <= 0
        )

    def _left_s(self) -> float:
        if self._duration_s is None:
            return float("inf")
        return max(0.0, self._started_s + self._duration_s - time.monotonic())

    # ------------------------------------------------------------------------------------- watching

    @property
    def error(self) -> BaseException | None:
        """The error that ended it, if any."""
        return self._error

    def status(self) -> RecorderStatus:
        """The status now. From any thread. It reads the rosters, so ask a few times a second at most."""
        writer, taps, flight = self._writer, self._taps, self._flight
        rate_hz, bytes_per_s = self._total.rates()
        running = self._state == "recording"
        return RecorderStatus(
            path=str(self.path),
            state=self._state,
            elapsed_s=(time.monotonic() if running else self._ended_s) - self._started_s,
            messages=self._total.messages,
            bytes=writer.bytes if writer is not None else 0,
            lost=self._total.lost,
            rate_hz=rate_hz if running else 0.0,
            bytes_per_s=bytes_per_s if running else 0.0,
            topics=topic_statuses(taps, self._meters, self._observe) if taps is not None else [],
            position=str(writer.position) if writer is not None else "",
            segments_waiting=writer.segments_waiting if writer is not None else 0,
            uploads_waiting=writer.uploads_waiting if writer is not None else 0,
            upload_problem=writer.upload_problem if writer is not None else "",
            damaged=writer.damaged if writer is not None else [],
            disk_free_bytes=free_bytes(self.path),
            error=str(self._error) if self._error is not None else "",
            incidents=flight.count if flight is not None else 0,
            incidents_open=len(flight.open) if flight is not None else 0,
            trigger_problems=flight.problems if flight is not None else [],
        )


@contextlib.contextmanager
def _interrupts_as(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C calls `stop` instead of raising between a write and the note that it was done. A handler that the program
    has installed stays."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
